"""One command in one process group, its output in a file and, line by line, wherever the caller wants it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")
POLL_S = 0.2
MARGIN_S = 10.0  # beyond the grace, for a guard on a busy machine


class TimedOut(Exception):
    """The command took longer than it may; it was stopped and its group is empty."""


def environment() -> dict[str, str]:
    """Of a stage: this interpreter's programs go before others, output comes line by line, nothing phones home."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        "DVC_NO_ANALYTICS": "true",
        "DO_NOT_TRACK": "1",
    }


@contextmanager
def guarded(
    command: Sequence[str],
    cwd: Path,
    output: Path,
    grace_s: float,
    *,
    spare: bool = False,
    keep: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command below a guard (see guard.py), its output in the file `output`; yields the guard's process.

    Leaving the block, in whatever way, stops what still runs and waits until the process group is empty.
    spare: the command's own process is not told to stop, only its children (for `dvc`).
    keep: file descriptors that stay open for as long as anything of the group lives.
    """
    words = [sys.executable, str(GUARD), str(grace_s), "spare" if spare else "tell", *command]
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        guard = subprocess.Popen(
            words, cwd=cwd, env=env or environment(), stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT,
            start_new_session=True, pass_fds=tuple(keep),
        )  # fmt: skip
    assert guard.stdin
    try:
        yield guard
    finally:
        guard.stdin.close()
        try:
            guard.wait(grace_s + MARGIN_S)
        finally:
            if guard.returncode is None or guard.returncode < 0:  # the guard itself hangs or was killed
                kill_group(guard.pid)


def kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def run(
    command: Sequence[str],
    cwd: Path,
    output: Path,
    timeout_s: float,
    grace_s: float,
    on_line: Callable[[str], None],
    *,
    spare: bool = False,
    keep: Sequence[int] = (),
) -> int:
    """Run a command to its end and hand each line of its output to `on_line`; returns the exit status.

    Raises TimedOut after timeout_s. An exception from outside, such as a cancel, stops the command in order and goes on
    when the process group is empty.
    """
    deadline = time.monotonic() + timeout_s
    with guarded(command, cwd, output, grace_s, spare=spare, keep=keep) as guard, output.open("rb") as tail:
        lines = Lines(on_line)
        try:
            while guard.poll() is None:
                lines.feed(tail.read())
                if time.monotonic() > deadline:
                    raise TimedOut
                time.sleep(POLL_S)
        except BaseException:
            assert guard.stdin
            guard.stdin.close()
            deadline = time.monotonic() + grace_s + MARGIN_S
            while guard.poll() is None and time.monotonic() < deadline:  # last words, such as where it saved
                lines.feed(tail.read())
                time.sleep(POLL_S)
            raise
        finally:
            lines.feed(tail.read() + b"\n")
    return guard.returncode


class Lines:
    """Pieces of output in, whole lines out; a progress bar's carriage returns end a line too."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.on_line = on_line
        self.rest = b""

    def feed(self, piece: bytes) -> None:
        *whole, self.rest = (self.rest + piece).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            if text := line.decode("utf-8", errors="replace").rstrip():
                self.on_line(text)
