"""A tiny random policy folder with a chat template, and a reward model made of it."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from judgefree.bases.scratch import build_tokenizer
from judgefree.data.arithmetic import vocabulary
from judgefree.reward_model.model import (
    ValueAnchoredRewardModel,
    fresh_value_head,
    load_classifier,
    load_tokenizer,
)


def policy_folder(folder: Path) -> Path:
    tokenizer = build_tokenizer([*vocabulary(12), "sure"], 128)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    ))  # fmt: skip
    with torch.no_grad():  # responses that end: only those take part in a reward model's step
        model.lm_head.weight[tokenizer.eos_token_id] *= 16
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def reward_model(folder: Path, max_tokens: int = 128) -> ValueAnchoredRewardModel:
    classifier = load_classifier(folder, 0)
    head = fresh_value_head(classifier)
    torch.manual_seed(1)
    torch.nn.init.normal_(head.weight)
    return ValueAnchoredRewardModel(classifier, head, load_tokenizer(folder), max_tokens).eval()
