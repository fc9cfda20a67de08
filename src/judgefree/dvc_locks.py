"""What dead processes left in DVC's rwlock, `.dvc/tmp/rwlock`: {"write": {path: info}, "read": {path: [info, ...]}} with
an info of pid and cmd. DVC's lock file proper needs no care: the system frees it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import zc.lockfile

from judgefree.files import write_atomic


def stale_dvc_locks(root: Path) -> list[str]:
    """What `clear_stale_dvc_locks` would remove, a sentence for each; changes nothing."""
    return _look(root, lambda path, living: None)


def clear_stale_dvc_locks(root: Path, say: Callable[[str], None]) -> None:
    """Remove the locks of dead processes, with a word for each; living ones keep theirs."""

    def clear(path: Path, living: dict[str, Any] | None) -> None:
        if living is None:
            path.unlink()
        else:
            write_atomic(path, json.dumps(living))

    for found in _look(root, clear):
        say(f"cleared {found}")


def _look(root: Path, act: Callable[[Path, dict[str, Any] | None], None]) -> list[str]:
    """What is stale. Where anything is, `act` gets the file and what stays of it, None where the file is broken."""
    path = root / ".dvc" / "tmp" / "rwlock"
    if not path.is_file():
        return []
    try:
        edit = zc.lockfile.LockFile(str(path.with_name("rwlock.lock")))  # as DVC does before it reads or writes
    except zc.lockfile.LockError:
        return []  # a living DVC edits it at this moment
    try:
        found, living = _stale(path)
        if found:
            act(path, living)
        return found
    finally:
        edit.close()


def _stale(path: Path) -> tuple[list[str], dict[str, Any] | None]:
    written = path.stat().st_mtime
    try:
        lock = json.loads(path.read_text(encoding="utf-8"))
        write, read = lock.pop("write", {}), lock.pop("read", {})
        if lock:
            raise KeyError(*lock)
        infos = [*write.values(), *(info for infos in read.values() for info in infos)]
        dead = {info["pid"]: info["cmd"] for info in infos if not _may_live(info["pid"], written)}
    except (ValueError, AttributeError, KeyError, TypeError):  # no JSON, or not of DVC's form: DVC refuses it as well
        return [f"{path}, which is not readable"], None
    readers = {name: [info for info in infos if info["pid"] not in dead] for name, infos in read.items()}
    living = {
        "write": {name: info for name, info in write.items() if info["pid"] not in dead},
        "read": {name: infos for name, infos in readers.items() if infos},
    }
    return [f"the DVC lock that process {pid} ({cmd}) left when it died" for pid, cmd in sorted(dead.items())], living


def _may_live(pid: int, written: float) -> bool:
    """Whether a process of that id exists and is old enough to have written the entry: ids are used again."""
    try:
        return psutil.Process(pid).create_time() <= written
    except psutil.NoSuchProcess:
        return False
