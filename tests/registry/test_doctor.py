"""What the doctor finds and mends, and the states of runs."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from judgefree.check import write_resolved
from judgefree.files import MANIFEST, pretty_json, read_json, write_atomic
from judgefree.registry.doctor import examine, fix
from judgefree.registry.states import last_step, run_states
from judgefree.training.run import read_job


def problems(root: Path) -> str:
    return "\n".join(finding.problem for finding in examine(root))


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_an_empty_folder_is_well(tmp_path: Path) -> None:
    assert examine(tmp_path) == []


def test_locks_of_dead_processes_go_and_others_stay(tmp_path: Path, dead_pid: int) -> None:
    living = {"pid": os.getpid(), "cmd": "dvc repro"}
    dead = {"pid": dead_pid, "cmd": "dvc repro"}
    locks = {"a": {"write": dead}, "b": {"read": [dead, living]}, "c": {"write": living}}
    path = tmp_path / ".dvc" / "tmp" / "rwlock"
    write_atomic(path, json.dumps(locks))
    (tmp_path / "mlruns").mkdir()
    assert str(dead_pid) in problems(tmp_path)
    assert len(fix(tmp_path)) == 1 and fix(tmp_path) == []
    assert json.loads(path.read_text()) == {"b": {"read": [living]}, "c": {"write": living}}
    assert examine(tmp_path) == []


def test_halves(project: Any) -> None:
    project.run("rlvr", weights=1)
    assert examine(project.root) == []
    (project.root / "models" / "torn").mkdir()
    (project.root / "models" / ".rlvr.old").mkdir()
    (project.root / ".work" / "evaluate" / "abc.partial").mkdir(parents=True)
    (project.root / ".work" / "train" / "0123").mkdir(parents=True)
    finished = read_json(project.root / "models" / "rlvr" / MANIFEST)["key"]
    (project.root / ".work" / "train" / finished).mkdir()
    found = {finding.problem.split(" ")[0]: finding.command for finding in examine(project.root)}
    assert found[str(project.root / "models" / "torn")].startswith("rm -r")
    assert str(project.root / "models" / ".rlvr.old") in found
    assert str(project.root / ".work" / "evaluate" / "abc.partial") in found
    assert "1 training runs below .work are unfinished (0 MB): .work/train/0123" in problems(project.root)
    assert len(found) == 4


def test_versions_other_than_the_pinned_ones(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("numpy==0.0.1\nno-such-package==1.0\n")
    (finding,) = examine(tmp_path)
    assert "pinned 0.0.1" in finding.problem and "no-such-package" not in finding.problem


def test_a_damaged_store(tmp_path: Path) -> None:
    write_atomic(tmp_path / "mlruns" / "mlflow.db", "no database")
    (finding,) = examine(tmp_path)
    assert "is damaged" in finding.problem and "judgefree sync" in finding.command


def states(root: Path) -> dict[str, tuple[str, str]]:
    return {run.name: (run.state, run.detail) for run in run_states(root)}


def test_states(project: Any, shares: Any) -> None:
    root = project.root
    manifest = root / "data" / "arithmetic" / MANIFEST
    facts = read_json(manifest)
    facts["files"]["validation.parquet"] = {"sha256": "b" * 64, "size": 0}
    write_atomic(manifest, pretty_json(facts))
    names = ("new", "begun", "done", "tested", "burst", "old")
    project.params(names)
    write_resolved(root)
    keys = {name: read_job(name, root).key for name in names}
    assert len(set(keys.values())) == 1, "the key does not hold the name"

    # Runs of equal settings share their work, so each of these gets a seed of its own.
    text = (root / "params.yaml").read_text()
    for seed, name in enumerate(names):
        start = text.index(f"\n  {name}:")
        text = text[:start] + text[start:].replace("seed: 0", f"seed: {seed + 10}", 1)
    (root / "params.yaml").write_text(text)
    write_resolved(root)
    keys = {name: read_job(name, root).key for name in names}
    work = root / ".work" / "train" / keys["begun"]
    write_atomic(work / "timings.jsonl", '{"step": 7, "seconds": 1.0}\n{"step": 8, "sec')
    assert last_step(work) == 7
    for name in ("done", "tested"):
        project.run(name, weights=1, key=keys[name])
    project.report("tested", shares(0.5))
    project.run("burst", weights=1, key=keys["burst"], status="collapsed")
    project.run("old", weights=1)
    found = states(root)
    assert {name: state for name, (state, _) in found.items()} == {
        "new": "not started", "begun": "in progress", "done": "trained", "tested": "evaluated", "burst": "collapsed",
        "old": "stale",
    }  # fmt: skip
    assert found["begun"][1] == "step 7 of 240" and "not evaluated on arithmetic" in found["done"][1]
