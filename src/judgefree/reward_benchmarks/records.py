"""Rows of a benchmark's files as they are, each with its file and its place in it; a row that cannot be read is an error,
since a benchmark without it is another benchmark."""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgefree.config_rewards import Place
from judgefree.data.sources import MIRROR, download, matching, mirror_folder, read_jsonl, read_parquet, required_mirror
from judgefree.errors import JudgefreeError
from judgefree.files import sha256_file, verify
from judgefree.pinned import is_folder
from judgefree.reward_model.pairs import PAIRS


@dataclass(frozen=True)
class Record:
    """`place` counts the rows of `file` from 0."""

    file: str
    place: int
    fields: dict[str, Any]

    def fault(self, reason: str) -> JudgefreeError:
        return JudgefreeError(
            f"{self.file}: row {self.place} (the first is 0): {reason}",
            "get the file again; a benchmark is scored whole or not at all",
        )

    def text(self, name: str) -> str:
        """Raises JudgefreeError when the field is missing or no text."""
        value = self._get(name)
        if not isinstance(value, str):
            raise self.fault(f"{name} is {type(value).__name__}, not text")
        return value

    def identity(self, name: str) -> str:
        """Text or a whole number, as text."""
        value = self._get(name)
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            raise self.fault(f"{name} is {value!r}, neither text nor a whole number")
        return str(value)

    def texts(self, name: str, count: int | None = None) -> tuple[str, ...]:
        """A list of texts, not empty; of `count` of them where given."""
        value = self._get(name)
        if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
            raise self.fault(f"{name} is no list of texts")
        if count is not None and len(value) != count:
            raise self.fault(f"{name} has {len(value)} texts, not {count}")
        return tuple(value)

    def messages(self, name: str) -> tuple[dict[str, str], ...]:
        """A prompt: a text that the user says, or a list of messages with role and content."""
        value = self._get(name)
        if isinstance(value, str):
            return ({"role": "user", "content": value},)
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            turns = tuple({"role": one.get("role"), "content": one.get("content")} for one in value)
            if all(isinstance(text, str) for turn in turns for text in turn.values()):
                return turns
        raise self.fault(f"{name} is neither text nor a list of messages")

    def _get(self, name: str) -> Any:
        if self.fields.get(name) is None:
            raise self.fault(f"{name} is missing")
        return self.fields[name]


def read_records(
    name: str, place: Place, layouts: Sequence[str], mirror: Sequence[str], root: Path
) -> tuple[list[Record], dict[str, Any]]:
    """All rows of a set: of the files that the first matching pattern names; and what a manifest says of their origin.

    layouts: patterns below the hub repository, a folder of its layout, or a data set of this project; mirror: below the
    folder of JUDGEFREE_MIRROR.
    Raises JudgefreeError naming the missing place, or the file and row that cannot be read.
    """
    if place.dataset is not None:
        kind, folder, patterns = "data set", _with_pairs(root / "data" / place.dataset), layouts
    elif place.id is not None and is_folder(place.id):
        kind, folder, patterns = "folder", root / place.id, layouts
        if not folder.is_dir():
            raise JudgefreeError(f"the folder {folder} does not exist", "correct the id in params.yaml")
    elif place.id is None:
        other = f", give reward_benchmarks.sets.{name} an id and a revision of the hub, or leave it out"
        kind, folder, patterns = "mirror", required_mirror(name, mirror, other), mirror
    elif os.environ.get(MIRROR):
        kind, folder, patterns = "mirror", mirror_folder(), mirror
    else:
        kind, folder, patterns = "hub", download(place.id, place.revision, layouts, mirror), layouts
    paths = matching(folder, patterns)
    if not paths:
        raise JudgefreeError(
            f"{folder} holds no file {' or '.join(patterns)}",
            f"add it, correct the folder or {MIRROR}, or leave this set out of reward_benchmarks.sets",
        )
    files = {path.relative_to(folder).as_posix(): path for path in paths}
    facts = {"kind": kind, **place.model_dump(exclude_none=True),
             "files": {name: sha256_file(path) for name, path in files.items()}}  # fmt: skip
    return [record for name, path in files.items() for record in _records(name, path)], facts


def _with_pairs(folder: Path) -> Path:
    """The folder of a data set of this project, which must be whole and have pairs."""
    fix = f"run `dvc repro prepare@{folder.name}`"
    if not folder.is_dir():
        raise JudgefreeError(f"the data set {folder} is missing", fix)
    if PAIRS not in verify(folder)["files"]:
        raise JudgefreeError(f"the data set {folder} was made without {PAIRS}", fix)
    return folder


def _records(name: str, path: Path) -> list[Record]:
    match path.suffix:
        case ".json":
            return _from_json(name, path)
        case ".csv":
            return _from_csv(name, path)
        case suffix:
            rows = read_parquet(path) if suffix == ".parquet" else read_jsonl(path)
    for row in rows:
        if row.fields is None:
            raise Record(name, row.place, {}).fault(str(row.fault))
    return [Record(name, row.place, row.fields) for row in rows if row.fields is not None]


def _from_json(name: str, path: Path) -> list[Record]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of UTF-8 too
        raise JudgefreeError(f"{name} is not valid JSON: {error}", "get the file again") from error
    if not isinstance(rows, list):
        raise JudgefreeError(f"{name} holds no list of rows", "get the file again")
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise Record(name, place, {}).fault(f"is {type(row).__name__}, not an object")
    return [Record(name, place, row) for place, row in enumerate(rows)]


def _from_csv(name: str, path: Path) -> list[Record]:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise JudgefreeError(f"{name} is not readable as CSV in UTF-8: {error}", "get the file again") from error
    return [Record(name, place, row) for place, row in enumerate(rows)]
