"""What the doctor finds and mends, and the states of runs."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dvc.fs import localfs
from dvc.rwlock import rwlock

from judgefree.check import write_resolved
from judgefree.files import MANIFEST, pretty_json, read_json, write_atomic
from judgefree.registry import doctor
from judgefree.registry.doctor import examine, fix
from judgefree.registry.states import last_step, run_keys, run_states
from judgefree.training.run import read_job


def problems(root: Path) -> str:
    return "\n".join(finding.problem for finding in examine(root))


KILLED_IN_STAGE = """
import os, signal, sys
from dvc.fs import localfs
from dvc.rwlock import rwlock
with rwlock(sys.argv[1], localfs, "dvc repro", ["/src"], ["/models/rlvr", "/models/sft"], False):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def dvc_lock(place: Path, read: list[str], write: list[str]) -> AbstractContextManager[None]:
    return rwlock(str(place), localfs, "dvc repro", read, write, False)


def test_an_empty_folder_is_well(tmp_path: Path) -> None:
    assert examine(tmp_path) == []


def test_locks_of_dead_processes_go_and_others_stay(tmp_path: Path) -> None:
    """The file as DVC itself writes it, and DVC's own judgement of what is left."""
    place = tmp_path / ".dvc" / "tmp"
    place.mkdir(parents=True)
    (tmp_path / "mlruns").mkdir()
    with dvc_lock(place, read=["/src"], write=["/living"]):
        killed = subprocess.Popen([sys.executable, "-c", KILLED_IN_STAGE, place])
        assert killed.wait(60) == -signal.SIGKILL
        assert f"process {killed.pid} (dvc repro) left when it died" in problems(tmp_path)
        assert len(fix(tmp_path)) == 1 and fix(tmp_path) == [] and examine(tmp_path) == []
        living = {"pid": os.getpid(), "cmd": "dvc repro"}
        assert read_json(place / "rwlock") == {"write": {"/living": living}, "read": {"/src": [living]}}
    assert read_json(place / "rwlock") == {}


def test_a_merge_conflict_in_the_lock_file(tmp_path: Path) -> None:
    """Made by git itself; the remedy makes the file readable again."""

    def git(*words: str, check: bool = True) -> None:
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@t", *words], check=check)

    def commit(md5: str) -> None:
        write_atomic(tmp_path / "dvc.lock", f"schema: '2.0'\nstages:\n  pin:\n    cmd: x\n    md5: {md5}\n")
        git("add", ".")
        git("commit", "-qm", md5)

    git("init", "-q", "-b", "main")
    commit("one")
    git("checkout", "-qb", "other")
    commit("two")
    git("checkout", "-q", "main")
    commit("three")
    assert examine(tmp_path) == []
    git("merge", "-q", "other", check=False)
    (finding,) = examine(tmp_path)
    assert "dvc.lock holds the marks of a merge conflict" in finding.problem
    subprocess.run(finding.command.split(" && ")[0].split(), cwd=tmp_path, check=True)
    assert examine(tmp_path) == [] and "md5: three" in (tmp_path / "dvc.lock").read_text()


def test_halves(project: Any) -> None:
    project.run("rlvr", weights=1)
    assert examine(project.root) == []
    (project.root / "models" / "torn").mkdir()
    (project.root / "models" / ".rlvr.old").mkdir()
    (project.root / ".work" / "evaluate" / "abc.partial").mkdir(parents=True)
    reports = [
        project.root / "reports" / kind / "torn" for kind in ("alpaca-eval", "arena-hard", "pairwise", "reward-bench")
    ]
    for report in reports:
        report.mkdir(parents=True)
    found = {finding.problem.split(" ")[0]: finding.command for finding in examine(project.root)}
    assert found[str(project.root / "models" / "torn")].startswith("rm -r")
    assert str(project.root / "models" / ".rlvr.old") in found
    assert str(project.root / ".work" / "evaluate" / "abc.partial") in found
    assert all(str(report) in found for report in reports)
    assert len(found) == 3 + len(reports)


