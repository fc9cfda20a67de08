"""Run one of the two trainers on turns that are given, and read off the gradient of every optimizer step."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from judgefree.config import PromptFormat, Training
from judgefree.episodes import Example, Rollout, Turn
from judgefree.training.arguments import episode_arguments, lora_config
from judgefree.training.trainer import EpisodeTrainer

PLAIN = PromptFormat(template="{question}", chat=False, answer="boxed")
Gradients = list[dict[str, torch.Tensor]]


class Given:
    """A method that plays the same turns at every rollout."""

    def __init__(self, turns: Callable[[], list[Turn]]) -> None:
        self.turns = turns

    def play(self, examples: Any, policy: Any) -> Rollout:
        return Rollout(self.turns(), [], {"reward": 0.0})

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Watch(TrainerCallback):
    def __init__(self) -> None:
        self.gradients: Gradients = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        named = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        self.gradients.append(named)


def load(folder: Path) -> tuple[Any, Any]:
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder, padding_side="left")


def ours(folder: Path, work: Path, settings: Training, turns: Callable[[], list[Turn]]) -> tuple[Gradients, Any]:
    """Gradients of every step of an EpisodeTrainer, unclipped, and the trainer itself."""
    model, tokenizer = load(folder)
    watch = Watch()
    args = episode_arguments(settings, work, 0)
    args.max_grad_norm = 0.0
    args.optim = "sgd"  # Adam would turn rounding noise in a gradient near 0 into a whole step
    args.save_strategy = "no"
    trainer = EpisodeTrainer(
        model, method=Given(turns), examples=[Example(f"e{i}", "w1") for i in range(64)], training=settings,
        prompt=PLAIN, seed=0, make_engine=lambda *_: None, on_rollout=lambda *_: None, args=args, tokenizer=tokenizer,
        callbacks=[watch], peft_config=lora_config(settings),
    )  # fmt: skip
    trainer.train()
    return watch.gradients, trainer


class Replay(GRPOTrainer):
    """TRL's trainer, unchanged but for its sampler, which gives back completions that are there already."""

    def __init__(self, turns: Sequence[Turn], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.turns = turns

    def _tokenize_prompts(self, prompts: list[str]) -> Any:
        size = self.num_generations  # a prompt is its group's number; TRL repeats it for every sample
        self.rows = [int(prompt) * size + place % size for place, prompt in enumerate(prompts)]
        return [self.turns[row].prompt_ids for row in self.rows], None, {}

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        return [self.turns[row].completion_ids for row in self.rows], None


def theirs(folder: Path, work: Path, settings: Training, turns: Sequence[Turn], rewards: Sequence[float]) -> Gradients:
    """Gradients of every step of TRL's GRPOTrainer on the same turns, with rewards of which it takes advantages itself."""
    model, tokenizer = load(folder)
    watch = Watch()
    group_size = settings.group_size
    prompts = [str(group) for group in range(len(turns) // group_size)]
    args = GRPOConfig(
        output_dir=str(work), max_steps=settings.steps, per_device_train_batch_size=len(turns),
        gradient_accumulation_steps=1, steps_per_generation=1, num_generations=group_size,
        max_completion_length=settings.sampling.max_completion_tokens, beta=settings.loss.kl_weight,
        use_bias_correction_kl=False, loss_type=settings.loss.aggregation,
        importance_sampling_level=settings.loss.ratio, epsilon=settings.loss.clip_low,
        epsilon_high=settings.loss.clip_high, learning_rate=settings.learning_rate, lr_scheduler_type="constant",
        optim="sgd", max_grad_norm=0.0, use_cpu=True, bf16=False, gradient_checkpointing=False,
        dataloader_pin_memory=False, report_to="none", save_strategy="no", disable_tqdm=True, shuffle_dataset=False,
        reward_weights=[1.0],
    )  # fmt: skip

    def reward(prompts: list[str], completions: Any, **_: Any) -> list[float]:
        return [rewards[int(prompt) * group_size + place % group_size] for place, prompt in enumerate(prompts)]

    trainer = Replay(
        turns, model=model, reward_funcs=[reward], args=args, processing_class=tokenizer, callbacks=[watch],
        train_dataset=Dataset.from_dict({"prompt": prompts}),
    )  # fmt: skip
    trainer.train()
    return watch.gradients


def relative_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """|a - b| / |b| over all parameters together."""
    assert one.keys() == other.keys()
    difference = sum(float((one[name] - other[name]).double().pow(2).sum()) for name in one)
    size = sum(float(other[name].double().pow(2).sum()) for name in other)
    return (difference / size) ** 0.5
