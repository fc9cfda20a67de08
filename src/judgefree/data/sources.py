"""Where raw rows come from: a folder named in the parameters, a local mirror, or the hub at a pinned revision.

Files are read by us, line by line and value by value, so that a row that cannot be read becomes one quarantined row and
not a stage that crashes; the hub's client only fetches them.
"""

import gzip
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from judgefree.errors import JudgefreeError, MayPass, first_line
from judgefree.files import sha256_file
from judgefree.pinned import is_folder

MIRROR = "JUDGEFREE_MIRROR"


@dataclass(frozen=True)
class RawRow:
    """A row as it was read: `place` counts the rows of its split from 0, unreadable ones included. `fields` is None
    where the row could not be read, and `fault` says why; `text` is its JSON or the unreadable line."""

    place: int
    text: str
    fields: dict[str, Any] | None
    fault: str | None = None


@dataclass(frozen=True)
class Source:
    """The raw rows of one split, a label for the column `source`, and what the manifest says of their origin."""

    split: str
    label: str
    rows: list[RawRow]
    facts: dict[str, Any]


def read(
    split: str, label: str, dataset: tuple[str, str | None], layouts: Sequence[str], mirror: Sequence[str], root: Path,
    first: int | None = None,
) -> Source:  # fmt: skip
    """Read the files of one split; the first `first` rows where given.

    dataset: hub id and commit; an id that starts with `/`, `./` or `../` is a folder (relative to `root`) instead.
    layouts: patterns below the hub repository or that folder; the first that matches any file is taken.
    mirror: the same below the folder that JUDGEFREE_MIRROR names, which goes before the hub.
    Raises JudgefreeError when the place or the files are missing, unreadable, or the hub cannot be reached.
    """
    identity, revision = dataset
    if is_folder(identity):
        kind, folder, patterns = "folder", root / identity, layouts
        if not folder.is_dir():
            raise JudgefreeError(f"the data folder {folder} does not exist", "correct the id in params.yaml")
    elif os.environ.get(MIRROR):
        kind, folder, patterns = "mirror", mirror_folder(), mirror
    else:
        kind, folder, patterns = "hub", download(identity, revision, layouts, mirror), layouts
    files, rows = _read_files(folder, patterns, first)
    facts: dict[str, Any] = {"kind": kind, "id": identity, "patterns": list(patterns), "files": files}
    if kind == "hub":
        facts["revision"] = revision
    if first is not None:
        facts["first_rows"] = first
    return Source(split, label, rows, facts)


def read_mirror(split: str, label: str, patterns: Sequence[str]) -> Source:
    """Read a split that exists in the mirror only. Raises JudgefreeError when there is no mirror or no such file."""
    files, rows = _read_files(required_mirror(f"the data set {label}", patterns), patterns)
    return Source(split, label, rows, {"kind": "mirror", "patterns": list(patterns), "files": files})


def required_mirror(what: str, patterns: Sequence[str], otherwise: str = "") -> Path:
    """The mirror's folder, for what is read from nowhere else. otherwise: what else could be done where there is none, which
    is a JudgefreeError."""
    if not os.environ.get(MIRROR):
        raise JudgefreeError(
            f"{what} is read from a mirror and {MIRROR} is not set",
            f"set {MIRROR} to a folder that holds {' or '.join(patterns)}{otherwise}",
        )
    return mirror_folder()


def mirror_folder() -> Path:
    """The folder that JUDGEFREE_MIRROR, which is set, names. Raises JudgefreeError when it does not exist."""
    folder = Path(os.environ[MIRROR])
    if not folder.is_dir():
        raise JudgefreeError(
            f"{MIRROR}={folder} is not a folder", f"correct {MIRROR}, or unset it to read from the hub"
        )
    return folder


