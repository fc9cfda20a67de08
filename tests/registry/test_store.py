"""The store under several processes, after a move, and with what MLflow does not take."""

import json
import math
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import pytest

from judgefree.errors import JudgefreeError
from judgefree.registry.facts import ModelFacts
from judgefree.registry.place import moved_from, repair
from judgefree.registry.runs import log_latest, log_rows, open_run, step_times
from judgefree.registry.store import Store, find_or_create_run, open_store


def test_four_processes_log_to_a_fresh_store_at_once(tmp_path: Path, forked: Callable[..., list[Any]]) -> None:
    def log(key: str) -> tuple[str, str]:
        store = open_store(tmp_path)
        shared = find_or_create_run(store, "shared", "shared", {}).info.run_id
        own = find_or_create_run(store, key, "own", {}).info.run_id
        for start in range(0, 1000, 100):
            log_rows(store, own, {step: {"loss": step / 2} for step in range(start, start + 100)})
        return shared, own

    shared, own = zip(*forked(log, list("abcd")), strict=True)
    assert len(set(shared)) == 1 and len(set(own)) == 4
    with closing(sqlite3.connect(tmp_path / "mlruns" / "mlflow.db")) as connection:
        counts = connection.execute("SELECT run_uuid, COUNT(*), SUM(value) FROM metrics GROUP BY run_uuid").fetchall()
        (experiments,) = connection.execute("SELECT COUNT(*) FROM experiments WHERE name = 'judgefree'").fetchone()
    assert sorted(counts) == sorted((run, 1000, 999 * 1000 / 4) for run in own) and experiments == 1


def values(store: Store, run_id: str, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in store.client.get_metric_history(run_id, name)]


def test_no_step_is_logged_twice(store: Store) -> None:
    run_id = find_or_create_run(store, "k", "r", {}).info.run_id
    logged = log_rows(store, run_id, {1: {"loss": 1.0}, 2: {"loss": 0.5, "validation/pass@1": 0.25}})
    log_rows(store, run_id, {2: {"loss": 9.0}, 3: {"loss": 0.25, "kl": 0.1}}, logged)  # the same process
    log_rows(store, run_id, {1: {"loss": 1.0}, 3: {"kl": 0.1}, 4: {"loss": 0.125}})  # another one, after a resume
    assert values(store, run_id, "loss") == [(1, 1.0), (2, 0.5), (3, 0.25), (4, 0.125)]
    assert values(store, run_id, "validation/pass_at_1") == [(2, 0.25)] and values(store, run_id, "kl") == [(3, 0.1)]


def test_infinite_values_are_counted_and_not_logged(store: Store) -> None:
    run_id = find_or_create_run(store, "k", "r", {}).info.run_id
    rows: dict[int, dict[str, float | None]] = {
        1: {"loss": math.inf, "kl": 1.0}, 2: {"loss": math.nan, "kl": -math.inf}, 3: {"loss": 0.5, "kl": None},
    }  # fmt: skip
    log_rows(store, run_id, rows)
    assert values(store, run_id, "loss") == [(3, 0.5)] and values(store, run_id, "kl") == [(1, 1.0)]
    assert values(store, run_id, "nonfinite_values") == [(1, 1.0), (2, 3.0)]


def test_a_repeated_evaluation_is_logged_where_it_differs(store: Store) -> None:
    for value in (0.5, 0.5, 0.25):
        run = find_or_create_run(store, "k", "r", {})
        log_latest(store, run, {"eval/s/pass@1": value, "eval/s/items": 7}, step=4)
    run = find_or_create_run(store, "k", "r", {})
    assert run.data.metrics == {"eval/s/pass_at_1": 0.25, "eval/s/items": 7.0}
    assert values(store, run.info.run_id, "eval/s/pass_at_1") == [(4, 0.5), (4, 0.25)]


