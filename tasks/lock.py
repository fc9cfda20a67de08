"""One flow at a time per project."""

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

POLL_S = 0.5
LOCK = Path(".work") / "flow.lock"
_held: dict[Path, int] = {}  # of this process, for a flow that runs other flows


class ProjectBusy(Exception):
    """Another flow works in this project; the message names it."""


@contextmanager
def project_lock(root: Path, wait_s: float, saving_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the project for this process; within it a second call enters at once.

    An OS lock on an open file: it ends with its last holder, and a stage's guard is one (see `held`), so that a new flow
    waits for a killed one's stage to finish saving. Raises ProjectBusy after wait_s seconds; where the owner is gone and
    only its stage is left, which ends by itself, after saving_s if that is more.
    """
    path = (root / LOCK).absolute()
    if path in _held:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _take(handle, path, wait_s, saving_s, say)
        owner = {"pid": os.getpid(), "command": " ".join(sys.argv), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(owner).encode(), 0)
        _held[path] = handle
        yield
    finally:
        _held.pop(path, None)
        os.close(handle)


def held(root: Path) -> list[int]:
    """File descriptors to hand to a child that shall hold the project as well."""
    handle = _held.get((root / LOCK).absolute())
    return [] if handle is None else [handle]


def _take(handle: int, path: Path, wait_s: float, saving_s: float, say: Callable[[str], None]) -> None:
    begun = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner, gone = _owner(path)
        limit = max(wait_s, saving_s) if gone else wait_s
        if time.monotonic() - begun >= limit:
            setting = "pipeline.grace_s" if gone else "pipeline.lock_wait_s"
            raise ProjectBusy(f"skipped: {owner}; waited {limit:.0f} s ({setting})")
        if not told:
            say(f"{owner}; waiting for up to {limit:.0f} s")
            told = True
        time.sleep(POLL_S)


def _owner(path: Path) -> tuple[str, bool]:
    """Who holds the project, in words, and whether that process is gone."""
    try:
        owner = json.loads(path.read_text())
    except json.JSONDecodeError:
        return "another flow works in this project", False
    who = f"process {owner['pid']} ({owner['command']}, since {owner['since']})"
    if psutil.pid_exists(owner["pid"]):
        return f"another flow works in this project: {who}", False
    return f"{who} is gone, but its stage is still saving", True
