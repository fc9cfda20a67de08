"""Killed, stopped or damaged at any time, then the same command: the same bytes as a run that was left alone."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from project import command, environment, hashes

pytestmark = pytest.mark.pipeline
KILLS = int(os.environ.get("JUDGEFREE_KILLS", "2"))


@pytest.fixture(scope="module")
def untouched(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Hashes of every file of both runs when nothing interrupts them."""
    root = tmp_path_factory.mktemp("untouched") / "project"
    shutil.copytree(prepared, root)
    command(root, "judgefree", "train", "rlvr")
    return {name: hashes(root / "models" / name) for name in ("warmup", "rlvr")}


def start(root: Path, run: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["judgefree", "train", run],
        cwd=root,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def wait_for(root: Path, pattern: str, process: subprocess.Popen[str], count: int = 1) -> None:
    while len(list(root.glob(pattern))) < count:
        if process.poll() is not None:
            raise AssertionError(f"ended too early: {process.communicate()[0]}")
        time.sleep(0.01)


def wait_for_step(root: Path, before: set[Path], step: int, process: subprocess.Popen[str]) -> None:
    """Until the run that works in a folder not in `before` has done `step` steps (0: has begun)."""
    while True:
        (folder,) = set(root.glob(".work/train/*")) - before or {root}
        timings = folder / "timings.jsonl"
        done = timings.read_text().count("\n") if timings.is_file() else 0
        if folder != root and done >= step:
            return
        assert process.poll() is None, f"ended too early: {process.communicate()[0]}"
        time.sleep(0.005)


@pytest.mark.parametrize("number", range(KILLS))
def test_kill_at_a_random_moment(project: Path, untouched: dict[str, dict[str, str]], number: int) -> None:
    """kill -9 after a random step, and a random moment more; the seed is the test's number."""
    run, draw = ("rlvr", "warmup")[number % 2], random.Random(number)
    shutil.rmtree(project / "models" / run, ignore_errors=True)
    if run == "warmup":
        shutil.rmtree(project / ".work" / "train")
    before = set(project.glob(".work/train/*"))
    process = start(project, run)
    wait_for_step(project, before, draw.randrange(0, 7), process)
    time.sleep(draw.random() * 0.05)
    process.kill()
    assert process.wait() == -signal.SIGKILL and not (project / "models" / run).exists()
    command(project, "judgefree", "train", run)
    assert hashes(project / "models" / run) == untouched[run]


def test_kill_between_checkpoint_and_seal(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    """The moment that a plain trainer gets wrong: files of a checkpoint are there, the last of them is not."""
    process = start(project, "rlvr")
    wait_for(project, ".work/train/*/checkpoint-8/model.safetensors", process)
    process.kill()
    process.wait()
    manifest = next(iter(project.glob(".work/train/*/checkpoint-8"))) / "manifest.json"
    manifest.unlink(missing_ok=True)
    shutil.rmtree(project / "models" / "rlvr", ignore_errors=True)
    again = command(project, "judgefree", "train", "rlvr")
    assert "checkpoint-8 was not finished" in again.stderr and "going on from step 4 of 8" in again.stderr
    assert hashes(project / "models" / "rlvr") == untouched["rlvr"]


def test_corrupted_newest_checkpoint_is_passed_over(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    command(project, "judgefree", "train", "rlvr")
    shutil.rmtree(project / "models" / "rlvr")
    (weights,) = project.glob(".work/train/*/checkpoint-8/optimizer.pt")
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    again = command(project, "judgefree", "train", "rlvr")
    assert "checkpoint-8 is corrupted" in again.stderr and "going on from step 4" in again.stderr
    assert hashes(project / "models" / "rlvr") == untouched["rlvr"]


def test_full_disk_is_a_clear_error(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    """The system refuses files above 500 kB, as a full disk does; later the same command goes on."""
    words = ["bash", "-c", "ulimit -f 500; exec judgefree train rlvr"]
    refused = command(project, *words, check=False)
    assert refused.returncode == 2 and "free disk space" in refused.stderr and "Traceback" not in refused.stderr
    command(project, "judgefree", "train", "rlvr")
    assert hashes(project / "models" / "rlvr") == untouched["rlvr"]


def test_sigterm_saves_and_ends(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    process = start(project, "rlvr")
    wait_for(project, ".work/train/*/timings.jsonl", process, 2)
    process.send_signal(signal.SIGTERM)
    output = process.communicate()[0]
    if (project / "models" / "rlvr").exists():
        pytest.fail("the run ended before the signal reached it")
    assert process.returncode == 143 and "the same command goes on from there" in output
    assert list(project.glob(".work/train/*/checkpoint-*/manifest.json"))
    again = command(project, "judgefree", "train", "rlvr")
    assert "going on from step" in again.stderr
    assert hashes(project / "models" / "rlvr") == untouched["rlvr"]


def test_a_finished_run_is_published_again_without_training(project: Path) -> None:
    """models/ was removed, the work is still there: no step is made twice."""
    command(project, "judgefree", "train", "rlvr")
    before = hashes(project / "models" / "rlvr")
    shutil.rmtree(project / "models" / "rlvr")
    again = command(project, "judgefree", "train", "rlvr")
    assert "going on from step 8 of 8" in again.stderr and hashes(project / "models" / "rlvr") == before
