import os
from pathlib import Path

import pytest


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty mirror folder that JUDGEFREE_MIRROR names."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    monkeypatch.setenv("JUDGEFREE_MIRROR", str(folder))
    return folder


@pytest.fixture
def real_mirror() -> Path:
    folder = os.environ.get("JUDGEFREE_MIRROR")
    if not folder:
        pytest.skip("needs real data: JUDGEFREE_MIRROR is not set")
    return Path(folder)
