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
KILLS = int(os.environ.get("JUDGEFREE_KILLS", "1"))


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


def folders(root: Path) -> set[Path]:
    """Work folders of all runs so far; a test takes them before its run, whose own is the one that is new."""
    return set(root.glob(".work/train/*/"))


def wait_for(root: Path, before: set[Path], name: str, process: subprocess.Popen[str]) -> Path:
    """The path of a file in the work folder of the run that is not in `before`, once it is there."""
    while True:
        for folder in folders(root) - before:
            if (folder / name).exists():
                return folder / name
        assert process.poll() is None, f"ended too early: {process.communicate()[0]}"
        time.sleep(0.005)


def wait_for_step(root: Path, before: set[Path], step: int, process: subprocess.Popen[str]) -> None:
    """Until the new run has logged `step` steps; it logs the first one a moment after it has begun."""
    timings = wait_for(root, before, "timings.jsonl", process)
    while timings.read_text().count("\n") < step:
        assert process.poll() is None, f"ended too early: {process.communicate()[0]}"
        time.sleep(0.005)


def kill_and_repeat(root: Path, run: str, step: int, moment: float) -> str:
    """Train a run anew, kill it `moment` seconds after a step, train it again; returns what the second command said."""
    shutil.rmtree(root / "models" / run, ignore_errors=True)
    if run == "warmup":
        shutil.rmtree(root / ".work" / "train")
    before = folders(root)
    process = start(root, run)
    wait_for_step(root, before, step, process)
    time.sleep(moment)
    process.kill()
    assert process.wait() == -signal.SIGKILL and not (root / "models" / run).exists()
    return command(root, "judgefree", "train", run).stderr


@pytest.mark.parametrize("number", range(KILLS))
def test_kill_at_a_random_moment(project: Path, untouched: dict[str, dict[str, str]], number: int) -> None:
    """kill -9 after a random step, and a random moment more; the seed is the test's number."""
    run, draw = ("rlvr", "warmup")[number % 2], random.Random(number)
    kill_and_repeat(project, run, draw.randrange(1, 7), draw.random() * 0.05)
    assert hashes(project / "models" / run) == untouched[run]


def test_warm_up_goes_on_from_its_checkpoint(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    """Supervised training too, also in what its library counts along the way."""
    assert "going on from step 4" in kill_and_repeat(project, "warmup", step=5, moment=0.0)
    assert hashes(project / "models" / "warmup") == untouched["warmup"]


def test_kill_between_checkpoint_and_seal(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    """The moment that a plain trainer gets wrong: files of a checkpoint are there, the last of them is not."""
    before = folders(project)
    process = start(project, "rlvr")
    weights = wait_for(project, before, "checkpoint-8/model.safetensors", process)
    process.kill()
    process.wait()
    (weights.parent / "manifest.json").unlink(missing_ok=True)
    shutil.rmtree(project / "models" / "rlvr", ignore_errors=True)
    again = command(project, "judgefree", "train", "rlvr")
    assert "checkpoint-8 was not finished" in again.stderr and "going on from step 4 of 8" in again.stderr
    assert hashes(project / "models" / "rlvr") == untouched["rlvr"]


def test_corrupted_newest_checkpoint_is_passed_over(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    before = folders(project)
    command(project, "judgefree", "train", "rlvr")
    shutil.rmtree(project / "models" / "rlvr")
    (folder,) = folders(project) - before
    weights = folder / "checkpoint-8" / "optimizer.pt"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    again = command(project, "judgefree", "train", "rlvr")
    assert "checkpoint-8 is corrupted" in again.stderr and "going on from step 4" in again.stderr
    assert hashes(project / "models" / "rlvr") == untouched["rlvr"]


def test_a_second_trainer_is_refused(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    """What a kill -9 of `dvc repro` leaves behind still trains when the next one starts."""
    before = folders(project)
    process = start(project, "rlvr")
    wait_for(project, before, "timings.jsonl", process)
    process.send_signal(signal.SIGSTOP)
    second = command(project, "judgefree", "train", "rlvr", check=False)
    assert (
        second.returncode == 75 and f"process {process.pid} trains in" in second.stderr and "fix: wait" in second.stderr
    )
    process.send_signal(signal.SIGCONT)
    assert process.wait() == 0
    assert hashes(project / "models" / "rlvr") == untouched["rlvr"]


def test_full_disk_is_a_clear_error(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    """The system refuses files above 500 kB, as a full disk does; later the same command goes on."""
    words = ["bash", "-c", "ulimit -f 500; exec judgefree train rlvr"]
    refused = command(project, *words, check=False)
    assert refused.returncode == 2 and "free disk space" in refused.stderr and "Traceback" not in refused.stderr
    command(project, "judgefree", "train", "rlvr")
    assert hashes(project / "models" / "rlvr") == untouched["rlvr"]


def test_sigterm_saves_and_ends(project: Path, untouched: dict[str, dict[str, str]]) -> None:
    before = folders(project)
    process = start(project, "rlvr")
    wait_for(project, before, "timings.jsonl", process)
    process.send_signal(signal.SIGTERM)
    output = process.communicate()[0]
    if (project / "models" / "rlvr").exists():
        pytest.fail("the run ended before the signal reached it")
    assert process.returncode == 143 and "the same command goes on from there" in output
    (folder,) = folders(project) - before
    assert list(folder.glob("checkpoint-*/manifest.json"))
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
