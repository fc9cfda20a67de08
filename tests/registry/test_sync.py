"""MLflow runs rebuilt from files, and told live."""

import json
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judgefree.files import pretty_json, write_atomic
from judgefree.registry.live import LiveLog
from judgefree.registry.store import KEY, Store, find_run, open_store
from judgefree.registry.sync import sync


def by_name(store: Store) -> dict[str, Any]:
    return {run.info.run_name: run for run in store.client.search_runs([store.experiment_id])}


def artifact(store: Store, run: Any, name: str) -> Path:
    return store.root / "mlruns" / "artifacts" / run.info.run_id / "artifacts" / name


def test_files_become_runs_side_by_side(project: Any, shares: Callable[..., list[bool]]) -> None:
    project.run("rlvr", weights=1, validation=0.75)
    project.report("rlvr", shares(0.5))
    assert sync(project.root) == {"rlvr": "logged", "tiny": "logged"}
    assert sync(project.root) == {"rlvr": "unchanged", "tiny": "unchanged"}
    store = open_store(project.root)
    runs = by_name(store)
    assert set(runs) == {"rlvr", "tiny"}
    run, base = runs["rlvr"], runs["tiny"]
    assert run.data.params == {"method": "rlvr", "dataset": "arithmetic", "seed": "0", "base": "tiny", "start_from": "tiny",
                               "select": "validation", "learning_rate": "0.0002"}  # fmt: skip
    assert base.data.params == {"method": "base", "base": "tiny"}
    assert run.data.metrics == {
        "reward": 0.5, "validation/pass_at_1": 0.75, "eval/arithmetic/items": 300, "eval/arithmetic/length": 6,
        "eval/arithmetic/pass_at_1": 0.5, "eval/arithmetic/unparsed": 0, "eval/arithmetic/truncated": 0,
        "eval/arithmetic/ungraded": 0, "collapse/peak": 0.75, "collapse/peak_step": 2, "collapse/retention": 1,
    }  # fmt: skip
    assert base.data.metrics["eval/arithmetic/pass_at_1"] == 0.2
    assert run.info.status == "FINISHED" and run.data.tags["mlflow.note.content"] == "rlvr on arithmetic from tiny"
    inputs = [(entry.dataset.name, entry.dataset.digest, entry.tags[0].value) for entry in run.inputs.dataset_inputs]
    expected = [
        (project.split_sha256("train"), "training"),
        ("b" * 64, "validation"),
        (project.split_sha256("test"), "evaluation"),
    ]
    assert sorted(inputs) == sorted(("arithmetic", digest[:36], context) for digest, context in expected)
    table = json.loads(artifact(store, run, "completions/steps-0000000.json").read_text())
    assert table["columns"] == ["question", "step", "prompt_id", "role", "text", "reward"]
    assert table["data"] == [["0 + 0 = ?", 0, "train-000000", "attempt", "#### 3", "nan"]]
    assert {entry["path"] for entry in json.loads(run.data.tags["mlflow.loggedArtifacts"])} == {
        "completions/steps-0000000.json", "evaluation/arithmetic/items.json",
    }  # fmt: skip
    assert artifact(store, run, "plots/curves.png").read_bytes().startswith(b"\x89PNG")
    assert "greedy" in artifact(store, run, "metrics.md").read_text()


def test_a_lost_store_is_built_again(project: Any, blank_database: Path) -> None:
    project.run("rlvr", weights=1)
    sync(project.root)
    shutil.move(project.root, project.root.with_name("elsewhere"))
    root = project.root.with_name("elsewhere")
    shutil.rmtree(root / "mlruns")
    (root / "mlruns").mkdir()
    shutil.copy(blank_database, root / "mlruns" / "mlflow.db")
    assert sync(root) == {"rlvr": "logged", "tiny": "logged"}
    assert by_name(open_store(root))["rlvr"].data.metrics["reward"] == 0.5


def test_a_new_evaluation_is_added_and_a_foreign_one_is_not(project: Any, shares: Callable[..., list[bool]]) -> None:
    project.run("rlvr", weights=1)
    sync(project.root)
    project.report("rlvr", shares(0.4))
    assert sync(project.root) == {"rlvr": "logged", "tiny": "unchanged"}
    project.run("rlvr", weights=2)  # trained again; the report is of the earlier weights
    assert sync(project.root)["rlvr"] == "logged"
    runs = open_store(project.root).client.search_runs([open_store(project.root).experiment_id])
    measured = {
        run.data.tags[KEY]: run.data.metrics.get("eval/arithmetic/pass_at_1")
        for run in runs
        if run.info.run_name == "rlvr"
    }
    assert sorted(measured.values(), key=str) == [0.4, None]


def test_equal_settings_under_two_names_are_two_runs(project: Any) -> None:
    project.run("one", weights=1, key="same")
    project.run("two", weights=1, key="same")
    sync(project.root)
    store = open_store(project.root)
    assert find_run(store, "same", "one").info.run_id != find_run(store, "same", "two").info.run_id  # type: ignore[union-attr]


def test_collapse_and_values_that_are_not_finite(project: Any) -> None:
    rows: dict[int, dict[str, float | None]] = {
        1: {"loss": 1.0, "reward": 0.1},
        2: {"loss": float("nan"), "reward": None},
    }
    project.run("rlvr", weights=1, status="collapsed", rows=rows)
    sync(project.root)
    store = open_store(project.root)
    run = by_name(store)["rlvr"]
    assert run.info.status == "FAILED" and run.data.tags["judgefree.status"] == "collapsed"
    assert run.data.metrics["loss"] == 1.0 and run.data.metrics["nonfinite_values"] == 1
    assert json.loads(artifact(store, run, "nonfinite.json").read_text()) == {
        "left out": [{"step": 2, "metric": "loss", "value": "nan"}]
    }


