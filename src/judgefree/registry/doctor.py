"""`judgefree doctor`: what is wrong with the project's state, each finding with the command that mends it."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, write_atomic
from judgefree.registry.place import database, locked, moved_from, repair

SPARE_BYTES = 1_000_000_000
SPACE_PER_WEIGHT = 14  # what a training run asks for, as a multiple of the weights it starts from
_NAMED = 5


@dataclass(frozen=True)
class Finding:
    """What is wrong, the command that mends it, and whether `doctor --fix` does so by itself."""

    problem: str
    command: str
    fixable: bool = False


def examine(root: Path) -> list[Finding]:
    """All findings, the gravest first; an empty list where all is well. Changes nothing."""
    checks = (_versions, _store, _locks, _disk, _halves)
    return [finding for check in checks for finding in check(root)]


def fix(root: Path) -> list[str]:
    """Mend what can be mended without losing anything: a moved store's paths, locks of dead processes. Returns what
    was done."""
    done = []
    with locked(root, "store"):
        if changed := repair(root):
            done.append(f"{database(root)}: {changed} stored paths now name this folder (as it was: mlflow.db.bak)")
    if dead := _dead_pids(root):
        path = root / ".dvc" / "tmp" / "rwlock"
        write_atomic(path, json.dumps(_without(json.loads(path.read_text(encoding="utf-8")), dead)))
        done.append(f"{path}: locks of the dead processes {_list(dead)} removed")
    return done


def _versions(root: Path) -> list[Finding]:
    path = root / "constraints.txt"
    pins = [line.split("==") for line in path.read_text().split()] if path.is_file() else []
    wrong = []
    for name, pinned in pins:
        try:
            installed = version(name).split("+")[0]  # a build of torch for CPU or CUDA names itself after the +
        except PackageNotFoundError:
            continue
        if installed != pinned:
            wrong.append(f"{name} {installed}, pinned {pinned}")
    if not wrong:
        return []
    command = "rm -r .venv && make env, or in your own environment: pip install -c constraints.txt -e ."
    return [Finding(f"installed versions differ from constraints.txt: {_list(wrong)}", command)]


def _store(root: Path) -> list[Finding]:
    path = database(root)
    if not path.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            state = connection.execute("PRAGMA quick_check").fetchone()[0]
        old = moved_from(root)
    except sqlite3.DatabaseError as error:
        state, old = str(error), None
    again = f"mv {path} {path}.broken && judgefree sync (versions and aliases of the registry are lost with it)"
    if state != "ok":
        return [Finding(f"{path} is damaged: {state}", again)]
    if old:
        return [
            Finding(
                f"this folder was moved or copied: {path} names {old} for its artifacts", "judgefree doctor --fix", True
            )
        ]
    from judgefree.registry.store import open_store  # imports MLflow, which takes seconds

    try:
        open_store(root)
    except JudgefreeError as error:
        return [Finding(error.problem, error.fix)]
    return []


def _locks(root: Path) -> list[Finding]:
    dead = _dead_pids(root)
    if not dead:
        return []
    return [Finding(f".dvc/tmp/rwlock names processes that are dead: {_list(dead)}", "judgefree doctor --fix", True)]


def _disk(root: Path) -> list[Finding]:
    weights = [sum(file.stat().st_size for file in folder.glob("*.safetensors"))
               for folder in (root / "models").glob("*")]  # fmt: skip
    wanted = max(SPARE_BYTES, SPACE_PER_WEIGHT * max(weights, default=0))
    free = shutil.disk_usage(root).free
    if free >= wanted:
        return []
    return [Finding(f"{free / 1e9:.1f} GB are free, a training run wants {wanted / 1e9:.1f} GB",
                    "dvc gc --workspace (drops cached results that params.yaml no longer names), or remove old folders "
                    "below .work/train")]  # fmt: skip


def _halves(root: Path) -> list[Finding]:
    """Traces of work that was cut off. What a command goes on with by itself is no finding."""
    found = []
    for parent in ("models", "reports/runs", "data"):
        for folder in sorted((root / parent).glob("*/")):
            if folder.name.startswith(".") and folder.name.endswith(".old"):
                found.append(Finding(f"{folder} was left when a result was replaced", f"rm -r {folder}"))
            elif not folder.name.startswith(".") and not (folder / MANIFEST).is_file():
                found.append(Finding(f"{folder} has no {MANIFEST}, so it is not whole", f"rm -r {folder} && dvc repro"))
    for folder in sorted((root / ".work").glob("*/*.partial")):
        found.append(Finding(f"{folder} is half-written work that nothing goes on with", f"rm -r {folder}"))
    keys = _finished_keys(root)
    open_work = [folder for folder in sorted((root / ".work" / "train").glob("*/")) if folder.name not in keys]
    if open_work:
        size = sum(file.stat().st_size for folder in open_work for file in folder.rglob("*") if file.is_file())
        names = [str(folder.relative_to(root)) for folder in open_work]
        found.append(Finding(f"{len(names)} training runs below .work are unfinished ({size / 1e6:.0f} MB): {_list(names)}",
                             "dvc repro goes on with those that params.yaml still names (judgefree runs); rm -r the "
                             "others"))  # fmt: skip
    return found


def _finished_keys(root: Path) -> set[str]:
    manifests = (json.loads(path.read_text(encoding="utf-8")) for path in (root / "models").glob(f"*/{MANIFEST}"))
    return {str(manifest.get("key")) for manifest in manifests}


def _dead_pids(root: Path) -> list[int]:
    path = root / ".dvc" / "tmp" / "rwlock"
    if not path.is_file() or not (text := path.read_text(encoding="utf-8").strip()):
        return []
    return sorted(pid for pid in _pids(json.loads(text)) if not _alive(pid))


def _pids(value: object) -> set[int]:
    """All process ids in DVC's rwlock: {path: {"write": {"pid", "cmd"}, "read": [{"pid", "cmd"}, ...]}}."""
    match value:
        case dict():
            own = {value["pid"]} if isinstance(value.get("pid"), int) else set()
            return own.union(*(_pids(inner) for inner in value.values()))
        case list():
            return set().union(*(_pids(inner) for inner in value))
    return set()


def _without(locks: dict, dead: list[int]) -> dict:  # type: ignore[type-arg]
    kept = {}
    for path, lock in locks.items():
        readers = [reader for reader in lock.get("read", []) if reader["pid"] not in dead]
        writer = {"write": lock["write"]} if lock.get("write") and lock["write"]["pid"] not in dead else {}
        if readers or writer:
            kept[path] = {**writer, **({"read": readers} if readers else {})}
    return kept


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return True
    return True


def _list(things: list) -> str:  # type: ignore[type-arg]
    named = ", ".join(str(thing) for thing in things[:_NAMED])
    return named + (f" and {len(things) - _NAMED} more" if len(things) > _NAMED else "")