def test_parameters_long_and_odd(store: Store) -> None:
    long = "x" * 10_000
    settings = {
        "training": {"learning_rate": 2e-4, "loss": {"clip_low": 0.2}},
        "run": {"options": {"rubric": long, "k@": 3}},
    }
    model = ModelFacts(
        "org/model:v1", "key'; --"[:3], "rlvr", "arithmetic", 7, "tiny", "tiny", "last", settings=settings
    )
    for _ in range(2):
        run = open_run(store, model)
    params = store.client.get_run(run.info.run_id).data.params
    expected = {"method": "rlvr", "seed": "7", "base": "tiny", "learning_rate": "0.0002", "loss.clip_low": "0.2",
                "options.k_at_": "3", "start_from": "tiny", "dataset": "arithmetic", "select": "last"}  # fmt: skip
    assert params == expected
    artifact = Path(store.root / "mlruns" / "artifacts" / run.info.run_id / "artifacts" / "parameters.json")
    assert json.loads(artifact.read_text()) == settings
    assert run.info.run_name == "org/model:v1"


def test_a_moved_store_is_refused_and_repaired(root: Path, tmp_path: Path, forked: Callable[..., list[Any]]) -> None:
    def log(root: Path) -> str:  # in a process that ends before the move
        model = ModelFacts("tiny", "k", base="tiny", settings={"training": {}, "note": "é"})
        return open_run(open_store(root), model).info.run_id

    (run_id,) = forked(log, [root])
    place = tmp_path / "another place ü"
    shutil.move(root, place)
    with pytest.raises(JudgefreeError, match="moved or copied.*\n.*judgefree doctor --fix"):
        open_store(place)
    assert moved_from(place) == (root / "mlruns" / "artifacts").as_uri()
    assert repair(place) == 2, "the experiment and the run"
    assert moved_from(place) is None and repair(place) == 0
    with closing(sqlite3.connect(place / "mlruns" / "mlflow.db")) as connection:
        assert not [line for line in connection.iterdump() if str(root) in line]
    store = open_store(place)
    uri = store.client.get_run(run_id).info.artifact_uri
    assert mlflow.artifacts.load_dict(f"{uri}/parameters.json")["note"] == "é"
    store.client.log_text(run_id, "x", "y.txt")
    assert not root.exists()


def test_a_root_whose_name_begins_like_the_old_one_is_told_apart(tmp_path: Path, blank_database: Path) -> None:
    """/a/project2 is no place below /a/project."""
    root = tmp_path / "project"
    (root / "mlruns").mkdir(parents=True)
    shutil.copy(blank_database, root / "mlruns" / "mlflow.db")
    store = open_store(root)
    foreign = (tmp_path / "project2").as_uri()
    store.client.create_experiment("foreign", foreign)
    shutil.move(root, tmp_path / "moved")
    repair(tmp_path / "moved")
    experiment = open_store(tmp_path / "moved").client.get_experiment_by_name("foreign")
    assert experiment and experiment.artifact_location == foreign


def test_a_schema_of_another_mlflow_names_the_upgrade(root: Path, tmp_path: Path) -> None:
    open_store(root)
    place = tmp_path / "older"  # MLflow keeps one open store per address
    shutil.move(root, place)
    repair(place)
    with closing(sqlite3.connect(place / "mlruns" / "mlflow.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '97727af70f4d'")
    with pytest.raises(JudgefreeError, match="mlflow db upgrade"):
        open_store(place)


def test_step_times_skip_what_a_resume_began(tmp_path: Path) -> None:
    lines = [(1, 2.0), (2, 3.5), (4, 9.0), (3, 1.0), (4, 1.5), (5, 2.5)]
    text = "".join(json.dumps({"step": step, "seconds": seconds}) + "\n" for step, seconds in lines)
    (tmp_path / "timings.jsonl").write_text(text + '{"step": 6, "sec')
    assert step_times(tmp_path) == {
        1: {"step_time": 2.0}, 2: {"step_time": 1.5}, 4: {"step_time": 0.5}, 5: {"step_time": 1.0},
    }  # fmt: skip
