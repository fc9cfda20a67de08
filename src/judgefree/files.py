"""Files that appear whole or not at all, and the hashes that name their content."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from judgefree.errors import JudgefreeError

MANIFEST = "manifest.json"
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def sha256_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex digest of a file's content, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def canonical_json(value: Any) -> str:
    """JSON with one spelling per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def pretty_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write through a neighbour and rename, so that no reader sees half a file. Raises JudgefreeError when it cannot."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise JudgefreeError(
            f"cannot write {path}: {error.strerror or error}",
            "free disk space or make the folder writable, then repeat",
        ) from error


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Tell what libraries raise when they cannot write below `folder` as a JudgefreeError; all else passes."""
    try:
        yield
    except Exception as error:  # tokenizers raises no narrower one
        if not _cannot_write(error):
            raise
        raise JudgefreeError(
            f"cannot write below {folder}: {error}", "free disk space or make the folder writable, then repeat"
        ) from error


def _cannot_write(error: Exception) -> bool:
    """By the number that the system gave, for Rust's libraries say it in their text alone, and torch does not say it."""
    if isinstance(error, OSError):
        return error.errno in UNWRITABLE
    text = str(error)
    number = re.search(r"\(os error (\d+)\)", text)
    if number and int(number[1]) in UNWRITABLE or text.startswith("Error while serializing: I/O error"):
        return True
    return isinstance(error, RuntimeError) and ("PytorchStreamWriter" in text or "unexpected pos" in text)


def require_space(folder: Path, needed: int) -> None:
    """Raises JudgefreeError when the disk that `folder` is (or will be) on has fewer than `needed` free bytes."""
    existing = next(parent for parent in [folder.absolute(), *folder.absolute().parents] if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise JudgefreeError(
            f"{folder} wants {needed / 1e9:.1f} GB of free space, the disk has {free / 1e9:.1f} GB",
            "free disk space, or remove old runs below .work/",
        )


def read_json(path: Path) -> Any:
    """Parsed content of a JSON file. Raises JudgefreeError naming the file when it is missing or malformed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise JudgefreeError(f"{path} is missing", "run `dvc repro`, or `dvc pull` if it was made elsewhere") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise JudgefreeError(f"{path} is not valid JSON: {error}", "remove it and run `dvc repro`") from error


def listing(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and sha256 of every file below a folder but its manifest, by relative path."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / MANIFEST)
    return {str(p.relative_to(folder)): {"size": p.stat().st_size, "sha256": sha256_file(p)} for p in files}


def seal(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest, last: `facts` and the listing of all other files."""
    write_atomic(folder / MANIFEST, pretty_json({**facts, "files": listing(folder)}))


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of a sealed folder after checking every file against it.

    Raises JudgefreeError naming the first file that is missing, extra in no case, or of other content.
    """
    manifest = read_json(folder / MANIFEST)
    for name, facts in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise JudgefreeError(f"{path} is missing though {folder / MANIFEST} names it", _RESTORE)
        if path.stat().st_size != facts["size"] or sha256_file(path) != facts["sha256"]:
            raise JudgefreeError(f"{path} is not what was written (sha256 differs from {MANIFEST})", _RESTORE)
    return manifest


_RESTORE = "restore it with `dvc checkout` or `dvc pull`, or remove the folder and run `dvc repro`"


def publish(finished: Path, target: Path) -> None:
    """Move a finished folder into place in one rename; what stood there before goes."""
    old = target.with_name(f".{target.name}.old")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        finished.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise JudgefreeError(
            f"cannot move {finished} to {target}: {error.strerror or error}", "make the folder writable, then repeat"
        ) from error


def code_hash(paths: Iterable[Path]) -> str:
    """One hash over Python sources: files, and all .py files below folders, by relative name and content."""
    digest = hashlib.sha256()
    for root in sorted(paths):
        for file in [root] if root.is_file() else sorted(root.rglob("*.py")):
            digest.update(f"{root.name}/{file.relative_to(root) if file != root else ''}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def key_of(*parts: Any) -> str:
    """The key of a stage: sha256 over the canonical JSON of what it is made from."""
    return sha256_bytes(canonical_json(list(parts)).encode())
