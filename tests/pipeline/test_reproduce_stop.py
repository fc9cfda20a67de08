"""A request to end `make reproduce` reaches the stage that runs: it saves, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from ruamel.yaml import YAML

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).parents[2]


def waited(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.2)
    return met


def working_in(folder: Path) -> list[int]:
    """Processes whose working folder is this one."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] and Path(process.info["cwd"]) == folder:
            found.append(process.pid)
    return found


def test_sigterm_ends_the_stage_after_it_has_saved(tmp_path):
    profile = YAML(typ="safe").load((ROOT / "profiles" / "reproduce.yaml").read_text(encoding="utf-8"))
    save_every = profile["runs"]["warmup"]["training"]["save_every"]
    log = tmp_path / "output.txt"
    work = tmp_path / "work"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        command = [sys.executable, "-m", "benchmarks.reproduce", "--arms", "grpo", "--work", str(work)]
        parent = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        told = work / "logs" / "train-warmup.log"
        assert waited(lambda: told.is_file() and b"step " in told.read_bytes(), 600), log.read_text()
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(120) == 1
    finally:
        parent.kill()
    assert "the same command goes on from there" in log.read_text()
    assert waited(lambda: not working_in(work), 60)
    assert not (work / "models" / "warmup").exists()
    steps = [int(path.name.split("-")[1]) for path in work.glob(".work/train/*/checkpoint-*")]
    assert any(step % save_every for step in steps), "the one that the request made"
