"""Whole parameter sets in profiles/, and making params.yaml from one without losing what a person wrote."""

import filecmp
import re
import shutil
import textwrap
from itertools import takewhile
from pathlib import Path

from judgefree.errors import JudgefreeError
from judgefree.places import require_clone


def available(root: Path) -> list[Path]:
    """Raises JudgefreeError where `root` is no clone, which has some."""
    require_clone(root)
    return sorted((root / "profiles").glob("*.yaml"))


def list_profiles(root: Path) -> str:
    """Each profile's name and the first sentence of the comment that its file begins with, wrapped for the terminal."""
    paths = available(root)
    indent = max((len(path.stem) for path in paths), default=0) + 2
    width = max(shutil.get_terminal_size().columns, indent + 40)
    return "\n".join(
        textwrap.fill(path.stem.ljust(indent) + _first_sentence(path), width,
                      subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
        for path in paths
    )  # fmt: skip


def _first_sentence(path: Path) -> str:
    comment = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    return re.split(r"(?<=\.)\s", " ".join(line.lstrip("# ") for line in comment), maxsplit=1)[0]


def write_profile(root: Path, name: str, force: bool) -> str:
    """Copy profiles/<name>.yaml to params.yaml. Raises JudgefreeError for an unknown profile, and for a params.yaml
    that equals no profile unless `force`, which keeps it as params.yaml.bak (.bak1, ... if that is taken)."""
    source = root / "profiles" / f"{name}.yaml"
    known = available(root)
    if source not in known:
        raise JudgefreeError(f"no profile {name!r}", f"known: {', '.join(path.stem for path in known)}")
    target = root / "params.yaml"
    note = ""
    if target.exists() and not any(filecmp.cmp(target, path, shallow=False) for path in known):
        if not force:
            raise JudgefreeError("params.yaml was edited by hand", "repeat with --force; a backup is kept")
        backup = next(p for i in range(10**6) if not (p := root / f"params.yaml.bak{i or ''}").exists())
        shutil.copy2(target, backup)
        note = f"; the edited one is kept as {backup.name}"
    shutil.copyfile(source, target)
    return f"params.yaml is now profile {name}{note}. Next: judgefree check, then dvc repro"