def download(identity: str, revision: str | None, layouts: Sequence[str], mirror: Sequence[str]) -> Path:
    """Folder with the hub repository's files that match `layouts`, at a commit; `mirror` says in the message what a mirror
    would need to hold. Raises MayPass when the hub does not answer, else JudgefreeError."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HFValidationError,
        LocalEntryNotFoundError,
        RevisionResolutionError,
    )
    from huggingface_hub.utils import httpx  # the client's own copy, whose name changes with its versions

    try:
        return Path(snapshot_download(identity, repo_type="dataset", revision=revision, allow_patterns=list(layouts)))
    except (OSError, EntryNotFoundError, HFValidationError, RevisionResolutionError, httpx.TransportError) as error:
        silent = isinstance(error, (LocalEntryNotFoundError, httpx.TransportError, TimeoutError, ConnectionError))
        raise (MayPass if silent else JudgefreeError)(
            f"cannot get the data set {identity} at revision {revision} from the hub: {first_line(error)}",
            f"without the hub, set {MIRROR} to a folder that holds {' or '.join(mirror)}; else check the network, the "
            "id and the revision",
        ) from error


def matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The files that are read: of the first pattern that matches any."""
    for pattern in patterns:
        if paths := sorted(path for path in folder.glob(pattern) if path.is_file()):
            return paths
    return []


def _read_files(folder: Path, patterns: Sequence[str], first: int | None = None) -> tuple[dict[str, str], list[RawRow]]:
    """sha256 by relative name, and the rows, of the files that are read; none is opened after the first `first` rows."""
    paths = matching(folder, patterns)
    if not paths:
        raise JudgefreeError(f"{folder} holds no file {' or '.join(patterns)}", "add the file, or correct the folder")
    rows: list[RawRow] = []
    files = {}
    for path in paths:
        left = None if first is None else first - len(rows)
        if left == 0:
            break
        reader = read_parquet if path.suffix == ".parquet" else read_jsonl
        rows += reader(path, len(rows), left)
        files[path.relative_to(folder).as_posix()] = sha256_file(path)
    return files, rows


def read_jsonl(path: Path, first_place: int = 0, count: int | None = None) -> list[RawRow]:
    """One row per line, of a file that gzip may have packed. Only a line feed ends a line: U+2028 and its like occur inside
    real questions.
    """
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise JudgefreeError(f"cannot read {path}: {error}", "make the file readable, or get it again") from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [_from_line(place, line) for place, line in enumerate(lines[:count], first_place)]


def _from_line(place: int, line: bytes) -> RawRow:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        kept = line.decode("utf-8", errors="backslashreplace")
        return RawRow(place, kept, None, f"not UTF-8: {error.reason} at byte {error.start}")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        return RawRow(place, text, None, f"malformed line: {error}")
    if not isinstance(fields, dict):
        return RawRow(place, text, None, f"malformed line: holds no object but {type(fields).__name__}")
    return RawRow(place, text, fields)


def read_parquet(path: Path, first_place: int = 0, count: int | None = None) -> list[RawRow]:
    """One row per record; text that is not UTF-8 spoils its own row only."""
    try:
        table = pq.read_table(path).slice(0, count)
    except (OSError, pa.ArrowInvalid) as error:
        raise JudgefreeError(f"{path} is not readable as parquet: {error}", "get the file again") from error
    texts = [field.name for field in table.schema if field.type in (pa.string(), pa.large_string())]
    for name in texts:  # Arrow takes text on trust and fails late; bytes are decoded here
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.large_binary()))
    return [_from_record(place, record, texts) for place, record in enumerate(table.to_pylist(), first_place)]


def _from_record(place: int, record: dict[str, Any], texts: list[str]) -> RawRow:
    fields = dict(record)
    fault = None
    for name in texts:
        if fields[name] is not None:
            try:
                fields[name] = fields[name].decode("utf-8")
            except UnicodeDecodeError as error:
                fields[name] = fields[name].decode("utf-8", errors="backslashreplace")
                fault = f"not UTF-8: {error.reason} in {name}"
    text = json.dumps(fields, sort_keys=True, default=str)
    return RawRow(place, text, None if fault else fields, fault)
