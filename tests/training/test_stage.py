"""The stage `train` around its steps: what it publishes, and how it ends."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from stage_project import MULTI, Killed, Killer, resolve, unlabelled
from transformers import AutoModelForCausalLM

from judgefree.files import listing
from judgefree.training import run
from judgefree.training.run import train
from judgefree.training.trainer import EpisodeTrainer

LORA = {"rank": 2, "alpha": 8, "dropout": 0.0, "target_modules": ["q_proj", "v_proj"]}


@pytest.fixture
def project(tiny: Path, tmp_path: Path) -> Path:
    return unlabelled(tiny, tmp_path)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_published_lora_is_the_policy_that_was_trained(
    project: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    trainers: list[EpisodeTrainer] = []

    class Kept(EpisodeTrainer):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            trainers.append(self)

    monkeypatch.setattr(run, "EpisodeTrainer", Kept)
    resolve(project, MULTI, "last", steps=4, lora=LORA, precision=precision, learning_rate=0.02)
    train("r", project)
    ids = torch.arange(2, 30)[None]
    trained, published, start = (
        model(ids).logits.log_softmax(-1)
        for model in (
            trainers[0].accelerator.unwrap_model(trainers[0].model, keep_fp32_wrapper=False).float(),
            AutoModelForCausalLM.from_pretrained(project / "models" / "r"),
            AutoModelForCausalLM.from_pretrained(project / "models" / "start"),
        )
    )
    assert published.dtype == torch.float32 and torch.allclose(trained, published, atol=1e-4)
    assert (published - start).abs().max() > 0.1


def test_an_interrupted_lora_run_has_the_same_bytes(project: Path) -> None:
    resolve(project, MULTI, "last", lora=LORA, precision="bf16")
    train("r", project)
    whole = listing(project / "models" / "r")
    shutil.rmtree(project / "models" / "r")
    shutil.rmtree(project / ".work")
    with pytest.raises(Killed):
        train("r", project, lambda *_: Killer())
    train("r", project)
    assert listing(project / "models" / "r") == whole
