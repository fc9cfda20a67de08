"""Neither the gradient, with its global statistics (KL-Cov's selection, denominators), nor what is measured depends on the
number of processes."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from harness import relative_difference

from judgefree.training.launch import command

HERE = Path(__file__).parent
MEASURED = {"entropy", "kl", "kl/clamped", "clip_ratio/region_mean", "ratio/abs_log_mean", "cov/abs_log_ratio"}


def gradients(tiny: Path, work: Path, processes: int) -> list[dict[str, torch.Tensor]]:
    work.mkdir()
    worker = [str(HERE / "two_processes.py"), str(tiny), str(work), str(processes)]
    path = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command(HERE, {"processes": processes, "device": "cpu"}, worker), env=env, text=True, capture_output=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
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
