"""A tiny random policy on disk, and turns with ragged lengths, dead groups and both signs of advantage."""

import random
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

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


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer Llama with 30 words, saved to a folder."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny")
    words = ["<pad>", "<eos>", "<unk>", *[f"w{i}" for i in range(27)]]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # far from uniform, so that ratios, entropies and KL differ visibly
    model.save_pretrained(folder)
    return folder


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
