"""The nightly chain, on a training stage that looks around and ends the night."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.retrain import retrain

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("prefect_api")]
LOOKS = """
import pathlib, sys
seen = pathlib.Path("mlruns/mlflow.db")
pathlib.Path("seen").write_bytes(seen.read_bytes()[:15] if seen.exists() else b"nothing")
sys.exit(2)
"""


@pytest.mark.parametrize(("before", "seen"), [(None, b"SQLite format 3"), (b"no database", b"no database")])
def test_the_first_night_trains_beside_a_store(project: Callable[..., Path], before: bytes | None, seen: bytes) -> None:
    """Training logs live where a store is there; one that is broken does not keep it from training."""
    root = project({"retries": 0}, train=LOOKS)
    if before:
        (root / "mlruns").mkdir()
        (root / "mlruns" / "mlflow.db").write_bytes(before)
    state = retrain(str(root), return_state=True)
    assert state.is_failed() and "train failed with status 2" in str(state.message)
    assert (root / "seen").read_bytes()[:15] == seen