def test_peak_and_retention_are_columns_to_compare_by(project: Any) -> None:
    scores = {0: 0.9, 2: 0.3, 4: 0.8, 6: 0.6, 8: 0.2}
    project.run("fell", weights=1, rows={step: {"validation/pass@1": score} for step, score in scores.items()})
    project.run("held", weights=2)
    sync(project.root)
    metrics = {name: run.data.metrics for name, run in by_name(open_store(project.root)).items()}
    fell = {name: value for name, value in metrics["fell"].items() if name.startswith("collapse/")}
    assert fell == {
        "collapse/peak": 0.8,
        "collapse/peak_step": 4,
        "collapse/collapse_step": 8,
        "collapse/retention": 0.25,
    }
    assert metrics["held"]["collapse/retention"] == 1 and "collapse/collapse_step" not in metrics["held"]
    assert not [name for name in metrics["tiny"] if name.startswith("collapse/")]


def test_a_methods_memory_is_a_table(project: Any) -> None:
    project.run("srrl", weights=1)
    memory = [
        {"example": "a", "question": "1 + 1 = ?", "review": "count on"},
        {"example": "b", "question": "?", "review": ""},
    ]
    state = {"method": {"memory": memory, "rollouts": 2, "empty": []}}
    write_atomic(project.root / "models" / "srrl" / "method_state.json", pretty_json(state))
    sync(project.root)
    store = open_store(project.root)
    run = by_name(store)["srrl"]
    assert json.loads(artifact(store, run, "state/memory.json").read_text()) == {
        "columns": ["example", "question", "review"], "data": [["a", "1 + 1 = ?", "count on"], ["b", "?", ""]],
    }  # fmt: skip
    shown = {entry["path"] for entry in json.loads(run.data.tags["mlflow.loggedArtifacts"])}
    assert shown == {"state/memory.json", "completions/steps-0000000.json"}


def resolved(project: Any) -> None:
    run = {"method": "rlvr", "dataset": "arithmetic", "seed": 0, "start_from": "tiny", "select": "validation"}
    settings = {"run": run, "training": {"learning_rate": 2e-4}}
    write_atomic(project.root / "resolved" / "train" / "rlvr.json", pretty_json(settings))
    manifest = project.root / "data" / "arithmetic" / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["files"]["validation.parquet"] = {"sha256": "b" * 64, "size": 0}
    write_atomic(manifest, pretty_json(facts))


def test_a_run_is_told_live_and_completed_by_sync(project: Any, tmp_path: Path) -> None:
    resolved(project)
    first = LiveLog(project.root, "rlvr", "k", tmp_path)
    first.checkpoint({0: {"validation/pass@1": 0.1}, 1: {"reward": 0.25}})
    store = open_store(project.root)
    assert find_run(store, "k", "rlvr").info.status == "RUNNING"  # type: ignore[union-attr]
    first.end({1: {"reward": 0.25}}, "KILLED")
    assert find_run(store, "k", "rlvr").info.status == "KILLED"  # type: ignore[union-attr]
    resumed = LiveLog(project.root, "rlvr", "k", tmp_path)
    resumed.checkpoint({0: {"validation/pass@1": 0.1}, 1: {"reward": 0.25}, 2: {"reward": 0.5}})
    run = find_run(store, "k", "rlvr")
    assert run and run.info.status == "RUNNING" and run.data.params["learning_rate"] == "0.0002"
    resumed.end({}, "FINISHED")
    project.run("rlvr", weights=1, key="k", validation=0.75)
    assert sync(project.root)["rlvr"] == "logged"
    (run,) = [run for run in store.client.search_runs([store.experiment_id]) if run.info.run_name == "rlvr"]
    for name, steps in {"reward": [1, 2], "validation/pass_at_1": [0, 2]}.items():
        assert [metric.step for metric in store.client.get_metric_history(run.info.run_id, name)] == steps
    assert len(run.inputs.dataset_inputs) == 2 and run.info.status == "FINISHED"


@pytest.mark.parametrize("hidden", ["mlflow", "filelock"])
def test_an_environment_without_mlflow_says_so_in_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    """As beside vLLM, whose pins exclude MLflow's."""
    for module in [name for name in sys.modules if name.startswith("judgefree.registry.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, hidden, None)
    with caplog.at_level(logging.WARNING):
        LiveLog(tmp_path, "rlvr", "k", tmp_path).checkpoint({1: {"reward": 0.25}})
    (record,) = caplog.records
    assert hidden in record.getMessage() and not record.exc_info and "judgefree sync" in record.getMessage()


def test_a_moved_store_says_so_in_a_line(project: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sync(project.root)
    moved = project.root.rename(project.root.with_name("moved"))
    with caplog.at_level(logging.WARNING):
        LiveLog(moved, "rlvr", "k", tmp_path).checkpoint({1: {"reward": 0.25}})
    (record,) = caplog.records
    assert "moved or copied" in record.getMessage() and not record.exc_info


def test_training_goes_on_without_mlflow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "mlflow.db").write_text("no database")
    live = LiveLog(tmp_path, "rlvr", "k", tmp_path)
    with caplog.at_level(logging.WARNING):
        live.checkpoint({1: {"reward": 0.25}})
        live.end({1: {"reward": 0.25}}, "FINISHED")
    (record,) = caplog.records
    assert "judgefree sync" in record.getMessage() and record.exc_info, "what is unexpected keeps its traceback"
