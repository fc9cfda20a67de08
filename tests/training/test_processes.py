"""The gradient, with global statistics (KL-Cov's selection, denominators), does not depend on the number of processes."""

import os
import subprocess
from pathlib import Path

import torch
from harness import relative_difference

from judgefree.training.launch import command

HERE = Path(__file__).parent


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
