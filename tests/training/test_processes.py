"""Neither the gradient, with its global statistics (KL-Cov's selection, denominators), nor what is measured depends on the
number of processes; and no process outlives those it belongs to."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from harness import relative_difference
from stage_project import MULTI, resolve, unlabelled

from judgefree.files import read_json
from tasks.process import guarded

HERE = Path(__file__).parent
PATHS = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src")])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
MEASURED = {"entropy", "kl", "kl/clamped", "clip_ratio/region_mean", "ratio/abs_log_mean", "cov/abs_log_ratio"}


def launched(words: list[str], processes: int) -> subprocess.Popen[str]:
    """A process that runs the words once a rank."""
    return subprocess.Popen(launcher(words, processes), env=ENVIRONMENT, text=True)


def launcher(words: list[str], processes: int) -> list[str]:
    program = (
        f"import sys; from judgefree.training.launch import run_ranks; sys.exit(run_ranks({words!r}, {processes}))"
    )
    return [sys.executable, "-c", program]


def rank_program(tmp_path: Path, body: str) -> list[str]:
    """A rank that leaves its process id in the folder, under its number, and then does what `body` says."""
    program = f"""
import os, pathlib, signal, sys, time
from judgefree.processes import die_with
die_with(int(os.environ["JUDGEFREE_WORKER"]))
rank = int(os.environ["RANK"])
def stop(number, frame):
    time.sleep(rank)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
file = pathlib.Path({str(tmp_path)!r}) / str(rank)
file.with_suffix(".new").write_text(str(os.getpid()))
file.with_suffix(".new").rename(file)
{body}
"""
    return [sys.executable, "-c", program]


def ranks_of(folder: Path) -> list[psutil.Process]:
    deadline = time.monotonic() + 300
    while not all((folder / str(rank)).exists() for rank in (0, 1)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [psutil.Process(int((folder / str(rank)).read_text())) for rank in (0, 1)]


def test_ranks_stay_in_the_guards_group_and_nothing_outlives_it(tmp_path: Path) -> None:
    words = launcher(rank_program(tmp_path, "time.sleep(100)"), 2)
    with guarded(words, tmp_path, tmp_path / "log", 5, env=ENVIRONMENT) as guard:
        ranks = ranks_of(tmp_path)
        assert [os.getpgid(rank.pid) for rank in ranks] == [guard.pid, guard.pid]
        os.killpg(guard.pid, signal.SIGKILL)
        assert psutil.wait_procs(ranks, 10)[1] == []


def test_ranks_die_with_their_launcher(tmp_path: Path) -> None:
    process = launched(rank_program(tmp_path, "time.sleep(100)"), 2)
    ranks = ranks_of(tmp_path)
    process.kill()
    process.wait()
    assert psutil.wait_procs(ranks, 10)[1] == []


def test_a_request_to_stop_reaches_all_ranks_and_each_may_take_its_time(tmp_path: Path) -> None:
    process = launched(rank_program(tmp_path, "time.sleep(100); sys.exit(1)"), 2)
    ranks = ranks_of(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143 and not any(rank.is_running() for rank in ranks)


def test_a_rank_that_fails_ends_the_others_and_gives_its_status(tmp_path: Path) -> None:
    go = tmp_path / "go"  # once both are known, or they would end unseen
    body = f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\ntime.sleep(100 * rank); sys.exit(75)"
    process = launched(rank_program(tmp_path, body), 2)
    ranks = ranks_of(tmp_path)
    go.touch()
    assert process.wait(300) == 75 and psutil.wait_procs(ranks, 10)[1] == []


SLOW_SECOND_RANK = """
import os, sys, time
from pathlib import Path
from transformers import Trainer
from judgefree.training.run import train
save = Trainer._save_rng_state
def slow(self, folder):
    time.sleep(2 * int(os.environ["RANK"]))
    save(self, folder)
Trainer._save_rng_state = slow
train("r", Path(sys.argv[1]))
"""


def test_a_checkpoint_is_sealed_when_all_ranks_have_written_theirs(tiny: Path, tmp_path: Path) -> None:
    resolve(unlabelled(tiny, tmp_path), MULTI, "last", processes=2, steps=2, save_every=2)
    assert launched([sys.executable, "-c", SLOW_SECOND_RANK, str(tmp_path)], 2).wait() == 0
    (manifest,) = tmp_path.glob(".work/train/*/checkpoint-2/manifest.json")
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= read_json(manifest)["files"].keys()
    assert (tmp_path / "models" / "r" / "model.safetensors").is_file()


def gradients(tiny: Path, work: Path, processes: int) -> list[dict[str, torch.Tensor]]:
    work.mkdir()
    worker = [str(HERE / "two_processes.py"), str(tiny), str(work), str(processes)]
    assert launched([sys.executable, *worker], processes).wait() == 0
    return torch.load(work / "gradients.pt", weights_only=True)


def test_two_processes_give_the_gradient_of_one(tiny: Path, tmp_path: Path) -> None:
    one, two = gradients(tiny, tmp_path / "one", 1), gradients(tiny, tmp_path / "two", 2)
    assert len(one) == len(two) == 2
    for step, (alone, shared) in enumerate(zip(one, two, strict=True)):
        assert relative_difference(shared, alone) < 1e-5, f"update {step}"
    logs = [json.loads((tmp_path / name / "logs.json").read_text()) for name in ("one", "two")]
    for alone, shared in zip(*logs, strict=True):
        measured = {name: value for name, value in alone.items() if name in MEASURED}
        assert measured.keys() == MEASURED and alone["entropy"] > 0
        assert {name: shared[name] for name in measured} == pytest.approx(measured, rel=1e-4, abs=1e-7)
