"""A real Llama whose distribution is known: attention and MLP add nothing, so the next token depends on the last alone.

With one-hot embeddings and RMSNorm the hidden state is sqrt(hidden size) times the token's unit vector, and the output
matrix is a table of logits by hand.
"""

import math
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from judgefree.files import pretty_json, seal, write_atomic

TOWER = "####9^{9^{9^{9}}}"
WORDS = ["<pad>", "<eos>", "<unk>", "one", "two", "none", "round", "tower", "####1", "####2", "####3", "hm", TOWER]
# What follows each word, with its probability; everything that is not named ends.
NEXT = {
    "one": {"####1": 1.0},
    "two": {"####2": 0.6, "####3": 0.4},
    "none": {"hm": 1.0},
    "round": {"round": 1.0},
    "tower": {TOWER: 1.0},
}


def bigram_model() -> LlamaForCausalLM:
    size = 16  # hidden size: even heads need a multiple, so a few dimensions stay empty
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=size, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=1, pad_token_id=0, rms_norm_eps=1e-12,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(len(WORDS), size))
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        logits = torch.full((len(WORDS), len(WORDS)), -40.0)  # e^-40 is never drawn
        for place, word in enumerate(WORDS):
            for follower, probability in NEXT.get(word, {"<eos>": 1.0}).items():
                logits[place, WORDS.index(follower)] = math.log(probability)
        model.lm_head.weight.zero_()
        model.lm_head.weight[:, : len(WORDS)] = logits.T / math.sqrt(size)
    return model.eval()


def word_tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


@pytest.fixture(scope="session")
def bigram() -> SimpleNamespace:
    return SimpleNamespace(model=bigram_model(), tokenizer=word_tokenizer())


# id, question, gold
ROWS = [
    ("right", "one", "1"),
    ("mode", "two", "2"),
    ("rare", "two", "3"),
    ("mute", "none", "1"),
    ("endless", "round", "1"),
]
SUITE = {
    "dataset": "toy", "max_completion_tokens": 6, "batch_rows": 8, "samples": 4, "pass_at": [1, 2, 4],
    "temperature": 1.0, "seed": 0,
}  # fmt: skip
PROMPT = {"template": "{question}", "chat": False, "answer": "marker"}


def write_project(root: Path, bigram: SimpleNamespace, suites: dict[str, dict]) -> None:
    """A prepared data set `toy`, a trained model `toy-run` and the resolved settings of its evaluation."""
    data = pd.DataFrame([{"id": i, "question": q, "answer": a, "demonstration": None} for i, q, a in ROWS])
    (root / "data" / "toy").mkdir(parents=True)
    data.astype({"demonstration": "string"}).to_parquet(root / "data" / "toy" / "test.parquet")
    data.astype({"demonstration": "string"}).to_parquet(root / "data" / "toy" / "train.parquet")
    seal(root / "data" / "toy", {"key": "by hand"})
    model = root / "models" / "toy-run"
    bigram.model.save_pretrained(model)
    bigram.tokenizer.save_pretrained(model)
    history = pd.DataFrame({"step": [0, 2, 4], "reward": [None, 0.25, 0.5], "validation/pass@1": [0.1, None, 0.4]})
    history.to_parquet(model / "history.parquet")
    seal(model, {"kind": "run", "method": "rlvr", "seed": 0, "select": "last", "steps": 4, "selected_step": 4})
    write_settings(root, suites)


def write_settings(root: Path, suites: dict[str, dict]) -> None:
    settings = {"threads": 1, "grading": {"workers": 1, "timeout_s": 2.0}, "suites": suites, "prompts": {"toy": PROMPT}}
    write_atomic(root / "resolved" / "evaluate" / "toy-run.json", pretty_json(settings))


@pytest.fixture
def project(tmp_path: Path, bigram: SimpleNamespace) -> SimpleNamespace:
    write_project(tmp_path / "project", bigram, {"small": SUITE})
    return SimpleNamespace(root=tmp_path / "project", write=write_project, settings=write_settings, suite=SUITE)
