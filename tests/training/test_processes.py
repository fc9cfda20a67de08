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

from tasks.process import guarded

HERE = Path(__file__).parent
MEASURED = {"entropy", "kl", "kl/clamped", "clip_ratio/region_mean", "ratio/abs_log_mean", "cov/abs_log_ratio"}


def launched(words: list[str], processes: int, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A process that runs the words once a rank."""
    return subprocess.Popen(launcher(words, processes), env=env, text=True)


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
    deadline = time.monotonic() + 60
    while not all((folder / str(rank)).exists() for rank in (0, 1)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [psutil.Process(int((folder / str(rank)).read_text())) for rank in (0, 1)]


def test_ranks_stay_in_the_guards_group_and_nothing_outlives_it(tmp_path: Path) -> None:
    words = launcher(rank_program(tmp_path, "time.sleep(100)"), 2)
    with guarded(words, tmp_path, tmp_path / "log", 5, env=dict(os.environ)) as guard:
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
    process = launched(rank_program(tmp_path, "time.sleep(100 * rank); sys.exit(75)"), 2)
    ranks = ranks_of(tmp_path)
    assert process.wait(30) == 75 and psutil.wait_procs(ranks, 1)[1] == []


def gradients(tiny: Path, work: Path, processes: int) -> list[dict[str, torch.Tensor]]:
    work.mkdir()
    worker = [str(HERE / "two_processes.py"), str(tiny), str(work), str(processes)]
    path = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    result = launched([sys.executable, *worker], processes, env)
    assert result.wait() == 0
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
