"""Where a model computes."""

import torch

from judgefree.errors import JudgefreeError


def device_of(name: str, setting: str) -> torch.device:
    """name: cpu, cuda or auto (cuda where there is one), as `setting` of params.yaml says.

    Raises JudgefreeError where a GPU is asked for by name and there is none, instead of computing on the CPU for days.
    """
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise JudgefreeError(f"{setting} is cuda, and PyTorch finds no GPU", f"set {setting} to cpu or auto")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and there) else "cpu")
