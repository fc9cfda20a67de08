"""Where a model computes: what params.yaml asks for, never something else without a word."""

import pytest
import torch

from judgefree.devices import device_of
from judgefree.errors import JudgefreeError


@pytest.mark.parametrize(
    ("name", "gpu", "device"),
    [
        ("cpu", False, "cpu"),
        ("cpu", True, "cpu"),
        ("cuda", True, "cuda"),
        ("auto", True, "cuda"),
        ("auto", False, "cpu"),
    ],
)
def test_the_device_that_is_named(monkeypatch: pytest.MonkeyPatch, name: str, gpu: bool, device: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert device_of(name, "training.device") == torch.device(device)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(JudgefreeError, match=r"reward_models\.judge\.device is cuda, and PyTorch finds no GPU"):
        device_of("cuda", "reward_models.judge.device")
