"""Files that appear whole or not at all, and folders that know when they were changed."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from judgefree.errors import JudgefreeError
from judgefree.files import (
    canonical_json,
    code_hash,
    key_of,
    publish,
    read_json,
    require_space,
    seal,
    sha256_bytes,
    verify,
    write_atomic,
    writing,
)


def test_sha256_by_the_book() -> None:
    assert sha256_bytes(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def sealed(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    seal(folder, {"kind": "test"})
    return folder


def test_seal_and_verify(tmp_path: Path) -> None:
    manifest = verify(sealed(tmp_path / "x"))
    assert manifest["kind"] == "test" and set(manifest["files"]) == {"a.txt", "sub/b.txt"}


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "no manifest", "broken manifest"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    folder = sealed(tmp_path / "x")
    file, manifest = folder / "sub" / "b.txt", folder / "manifest.json"
    {"flip": lambda: file.write_text("c"), "cut": lambda: file.write_text(""), "remove": file.unlink,
     "no manifest": manifest.unlink, "broken manifest": lambda: manifest.write_text("{")}[damage]()  # fmt: skip
    with pytest.raises(JudgefreeError) as caught:
        verify(folder)
    assert ("manifest.json" if "manifest" in damage else "b.txt") in str(caught.value) and "fix:" in str(caught.value)


def test_write_atomic_leaves_the_old_file_when_it_cannot(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    target.mkdir()  # a folder in the way: the rename fails after the neighbour was written
    with pytest.raises(JudgefreeError, match=r"cannot write .*file\.json"):
        write_atomic(target, "x")
    assert os.listdir(tmp_path) == ["file.json"]


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    target.write_text("old")
    with files_up_to(1000), pytest.raises(JudgefreeError, match="free disk space or make the folder writable"):
        write_atomic(target, "x" * 100_000)
    assert target.read_text() == "old" and os.listdir(tmp_path) == ["file.json"]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The system refuses the bytes past a limit, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(100_000)),
        lambda path: save_file({"a": torch.zeros(100_000)}, path),
        lambda path: torch.save(torch.zeros(100_000), path),
        lambda path: Tokenizer(WordLevel({str(i): i for i in range(10_000)}, unk_token="0")).save(str(path)),
    ],
    ids=["python", "safetensors", "torch", "tokenizers"],
)
def test_a_full_disk_is_told_in_one_way(tmp_path: Path, write: Callable[[Path], None]) -> None:
    with (
        files_up_to(10_000),
        pytest.raises(JudgefreeError, match=f"cannot write below {tmp_path}.*\n.*free disk space"),
        writing(tmp_path),
    ):
        write(tmp_path / "file")


def test_a_file_that_cannot_be_read_is_not_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234567890123")
    with pytest.raises(SafetensorError), writing(tmp_path):
        load_file(tmp_path / "file")
    with pytest.raises(FileNotFoundError), writing(tmp_path):
        (tmp_path / "none").read_bytes()


def test_space_is_asked_for_before_it_is_needed(tmp_path: Path) -> None:
    require_space(tmp_path / "not" / "there" / "yet", 1)
    with pytest.raises(JudgefreeError, match="wants .* GB of free space"):
        require_space(tmp_path, 10**18)


def test_publish_replaces_in_one_rename(tmp_path: Path) -> None:
    old, new = sealed(tmp_path / "old"), tmp_path / "new"
    new.mkdir()
    (new / "only.txt").write_text("new")
    publish(new, old)
    assert os.listdir(old) == ["only.txt"] and not new.exists() and sorted(os.listdir(tmp_path)) == ["old"]


def test_read_json_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(JudgefreeError, match="missing.json is missing"):
        read_json(tmp_path / "missing.json")


def test_keys_depend_on_content_alone(tmp_path: Path) -> None:
    assert key_of({"a": 1, "b": [1.5]}) == key_of({"b": [1.5], "a": 1}) != key_of({"a": 1, "b": [1.6]})
    with pytest.raises(ValueError):
        canonical_json(float("nan"))
    (tmp_path / "p" / "q").mkdir(parents=True)
    (tmp_path / "p" / "q" / "m.py").write_text("x = 1\n")
    before = code_hash([tmp_path / "p"])
    (tmp_path / "p" / "note.txt").write_text("not code")
    assert code_hash([tmp_path / "p"]) == before
    (tmp_path / "p" / "q" / "m.py").write_text("x = 2\n")
    assert code_hash([tmp_path / "p"]) != before
