"""How a child process is started, and how it is tied to the one that started it."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, popen_spawn_posix, spawn
from typing import Any

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the system kill this process when `parent`, the process that started it, ends in whatever way (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the system was asked
        os._exit(1)


class _Popen(popen_spawn_posix.Popen):
    def _launch(self, process_obj: Any) -> None:
        with _without_main():
            super()._launch(process_obj)  # type: ignore[misc]  # the type stubs do not know it


class _Process(context.SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> _Popen:
        return _Popen(process_obj)


class Spawn(context.SpawnContext):
    """Python's spawn context for pools, but that the children do not import the caller's main module."""

    Process = _Process


_launching = threading.Lock()


@contextmanager
def _without_main() -> Iterator[None]:
    """Spawned children import the parent's main module first; a training program would cost each worker seconds and
    hundreds of megabytes. For spawns of this thread, leave it out."""
    original, thread = spawn.get_preparation_data, threading.get_ident()

    def preparation(name: str) -> dict[str, Any]:
        data = original(name)
        if threading.get_ident() == thread:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    with _launching:
        spawn.get_preparation_data = preparation
        try:
            yield
        finally:
            spawn.get_preparation_data = original
