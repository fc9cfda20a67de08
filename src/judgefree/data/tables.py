"""Parquet files with the same bytes whenever they hold the same rows, and the checked way to read one split."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from judgefree.episodes import Example
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, read_json, sha256_file, write_atomic

COLUMNS = ("id", "question", "answer", "solution", "demonstration", "source", "level", "subject")
SCHEMA = pa.schema([(name, pa.int64() if name == "level" else pa.string()) for name in COLUMNS])
LENGTHS = ("question_tokens", "answer_tokens", "cut_tokens")  # whitespace tokens; of data sets of texts only
TEXT_SCHEMA = pa.schema([*SCHEMA, *((name, pa.int64()) for name in LENGTHS)])


def write_parquet(path: Path, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> None:
    """Write rows in their order. Nothing but rows, schema and the version of pyarrow decides the bytes.

    Raises JudgefreeError when the file cannot be written.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink, compression="zstd", version="2.6")
    write_atomic(path, sink.getvalue().to_pybytes())


def read_examples(folder: Path, split: str, limit: int | None) -> list[Example]:
    """The first `limit` rows (all where None) of a prepared split, after checking the file against the manifest.

    Only this split is opened. Raises JudgefreeError when the folder, the split or the file is missing, or the content
    is not what was written.
    """
    if not folder.is_dir():
        raise JudgefreeError(
            f"the data set {folder} is missing", "run `dvc repro`, or `dvc pull` if it was made elsewhere"
        )
    manifest, path = read_json(folder / MANIFEST), folder / f"{split}.parquet"
    try:
        expected = {name: facts["sha256"] for name, facts in manifest["files"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise JudgefreeError(f"{folder / MANIFEST} lists no files", f"remove {folder} and run `dvc repro`") from error
    if path.name not in expected:
        there = ", ".join(name.removesuffix(".parquet") for name in expected if name in _SPLIT_FILES)
        raise JudgefreeError(f"the data set {folder} has no {split} split (it has {there})", "use another data set")
    if not path.is_file():
        raise JudgefreeError(f"{path} is missing though {MANIFEST} names it", _RESTORE)
    if sha256_file(path) != expected[path.name]:
        raise JudgefreeError(f"{path} is not what was written (sha256 differs from {MANIFEST})", _RESTORE)
    table = pq.read_table(path, columns=["id", "question", "answer", "demonstration"])
    return [Example(**row) for row in table.slice(0, limit).to_pylist()]


_SPLIT_FILES = ("train.parquet", "validation.parquet", "test.parquet")
_RESTORE = "restore it with `dvc checkout` or `dvc pull`, or remove the folder and run `dvc repro`"
