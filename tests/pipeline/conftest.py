"""A prepared project that tests may damage."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import command, write_params


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """resolved/, models/tiny, data/arithmetic and models/warmup, made by the commands."""
    root = tmp_path_factory.mktemp("project")
    write_params(root)
    for words in (["resolve"], ["base", "tiny"], ["prepare", "arithmetic"], ["train", "warmup"]):
        command(root, "judgefree", *words)
    return root


@pytest.fixture
def project(prepared: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of `prepared` that a test may damage."""
    root = tmp_path / "project"
    shutil.copytree(prepared, root)
    yield root
    shutil.rmtree(root)
