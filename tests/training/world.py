"""Settings and turns for the trainer's tests: ragged lengths, dead groups and both signs of advantage."""

import random

from judgefree.config import Training
from judgefree.episodes import Turn

TRAINING = {
    "engine": "transformers", "device": "cpu", "precision": "fp32", "processes": 1, "steps": 4, "save_every": 4,
    "rollout_size": 16, "group_size": 4, "updates_per_rollout": 1, "micro_batches": 2, "sampling_batch_rows": 64,
    "advantage": "grpo", "truncated": "keep", "max_prompt_tokens": 16,
    "sampling": {"temperature": 1.0, "max_completion_tokens": 12},
    "loss": {"aggregation": "dapo", "ratio": "token", "clip_low": 0.2, "clip_high": 0.2, "kl_weight": 0.0},
    "learning_rate": 0.05, "schedule": "constant", "warmup_share": 0.0, "weight_decay": 0.0, "max_grad_norm": 1.0,
    "max_bad_steps": 3, "validation_items": 8,
}  # fmt: skip


def training(**changes: object) -> Training:
    """The settings above with some keys replaced; `loss` and `sampling` are merged."""
    merged = dict(TRAINING)
    for key, value in changes.items():
        merged[key] = {**merged[key], **value} if isinstance(value, dict) and key in merged else value
    return Training.model_validate(merged)


def group_rewards(group: int, size: int, dead_groups: tuple[int, ...]) -> list[float]:
    return [1.0] * size if group in dead_groups else [float(i % 2) + 0.25 * (i == 0) for i in range(size)]


def make_turns(groups: int = 4, size: int = 4, seed: int = 0, dead_groups: tuple[int, ...] = (1,)) -> list[Turn]:
    """Groups one after the other, with GRPO advantages of `group_rewards`."""
    draw = random.Random(seed)
    turns = []
    for group in range(groups):
        prompt = [draw.randrange(3, 30) for _ in range(draw.randrange(1, 7))]
        rewards = group_rewards(group, size, dead_groups)
        mean = sum(rewards) / size
        std = (sum((r - mean) ** 2 for r in rewards) / (size - 1)) ** 0.5
        for reward in rewards:
            length = draw.randrange(1, 12)
            ids = [draw.randrange(3, 30) for _ in range(length)] + [1]
            advantage = 0.0 if std == 0 else (reward - mean) / (std + 1e-4)
            turns.append(Turn(prompt, ids, "attempt", f"g{group}", advantage=advantage, dead=std == 0))
    return turns
