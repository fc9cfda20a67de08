"""One flow at a time, and DVC locks of dead processes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from microproject import LONG, REPOSITORY
from test_process import python, wait_for, working_in

from judgefree.dvc_locks import clear_stale_dvc_locks, stale_dvc_locks
from tasks.lock import ProjectBusy, held, project_lock

HOLDER = """
from pathlib import Path
from tasks.lock import held, project_lock
from tasks.process import run
root = Path({root!r})
with project_lock(root, 0, 0, print):
    run([{python!r}, "-c", {program!r}], root / "work", root / "log", 60, 20, print, keep=held(root))
"""


@pytest.fixture
def holder(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A process that holds the project and runs a command in it."""
    (tmp_path / "work").mkdir()
    program = HOLDER.format(root=str(tmp_path), python=sys.executable, program=LONG)
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    process = subprocess.Popen(python(program), env=environment)
    try:
        wait_for((tmp_path / "work" / "started").exists)
        yield process
    finally:
        process.kill()
        process.wait()
        wait_for(lambda: working_in(tmp_path / "work") == [])


@pytest.mark.pipeline
def test_the_second_is_told_who_works(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    said: list[str] = []
    message = rf"^skipped: another flow works in this project: process {holder.pid} \("
    with pytest.raises(ProjectBusy, match=message), project_lock(tmp_path, 0.6, 20, said.append):
        pass
    assert len(said) == 1 and "waiting for up to 1 s" in said[0]
    assert held(tmp_path) == []


@pytest.mark.pipeline
def test_a_killed_flows_stage_keeps_the_project_until_it_has_saved(
    holder: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    holder.kill()
    holder.wait()
    said: list[str] = []
    with (
        pytest.raises(ProjectBusy, match=r"still saving; waited 0 s \(pipeline.grace_s\)"),
        project_lock(tmp_path, 0, 0, print),
    ):
        pass
    with project_lock(tmp_path, 0, 20, said.append):
        assert (tmp_path / "work" / "saved").exists()
        assert working_in(tmp_path / "work") == []
    assert len(said) == 1 and f"process {holder.pid} (" in said[0] and "gone, but its stage is still saving" in said[0]


def test_a_flow_that_runs_other_flows_enters_again(tmp_path: Path) -> None:
    with project_lock(tmp_path, 0, 0, print):
        first = held(tmp_path)
        with project_lock(tmp_path, 0, 0, print):
            assert held(tmp_path) == first
        assert held(tmp_path) == first
    assert held(tmp_path) == []
    with project_lock(tmp_path, 0, 0, print):
        pass


def test_locks_of_dead_processes_are_cleared_with_a_word(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    living = subprocess.Popen(["sleep", "30"])
    try:
        path = tmp_path / ".dvc" / "tmp" / "rwlock"
        path.parent.mkdir(parents=True)
        entry = {"pid": dead.pid, "cmd": "dvc repro -s train@rlvr"}
        other = {"pid": living.pid, "cmd": "dvc repro -s prepare@words"}
        time.sleep(0.1)
        path.write_text(
            json.dumps({"write": {"models/rlvr": entry, "data/words": other}, "read": {"src": [entry, other]}})
        )
        said: list[str] = []
        before = path.read_bytes()
        assert len(stale_dvc_locks(tmp_path)) == 1 and path.read_bytes() == before, "a look changes nothing"
        clear_stale_dvc_locks(tmp_path, said.append)
        assert json.loads(path.read_text()) == {"write": {"data/words": other}, "read": {"src": [other]}}
        assert said == [f"cleared the DVC lock that process {dead.pid} (dvc repro -s train@rlvr) left when it died"]
        os.utime(path, (1e9, 1e9))  # long before that process began: its id was given out again
        clear_stale_dvc_locks(tmp_path, said.append)
        assert json.loads(path.read_text()) == {"write": {}, "read": {}}
        assert f"process {living.pid} " in said[1]
    finally:
        living.kill()
        living.wait()


@pytest.mark.parametrize(
    "broken", ['{"write": {"mod', "", "[]", '{"models/rlvr": {"write": {"pid": 1, "cmd": "dvc"}}}']
)
def test_no_lock_and_a_broken_lock(tmp_path: Path, broken: str) -> None:
    said: list[str] = []
    clear_stale_dvc_locks(tmp_path, said.append)
    assert said == []
    path = tmp_path / ".dvc" / "tmp" / "rwlock"
    path.parent.mkdir(parents=True)
    path.write_text(broken)
    assert stale_dvc_locks(tmp_path) and path.exists()
    clear_stale_dvc_locks(tmp_path, said.append)
    assert not path.exists() and "not readable" in said[0]