def test_a_disk_too_small_for_the_next_run(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that have their model want nothing, and what an unfinished one holds is not asked for twice."""
    add_validation(project)
    write_resolved(project.root)
    assert not problems(project.root)
    parameters = read_json(project.root / "models" / "tiny" / MANIFEST)["parameters"]
    monkeypatch.setattr(doctor, "SPARE_BYTES", 0)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=40 * parameters))
    assert "GB are free, a training run wants" in problems(project.root)
    work = project.root / ".work" / "train" / str(run_keys(project.root)["rlvr"])
    write_atomic(work / "checkpoint-1" / "weights", bytes(12 * parameters))
    assert "GB are free" not in problems(project.root)
    shutil.rmtree(work)
    project.run("rlvr", weights=1)
    assert "GB are free" not in problems(project.root)


def test_unfinished_work_is_kept_apart_from_what_can_go(project: Any) -> None:
    """Of a run that goes on, of one whose model is there, of one whose settings have changed since."""
    add_validation(project)
    project.params(("rlvr", "next"))
    set_seed(project.root, "next", 5)
    project.run("rlvr", weights=1, key="a" * 16)
    unfinished = run_keys(project.root)["next"]
    for key in ("a" * 16, "b" * 16, unfinished):
        write_atomic(project.root / ".work" / "train" / str(key) / "checkpoint-1" / "weights", b"0" * 2_000_000)
    found = {finding.problem: finding for finding in examine(project.root)}
    work = project.root / ".work" / "train"
    assert {problem: (finding.command, finding.fault) for problem, finding in found.items()} == {
        f"unfinished training: 2 MB in {work / str(unfinished)}": ("dvc repro (goes on with it)", True),
        f"space that can be freed, since models/ has their results: 2 MB in {work / ('a' * 16)}":
            (f"rm -r {work / ('a' * 16)}", False),
        f"space that can be freed, since settings, data or code have changed: 2 MB in {work / ('b' * 16)}":
            (f"rm -r {work / ('b' * 16)}", False),
    }  # fmt: skip
    (project.root / "params.yaml").write_text("runs: no\n")
    assert "params.yaml is refused" in problems(project.root)


def test_work_of_reward_models_can_go_as_that_of_runs(project: Any) -> None:
    """One that is made, and one of settings that no entry has any more; locks beside them are no folders."""
    write_atomic(project.root / "models" / "judge" / MANIFEST, pretty_json({"kind": "reward_model", "key": "a" * 16}))
    work = project.root / ".work" / "reward_model"
    for key in ("a" * 16, "b" * 16):
        write_atomic(work / key / "classifier" / "weights", b"0" * 2_000_000)
        write_atomic(work / f"{key}.lock", "1")
    assert {finding.problem: (finding.command, finding.fault) for finding in examine(project.root)} == {
        f"space that can be freed, since {why}: 2 MB in {work / (key * 16)}": (f"rm -r {work / (key * 16)}", False)
        for why, key in (("models/ has their results", "a"), ("settings, data or code have changed", "b"))
    }


def test_versions_other_than_the_pinned_ones(tmp_path: Path) -> None:
    (tmp_path / "constraints.txt").write_text("numpy==0.0.1\nno-such-package==1.0\n")
    (finding,) = examine(tmp_path)
    assert "pinned 0.0.1" in finding.problem and "no-such-package" not in finding.problem


def test_a_damaged_store(tmp_path: Path) -> None:
    write_atomic(tmp_path / "mlruns" / "mlflow.db", "no database")
    (finding,) = examine(tmp_path)
    assert "is damaged" in finding.problem and "judgefree sync" in finding.command


def add_validation(project: Any) -> None:
    manifest = project.root / "data" / "arithmetic" / MANIFEST
    facts = read_json(manifest)
    facts["files"]["validation.parquet"] = {"sha256": "b" * 64, "size": 0}
    write_atomic(manifest, pretty_json(facts))


def set_seed(root: Path, run: str, seed: int) -> None:
    text = (root / "params.yaml").read_text()
    start = text.index(f"\n  {run}:")
    (root / "params.yaml").write_text(text[:start] + re.sub(r"seed: \d+", f"seed: {seed}", text[start:], count=1))


def states(root: Path) -> dict[str, tuple[str, str]]:
    return {run.name: (run.state, run.detail) for run in run_states(root)}


def test_states(project: Any, shares: Any) -> None:
    root = project.root
    add_validation(project)
    names = ("new", "begun", "done", "tested", "burst", "old")
    project.params(names)
    write_resolved(root)
    keys = {name: read_job(name, root).key for name in names}
    assert len(set(keys.values())) == 1, "the key does not hold the name"

    # Runs of equal settings share their work, so each of these gets a seed of its own.
    for seed, name in enumerate(names):
        set_seed(root, name, seed + 10)
    write_resolved(root)
    keys = {name: read_job(name, root).key for name in names}
    work = root / ".work" / "train" / keys["begun"]
    write_atomic(work / "timings.jsonl", '{"step": 7, "seconds": 1.0}\n{"step": 8, "sec')
    assert last_step(work) == 7
    for name in ("done", "tested"):
        project.run(name, weights=1, key=keys[name])
    project.report("tested", shares(0.5))
    project.run("burst", weights=1, key=keys["burst"], status="collapsed")
    project.run("old", weights=1, key="c" * 16)
    found = states(root)
    assert {name: state for name, (state, _) in found.items()} == {
        "new": "not started", "begun": "in progress", "done": "trained", "tested": "evaluated", "burst": "collapsed",
        "old": "stale",
    }  # fmt: skip
    assert found["begun"][1] == "step 7 of 240" and "not evaluated on arithmetic" in found["done"][1]
    before = {path: path.read_bytes() for path in (root / "resolved").rglob("*.json")}
    set_seed(root, "tested", 99)  # and nobody called `judgefree resolve`
    assert states(root) == {**found, "tested": ("stale", "its settings, inputs or code have changed; `dvc repro` trains "
                                                         "it again")}  # fmt: skip
    assert {path: path.read_bytes() for path in (root / "resolved").rglob("*.json")} == before
    shutil.rmtree(root / "models" / "tiny")
    assert states(root)["new"] == ("not started", "waits for models/tiny")
