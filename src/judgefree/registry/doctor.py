"""`judgefree doctor`: what is wrong with the project's state, each finding with the command that mends it."""

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from judgefree.config import Run, Training
from judgefree.dvc_locks import clear_stale_dvc_locks, stale_dvc_locks
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, read_json
from judgefree.methods import models_of
from judgefree.registry.place import database, locked, moved_from, repair
from judgefree.training.space import space_held, space_of

SPARE_BYTES = 1_000_000_000
_NAMED = 5


@dataclass(frozen=True)
class Finding:
    """What is wrong, the command that mends it, and whether `doctor --fix` does so by itself. Where `fault` is False
    nothing is wrong, and the command may be left alone."""

    problem: str
    command: str
    fixable: bool = False
    fault: bool = True


def examine(root: Path) -> list[Finding]:
    """All findings, the gravest first; an empty list where all is well. Changes nothing."""
    checks = (_versions, _store, _merge, _locks, _disk, _halves, _work)
    return [finding for check in checks for finding in check(root)]


def fix(root: Path) -> list[str]:
    """Mend what can be mended without losing anything: a moved store's paths, locks of dead processes. Returns what
    was done."""
    done: list[str] = []
    with locked(root, "store"):
        if changed := repair(root):
            done.append(f"{database(root)}: {changed} stored paths now name this folder (as it was: mlflow.db.bak)")
    clear_stale_dvc_locks(root, done.append)
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


def _merge(root: Path) -> list[Finding]:
    path = root / "dvc.lock"
    if not path.is_file() or not any(line.startswith("<<<<<<< ") for line in path.read_text("utf-8").splitlines()):
        return []
    command = (
        "git checkout --ours dvc.lock && dvc repro (what the other side changed is made again or comes from the cache)"
    )
    return [Finding(f"{path} holds the marks of a merge conflict, and DVC cannot read it", command)]


def _locks(root: Path) -> list[Finding]:
    stale = stale_dvc_locks(root)
    return [Finding(f"in the way of DVC: {_list(stale)}", "judgefree doctor --fix", True)] if stale else []


def _disk(root: Path) -> list[Finding]:
    free = shutil.disk_usage(root).free
    needs = _space_of_runs(root)
    if free < max(needs.values(), default=0):  # an unfinished run has some of it already
        from judgefree.registry.states import run_keys  # imports torch, which takes seconds

        keys = run_keys(root)
        needs = {
            name: need - space_held(root / ".work" / "train" / str(keys.get(name))) for name, need in needs.items()
        }
    wanted = max(SPARE_BYTES, *needs.values()) if needs else SPARE_BYTES
    if free >= wanted:
        return []
    return [Finding(f"{free / 1e9:.1f} GB are free, a training run wants {wanted / 1e9:.1f} GB",
                    "dvc gc --workspace (drops cached results that params.yaml no longer names), or remove old folders "
                    "below .work/train and .work/reward_model")]  # fmt: skip


def _space_of_runs(root: Path) -> dict[str, int]:
    """What each resolved run takes whose model is not there; without those whose start model is not there either."""
    needs = {}
    for path in (root / "resolved" / "train").glob("*.json"):
        resolved = read_json(path)
        start = root / "models" / resolved["run"]["start_from"]
        if start.is_dir() and not (root / "models" / path.stem / MANIFEST).is_file():
            beside = models_of(Run.model_validate({**resolved["run"], "suites": []}), root)
            training = Training.model_validate(resolved["training"])
            needs[path.stem] = space_of(start, training, list(beside.values()))
    return needs


def _halves(root: Path) -> list[Finding]:
    """Traces of work that was cut off. What a command goes on with by itself is no finding."""
    found = []
    reports = ("runs", "reward-bench", "alpaca-eval", "arena-hard", "pairwise")
    for parent in ("models", *(f"reports/{kind}" for kind in reports), "data"):
        for folder in sorted((root / parent).glob("*/")):
            if folder.name.startswith(".") and folder.name.endswith(".old"):
                found.append(Finding(f"{folder} was left when a result was replaced", f"rm -r {folder}"))
            elif not folder.name.startswith(".") and not (folder / MANIFEST).is_file():
                found.append(Finding(f"{folder} has no {MANIFEST}, so it is not whole", f"rm -r {folder} && dvc repro"))
    for folder in sorted((root / ".work").glob("*/*.partial")):
        found.append(Finding(f"{folder} is half-written work that nothing goes on with", f"rm -r {folder}"))
    return found


def _work(root: Path) -> list[Finding]:
    """Folders of .work/train and .work/reward_model by what they are still good for. Those that are good for nothing are no
    fault."""
    from judgefree.registry.states import reward_model_keys, run_keys

    try:
        return [*_work_of(root, "train", run_keys), *_work_of(root, "reward_model", reward_model_keys)]
    except JudgefreeError as error:
        return [Finding(error.problem, error.fix)]


def _work_of(root: Path, kind: str, keys_of: Callable[[Path], Mapping[str, str | JudgefreeError]]) -> list[Finding]:
    folders = sorted((root / ".work" / kind).glob("*/"))
    models = [read_json(path)["key"] for path in (root / "models").glob(f"[!.]*/{MANIFEST}")]
    finished = [folder for folder in folders if folder.name in models]
    others = [folder for folder in folders if folder.name not in models]
    keys = list(keys_of(root).values()) if others else []  # imports torch, which takes seconds
    unfinished = [folder for folder in others if folder.name in keys]
    # Where a key cannot be told, no folder can be said to be nobody's.
    known = all(isinstance(key, str) for key in keys)
    outdated = [folder for folder in others if known and folder.name not in keys]
    found = []
    if unfinished:
        found.append(Finding(f"unfinished training: {_sized(unfinished)}", "dvc repro (goes on with it)"))
    for why, useless in (("models/ has their results", finished), ("settings, data or code have changed", outdated)):
        if useless:
            command = f"rm -r {' '.join(map(str, useless))}"
            found.append(Finding(f"space that can be freed, since {why}: {_sized(useless)}", command, fault=False))
    return found


def _sized(folders: list[Path]) -> str:
    size = sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
    return f"{size / 1e6:.0f} MB in {_list(folders)}"


def _list(things: list) -> str:  # type: ignore[type-arg]
    named = ", ".join(str(thing) for thing in things[:_NAMED])
    return named + (f" and {len(things) - _NAMED} more" if len(things) > _NAMED else "")
