"""One training step by TRL's GRPOTrainer and by ours on the same workload: the second half of step_time.py.

Both read the same weights, sample the same greedy tokens (theirs with `generate`, ours with our sampler), give the same
rewards and use 8 micro-batches; the learning rate is so small that no weight moves, so every repetition does the same.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from workload import GROUP_SIZE, GROUPS, LONGEST, Workload, by_generate, by_judgefree, workload

from judgefree.advantages import group_advantages
from judgefree.config import PromptFormat, Training
from judgefree.episodes import Example, Rollout, Turn
from judgefree.training.arguments import episode_arguments
from judgefree.training.trainer import EpisodeTrainer

MICRO_BATCHES, PROMPT_TOKENS = 8, 60
UNMOVED = 1e-12  # learning rate
Gradients = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Setting:
    name: str
    dead_groups: int
    kl_weight: float

    def reward(self, row: int) -> float:
        return 1.0 if row // GROUP_SIZE < self.dead_groups else float(row % GROUP_SIZE < 3)


SETTINGS = {
    "dead": Setting("3 of 8 groups dead, KL 0", 3, 0.0),
    "live": Setting("no dead groups, KL 0", 0, 0.0),
    "kl": Setting("3 of 8 groups dead, KL 0.04", 3, 0.04),
}


class Stopwatch(TrainerCallback):
    """Seconds of every step and of the sampling in it, and the first step's gradient (unclipped)."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.sampling: list[float] = []
        self.gradients: Gradients = {}

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begun = time.perf_counter()

    def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
        if not self.gradients:
            self.gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps.append(time.perf_counter() - self.begun)

    def sample(self, sampler: Any, work: Workload) -> list[list[int]]:
        start = time.perf_counter()
        completions = sampler(work)
        self.sampling.append(time.perf_counter() - start)
        return completions

    def medians(self) -> tuple[float, float, float]:
        """Seconds of sampling, of the rest (the update) and of the whole step, the first step left out."""
        pairs = list(zip(self.sampling, self.steps, strict=True))[1:]
        update = statistics.median(step - sampling for sampling, step in pairs)
        return statistics.median(s for s, _ in pairs), update, statistics.median(step for _, step in pairs)


class ByTrl(GRPOTrainer):
    """TRL's trainer; only its prompts are given as ids, and its completions forced to the workload's lengths."""

    work: Workload
    watch: Stopwatch

    def _tokenize_prompts(self, prompts: list[str]) -> Any:
        return [self.work.prompts[int(prompt)] for prompt in prompts], None, {}

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        return self.watch.sample(by_generate, self.work), None


