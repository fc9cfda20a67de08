"""One command in one group: its lines, its end, and that nothing of it is left in whatever way the caller goes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from microproject import LONG, REPOSITORY

from tasks.process import Lines, TimedOut, guarded, run

pytestmark = pytest.mark.pipeline
STUBBORN = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("started").touch()
time.sleep(60)
"""


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def working_in(folder: Path) -> list[int]:
    """Processes whose current folder is `folder`: the guard, the command and all that it started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_lines_and_status(tmp_path: Path) -> None:
    lines: list[str] = []
    program = (
        "import sys; print('one'); print('50%\\r100%', file=sys.stderr); print('caf\\u00e9 without end', end=''); "
        "sys.exit(7)"
    )
    assert run(python(program), tmp_path, tmp_path / "log", 30, 5, lines.append) == 7
    assert sorted(lines) == ["100%", "50%", "café without end", "one"]


def test_pieces_make_whole_lines() -> None:
    lines: list[str] = []
    feed = Lines(lines.append).feed
    for piece in (b"a", b"b\nc\xc3", b"\xa9\r", b"\n\n", b"d"):
        feed(piece)
    assert lines == ["ab", "cé"]


def test_time_out_lets_the_command_save(tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(TimedOut):
        run(python(LONG), tmp_path, tmp_path / "log", 2, 20, lines.append)
    assert (tmp_path / "saved").exists() and lines == ["training", "saved, stopping"]
    assert working_in(tmp_path) == []


def test_a_spared_command_lives_until_its_child_has_saved(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(LONG)
    parent = "import subprocess, sys; print('child ended with', subprocess.call([sys.executable, 'long.py']))"
    lines: list[str] = []
    with pytest.raises(TimedOut):
        run(python(parent), tmp_path, tmp_path / "log", 2, 20, lines.append, spare=True)
    assert lines == ["training", "saved, stopping", "child ended with 143"]


def test_what_ignores_the_request_is_killed_after_the_grace(tmp_path: Path) -> None:
    began = time.monotonic()
    with guarded(python(STUBBORN), tmp_path, tmp_path / "log", 2) as guard:
        wait_for((tmp_path / "started").exists)
        began = time.monotonic()
    assert 2 <= time.monotonic() - began < 8
    assert guard.returncode == 128 + signal.SIGKILL and working_in(tmp_path) == []
    assert "killed" in (tmp_path / "log").read_text()


def test_helpers_that_a_command_leaves_behind_are_ended(tmp_path: Path) -> None:
    leaver = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print('left')"
    )
    assert run(python(leaver), tmp_path, tmp_path / "log", 30, 5, lambda line: None) == 0
    assert working_in(tmp_path) == []


@pytest.mark.parametrize("victim", ["caller", "guard"])
def test_kill_9_leaves_nothing(tmp_path: Path, victim: str) -> None:
    """Of the caller: the command still saves. Of the guard: the caller kills the group."""
    work = tmp_path / "work"
    work.mkdir()
    call = f"""
from pathlib import Path
from tasks.process import run
run([{sys.executable!r}, "-c", {LONG!r}], Path({str(work)!r}), Path({str(tmp_path)!r}) / "log", 60, 20, print)
"""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    caller = subprocess.Popen(python(call), cwd=tmp_path, env=environment)
    try:
        wait_for((work / "started").exists)
        guard = psutil.Process(caller.pid).children()[0]
        (caller if victim == "caller" else guard).kill()
        assert caller.wait(20) == (-signal.SIGKILL if victim == "caller" else 0)
        wait_for(lambda: working_in(work) == [], 10)
        assert (work / "saved").exists() == (victim == "caller")
    finally:
        caller.kill()
