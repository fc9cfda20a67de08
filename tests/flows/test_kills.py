"""kill -9 of the nightly chain at random moments: the next run ends with the bytes of a night that nobody disturbed.

JUDGEFREE_FLOW_KILLS says how many (default none: each takes two whole nights of a small project).
"""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from project import copy_checkout, environment, hashes

pytestmark = pytest.mark.pipeline
KILLS = int(os.environ.get("JUDGEFREE_FLOW_KILLS", "0"))
MADE = ("models/rlvr", "reports/runs/rlvr", "reports/compare")


def night(root: Path, url: str) -> subprocess.Popen[str]:
    env = {**environment(), "PYTHONPATH": f"{root / 'src'}:{root}", "PREFECT_API_URL": url}
    log = (root / "night.log").open("w")
    return subprocess.Popen(
        [sys.executable, "-m", "flows.retrain"],
        cwd=root,
        env=env,
        text=True,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def results(root: Path) -> dict[str, dict[str, str]]:
    return {name: hashes(root / name) for name in MADE}


def registry(root: Path) -> tuple[list[Any], list[Any]]:
    with sqlite3.connect(root / "mlruns" / "mlflow.db") as store:
        versions = store.execute("select name, version from model_versions where current_stage != 'Deleted_Internal'")
        aliases = store.execute("select name, alias, version from registered_model_aliases")
        return versions.fetchall(), aliases.fetchall()


def forget(root: Path, registry_too: bool) -> None:
    """Undo the training, evaluation and registration of the run, so that a night has them to do again."""
    folders = [".dvc/cache", ".work/train", ".work/evaluate", *MADE]
    for name in [*folders, "mlruns/artifacts"] if registry_too else folders:
        shutil.rmtree(root / name, ignore_errors=True)
    if registry_too:
        for file in (root / "mlruns").glob("mlflow.db*"):
            file.unlink()


@pytest.fixture(scope="module")
def quiet(
    prefect_api: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, dict[str, str]], list[float]]:
    """A project after an undisturbed night, what it made, and how long the part that is disturbed below takes."""
    root = copy_checkout(tmp_path_factory.mktemp("night"))
    assert night(root, prefect_api).wait() == 0, (root / "night.log").read_text()
    made = results(root)
    forget(root, registry_too=True)
    started = time.monotonic()
    assert night(root, prefect_api).wait() == 0, (root / "night.log").read_text()
    assert results(root) == made
    return root, made, [time.monotonic() - started]


def killed_night(root: Path, url: str, seconds: list[float], number: int) -> None:
    """A night of which the flow's process (even numbers) or its whole group (odd ones) is killed at a random moment.

    seconds: how long a night takes, the newest last. A night that was over before the kill, on a machine that has become
    faster, tells so, and is tried again.
    """
    draw = random.Random(number)
    while True:
        forget(root, registry_too=number % 4 < 2)
        started = time.monotonic()
        process = night(root, url)
        try:
            process.wait(draw.uniform(0.1, 0.95) * seconds[-1])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL) if number % 2 else process.kill()
            assert process.wait() == -signal.SIGKILL
            return
        seconds.append(time.monotonic() - started)


@pytest.mark.parametrize("number", range(KILLS))
def test_kill_at_a_random_moment(quiet: Any, prefect_api: str, number: int) -> None:
    """Every other pair of kills has nothing registered yet."""
    root, made, seconds = quiet
    killed_night(root, prefect_api, seconds, number)
    again = night(root, prefect_api)
    assert again.wait() == 0, (root / "night.log").read_text()
    assert results(root) == made
    versions, aliases = registry(root)
    assert len(versions) == 1 and [alias for _, alias, _ in aliases] == ["challenger"]
