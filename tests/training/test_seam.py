"""The names and shapes of TRL and Transformers that trainer.py stands on. An upgrade that moves one fails here, by name."""

import inspect
from importlib.metadata import version

import pytest
from transformers import Trainer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig

from judgefree.training.trainer import EpisodeTrainer


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_pinned_minor_version() -> None:
    assert version("trl").startswith("1.16."), "read trl's changes, then tests/training/test_against_trl.py"


@pytest.mark.parametrize("name", ["get_train_dataloader", "_prepare_inputs", "_compute_loss"])
def test_what_we_override_is_still_called_so(name: str) -> None:
    assert name in EpisodeTrainer.__dict__
    assert parameters(getattr(GRPOTrainer, name)) == parameters(getattr(EpisodeTrainer, name))


def test_what_we_call() -> None:
    assert parameters(GRPOTrainer._get_per_token_logps_and_entropies)[:7] == [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
    ]  # fmt: skip
    source = inspect.getsource(GRPOTrainer)
    for attribute in ("self._step += 1", 'self._metrics = {"train"', "self.ref_model", "self._tokenizer"):
        assert attribute in source, attribute
    assert "self._compute_loss(model, inputs)" in inspect.getsource(GRPOTrainer.compute_loss)
    assert "self._prepare_inputs(inputs)" in inspect.getsource(Trainer.training_step)


def test_the_loop_calls_back_where_we_listen() -> None:
    loop = inspect.getsource(Trainer._run_epoch)
    order = ["training_step(", "on_pre_optimizer_step(", "self.optimizer.step()", "global_step += 1", "on_step_end("]
    places = [loop.index(part) for part in order]
    assert places == sorted(places)
    for name in ("on_train_begin", "on_pre_optimizer_step", "on_step_end", "on_log", "on_save", "on_train_end"):
        assert hasattr(TrainerCallback, name)


@pytest.mark.parametrize(
    ("config", "names"),
    [(GRPOConfig, ["steps_per_generation", "num_generations", "beta", "disable_dropout", "use_vllm", "vllm_mode",
                   "vllm_importance_sampling_correction", "ignore_data_skip", "max_completion_length"]),
     (SFTConfig, ["completion_only_loss", "dataset_kwargs", "packing", "max_length", "loss_type"])],
)  # fmt: skip
def test_arguments(config: type, names: list[str]) -> None:
    fields = config.__dataclass_fields__  # type: ignore[attr-defined]
    assert [name for name in names if name not in fields] == []