class Play:
    """Our side's method: samples, rewards and advantages as the method `rlvr` has them."""

    def __init__(self, setting: Setting, watch: Stopwatch, tokenizer: Any) -> None:
        self.setting, self.watch, self.tokenizer = setting, watch, tokenizer
        self.work: Workload | None = None

    def play(self, examples: Any, policy: Any) -> Rollout:
        assert self.work is not None
        completions = self.watch.sample(by_judgefree, self.work)
        self.tokenizer.batch_decode(completions)  # TRL reads the texts too
        groups = [str(row // GROUP_SIZE) for row in range(len(completions))]
        advantages, dead = group_advantages([self.setting.reward(row) for row in range(len(groups))], groups, "grpo")
        turns = [
            Turn(self.work.prompts[int(group)], ids, "attempt", group, advantage=float(advantage), dead=bool(is_dead))
            for group, ids, advantage, is_dead in zip(groups, completions, advantages, dead, strict=True)
        ]
        return Rollout(turns, [], {"reward": 0.0})

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def our_settings(setting: Setting) -> Training:
    rows = GROUPS * GROUP_SIZE
    return Training.model_validate(
        {
            "engine": "transformers", "device": "cpu", "precision": "fp32", "processes": 1, "steps": 1, "save_every": 1,
            "rollout_size": rows, "group_size": GROUP_SIZE, "updates_per_rollout": 1, "micro_batches": MICRO_BATCHES,
            "sampling_batch_rows": rows, "advantage": "grpo", "truncated": "keep", "max_prompt_tokens": PROMPT_TOKENS,
            "sampling": {"temperature": 1.0, "max_completion_tokens": LONGEST},
            "loss": {"aggregation": "dapo", "ratio": "token", "clip_low": 0.2, "clip_high": 0.2,
                     "kl_weight": setting.kl_weight},
            "learning_rate": UNMOVED, "schedule": "constant", "warmup_share": 0.0, "weight_decay": 0.0,
            "max_grad_norm": 1.0, "max_bad_steps": 1, "validation_items": 1,
        }
    )  # fmt: skip


def no_engine(*_: Any) -> Any:
    """The games are played by `Play`, which times its own sampling."""


def make_ours(folder: Path, setting: Setting, tokenizer: Any) -> tuple[Any, Stopwatch]:
    watch, training = Stopwatch(), our_settings(setting)
    args = episode_arguments(training, folder / "ours", 0)
    args.max_grad_norm, args.save_strategy = 0.0, "no"
    play = Play(setting, watch, tokenizer)
    trainer = EpisodeTrainer(
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), method=play,
        examples=[Example(str(group), "") for group in range(GROUPS)], training=training,
        prompt=PromptFormat(template="{question}", chat=False, answer="boxed"), seed=0,
        make_engine=no_engine, on_rollout=lambda *_: None, args=args, tokenizer=tokenizer, callbacks=[watch],
    )  # fmt: skip
    play.work = workload(trainer.model, PROMPT_TOKENS)
    return trainer, watch


def make_theirs(folder: Path, setting: Setting, tokenizer: Any) -> tuple[Any, Stopwatch]:
    def reward(prompts: list[str], completions: Any, **_: Any) -> list[float | None]:
        rows = (int(prompt) * GROUP_SIZE + place % GROUP_SIZE for place, prompt in enumerate(prompts))
        return [setting.reward(row) for row in rows]

    watch = Stopwatch()
    args = GRPOConfig(
        output_dir=str(folder / "theirs"), max_steps=1, per_device_train_batch_size=GROUPS * GROUP_SIZE // MICRO_BATCHES,
        gradient_accumulation_steps=MICRO_BATCHES, steps_per_generation=MICRO_BATCHES, num_generations=GROUP_SIZE,
        max_completion_length=LONGEST, beta=setting.kl_weight, use_bias_correction_kl=False, loss_type="dapo",
        learning_rate=UNMOVED, lr_scheduler_type="constant", max_grad_norm=0.0, use_cpu=True, bf16=False,
        gradient_checkpointing=False, dataloader_pin_memory=False, report_to="none", save_strategy="no",
        disable_tqdm=True, shuffle_dataset=False,
    )  # fmt: skip
    trainer = ByTrl(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), reward_funcs=[reward], args=args,
        processing_class=tokenizer, callbacks=[watch],
        train_dataset=Dataset.from_dict({"prompt": [str(group) for group in range(GROUPS)]}),
    )  # fmt: skip
    trainer.work, trainer.watch = workload(trainer.model, PROMPT_TOKENS), watch
    return trainer, watch


def bench_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"t{i}": i for i in range(3, vocabulary)}
    core = Tokenizer(models.WordLevel(words, "<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def relative_difference(one: Gradients, other: Gradients) -> float:
    """|a - b| / |b| over all parameters together."""
    difference = sum(float((one[name] - other[name]).double().square().sum()) for name in other)
    return (difference / sum(float(value.double().square().sum()) for value in other.values())) ** 0.5


def compare_steps(model: Any, setting: Setting, repetitions: int) -> None:
    """Prints seconds and ratios of sampling, update and whole step, after checking that the gradients are equal."""
    tokenizer = bench_tokenizer(model.config.get_text_config().vocab_size)
    with tempfile.TemporaryDirectory() as name:
        model.save_pretrained(name)  # TRL loads the reference model from the folder
        trainers = [make(Path(name), setting, tokenizer) for make in (make_theirs, make_ours)]
        for trainer, _ in trainers:
            trainer.remove_callback(PrinterCallback)
        for _ in range(1 + repetitions):
            for trainer, _ in trainers:
                trainer.train()
    (_, theirs), (_, ours) = trainers
    difference = relative_difference(ours.gradients, theirs.gradients)
    if difference > 1e-5:
        raise SystemExit(f"{setting.name}: the gradients differ by {difference:.1e}")
    for part, slow, fast in zip(("sampling", "update", "whole step"), theirs.medians(), ours.medians(), strict=True):
        print(f"{setting.name}, {part}: TRL {slow:6.2f} s, judgefree {fast:6.2f} s, {slow / fast:.2f} times as fast")
    print(f"{setting.name}: gradients differ by {difference:.1e}", flush=True)
