import ast
from pathlib import Path

import pytest

import judgefree
from judgefree.data.heldout import load_test
from judgefree.data.splits import load_split
from judgefree.data.tables import SCHEMA, write_parquet
from judgefree.episodes import Example
from judgefree.errors import JudgefreeError
from judgefree.files import seal


def row(number: int) -> dict:
    return {
        **dict.fromkeys(SCHEMA.names),
        "id": f"r{number}", "question": f"Q{number}", "answer": str(number), "demonstration": f"D{number}",
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "mine"
    write_parquet(folder / "train.parquet", [row(n) for n in range(4)], SCHEMA)
    write_parquet(folder / "test.parquet", [row(n) for n in range(4, 6)], SCHEMA)
    seal(folder, {})
    return folder


def test_rows_come_in_order_and_limited(folder: Path) -> None:
    assert load_split(folder, "train", 2) == [Example("r0", "Q0", "0", "D0"), Example("r1", "Q1", "1", "D1")]
    assert [example.id for example in load_split(folder, "train")] == ["r0", "r1", "r2", "r3"]
    assert [example.id for example in load_test(folder, 9)] == ["r4", "r5"]
    assert load_test(folder, 0) == []


@pytest.mark.parametrize("split", ["test", "quarantine", "../mine/test"])
def test_training_cannot_open_another_split(folder: Path, split: str) -> None:
    with pytest.raises(JudgefreeError, match="may read train and validation only"):
        load_split(folder, split)  # type: ignore[arg-type]


def test_what_is_missing_or_altered_is_named_with_a_fix(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(JudgefreeError, match=r"none is missing(.|\n)*dvc repro"):
        load_split(tmp_path / "none", "train")
    with pytest.raises(JudgefreeError, match=r"has no validation split \(it has test, train\)"):
        load_split(folder, "validation")
    content = bytearray((folder / "train.parquet").read_bytes())
    content[100] ^= 1
    (folder / "train.parquet").write_bytes(content)
    with pytest.raises(JudgefreeError, match=r"train\.parquet is not what was written(.|\n)*dvc checkout"):
        load_split(folder, "train")
    assert len(load_test(folder)) == 2  # the other split stands on its own
    (folder / "train.parquet").unlink()
    with pytest.raises(JudgefreeError, match=r"train\.parquet is missing"):
        load_split(folder, "train")
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(JudgefreeError, match=r"manifest\.json lists no files"):
        load_split(folder, "train")
    (folder / "manifest.json").unlink()
    with pytest.raises(JudgefreeError, match=r"manifest\.json is missing"):
        load_split(folder, "train")


def imports_of(path: Path) -> set[str]:
    """Every module name that a file imports anywhere, `from a import b` as both `a` and `a.b`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_training_code_reaches_no_reader_of_the_test_split() -> None:
    package = Path(judgefree.__file__).parent
    files = [file for part in ("training", "methods", "sampling") for file in sorted((package / part).rglob("*.py"))]
    closed = {"judgefree.data.heldout", "judgefree.data.tables"}
    seen: set[Path] = set()
    while files:
        file = files.pop()
        if file in seen or file == package / "data" / "splits.py":  # the one door
            continue
        seen.add(file)
        names = imports_of(file)
        assert not names & closed, f"{file} imports {names & closed}"
        for name in names:
            target = package.parent / Path(*name.split("."))
            files += [path for path in (target.with_suffix(".py"), target / "__init__.py") if path.is_file()]
    assert package / "episodes.py" in seen  # the walk follows imports
