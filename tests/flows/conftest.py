"""One Prefect server for all tests of flows, with its files in a temporary folder."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
_HOME = tempfile.TemporaryDirectory(
    prefix="prefect-"
)  # Prefect reads this when it is imported, so no fixture can set it
os.environ["PREFECT_HOME"] = _HOME.name


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[str]:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.server import temporary_server

    with temporary_server() as url, temporary_settings({PREFECT_API_URL: url}):
        yield url


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Make a project of small Python programs as stages: project(name=program, ...)."""
    from microproject import make

    return lambda pipeline=None, **stages: make(tmp_path, stages, **(pipeline or {}))
