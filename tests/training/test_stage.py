"""The stage `train` around its steps: what it publishes, and how it ends."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import get_peft_model
from stage_project import MULTI, Killed, resolve, same_bytes_when_interrupted, unlabelled
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from world import training

from judgefree.errors import JudgefreeError
from judgefree.files import seal
from judgefree.registry.live import LiveLog
from judgefree.registry.store import find_run, open_store
from judgefree.training import run
from judgefree.training.arguments import lora_config
from judgefree.training.run import nothing_learnt, train
from judgefree.training.space import space_of
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
    same_bytes_when_interrupted(project)


class Broken(LiveLog):
    """MLflow's, and an end by a fault after the first checkpoint."""

    def checkpoint(self, history: dict[int, dict[str, float]]) -> None:
        super().checkpoint(history)
        raise Killed


def test_a_training_that_raises_is_failed_in_mlflow_until_it_goes_on(project: Path) -> None:
    resolve(project, MULTI, "last")
    with pytest.raises(Killed):
        train("r", project, Broken)
    store, key = open_store(project), run.read_job("r", project).key
    logged = find_run(store, key, "r")
    assert logged and logged.info.status == "FAILED" and logged.info.end_time
    steps = [metric.step for metric in store.client.get_metric_history(logged.info.run_id, "reward")]
    assert steps == [1, 3]  # a rollout feeds two steps
    train("r", project, LiveLog)
    assert find_run(store, key, "r").info.status == "FINISHED"


def test_a_checkpoint_without_weights_is_no_model(project: Path) -> None:
    resolve(project, MULTI, "last")
    job, checkpoint = run.read_job("r", project), project / "checkpoint-4"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    with pytest.raises(JudgefreeError, match="checkpoint-4 holds no weights"):
        run.save_policy(job, checkpoint, project)


def test_a_gpu_that_is_not_there_is_no_cpu(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    resolve(project, MULTI, "last", device="cuda")
    with pytest.raises(JudgefreeError, match="training.device of run r is cuda, and PyTorch finds no GPU"):
        train("r", project)
    assert not (project / ".work").exists() and not (project / "models" / "r").exists()


def wide(project: Path) -> int:
    """A start model whose weights outweigh a file's header; returns its number of parameters."""
    start = project / "models" / "start"
    settings = LlamaConfig.from_pretrained(start, hidden_size=128, head_dim=64, intermediate_size=512)
    model = LlamaForCausalLM(settings)
    model.save_pretrained(start)
    seal(start, {"kind": "base"})
    return model.num_parameters()


def on_a_disk_with(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))


def test_space_is_that_of_the_checkpoints_still_to_be_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four checkpoints of 12 bytes a parameter at once; three are there when the run is to be published again."""
    parameters = wide(project)
    resolve(project, MULTI, "last", steps=8, save_every=2)
    assert space_of(project / "models" / "start", run.read_job("r", project).training) == 48 * parameters
    on_a_disk_with(monkeypatch, 47 * parameters)
    with pytest.raises(JudgefreeError, match="GB of free space"):
        train("r", project)
    on_a_disk_with(monkeypatch, 49 * parameters)
    train("r", project)
    checkpoints = list(run.read_job("r", project).work.glob("checkpoint-*"))
    held = sum(file.stat().st_size for file in project.glob(".work/train/*/checkpoint-*/*"))
    assert held == pytest.approx(12 * parameters * len(checkpoints), rel=0.05) and len(checkpoints) in (2, 3)
    shutil.rmtree(project / "models" / "r")
    on_a_disk_with(monkeypatch, 30 * parameters)
    train("r", project)
    assert (project / "models" / "r").is_dir()


def test_space_counts_a_model_that_is_trained_beside(project: Path) -> None:
    parameters, start = wide(project), project / "models" / "start"
    settings = training(steps=8, save_every=2)
    assert space_of(start, settings, [start]) == 2 * space_of(start, settings) == 2 * 48 * parameters


def test_space_of_a_lora_is_the_adapters_and_the_result(project: Path) -> None:
    parameters = wide(project)
    start = project / "models" / "start"
    settings = training(steps=8, save_every=2, lora=LORA)
    adapter = 2 * 2 * 2 * (128 + 128)  # layers, modules, rank, in and out
    peft = get_peft_model(AutoModelForCausalLM.from_pretrained(start), lora_config(settings))
    assert peft.get_nb_trainable_parameters()[0] == adapter
    assert space_of(start, settings) == 3 * 12 * adapter + 4 * parameters


def test_a_run_that_learnt_nothing_is_told() -> None:
    assert nothing_learnt({0: {"validation/pass@1": 0.1}, 1: {"grad_norm": 0.0}, 2: {"grad_norm": 0.0, "loss": 0.0}})
    assert not nothing_learnt({1: {"grad_norm": 0.0}, 2: {"grad_norm": 1e-6}})
    assert not nothing_learnt({0: {"validation/pass@1": 0.1}}), "no gradient was measured"
