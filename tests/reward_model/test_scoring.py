"""A reward model's scores: those of Transformers' forward on single rows, in any company, with one BOS, cut in messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

from judgefree.errors import JudgefreeError
from judgefree.reward_model.scoring import (
    RewardModelScorer,
    encode,
    last_token_scores,
    load_reward_model,
    token_batches,
)

WORDS = ["<s>", "<eos>", "<unk>", "[user]", "[assistant]", *[f"w{i}" for i in range(40)]]
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}<eos>"


def word_tokenizer(template: str = TEMPLATE, adds_bos: bool = False) -> PreTrainedTokenizerFast:
    """Words; padding is the end token, as in many chat models, and so is the template's last token."""
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if adds_bos:
        core.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="<eos>", pad_token="<eos>", unk_token="<unk>"
    )
    tokenizer.chat_template = template
    return tokenizer


def reward_model(labels: int = 1) -> LlamaForSequenceClassification:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, num_labels=labels, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    model = LlamaForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # far from uniform, so that scores differ visibly
    return model.eval()


def talk(*lengths: int) -> list[dict[str, str]]:
    """Turns of user and assistant with so many different words each."""
    return [
        {"role": ("user", "assistant")[i % 2], "content": " ".join(f"w{(7 * i + k) % 40}" for k in range(n))}
        for i, n in enumerate(lengths)
    ]


def words_of(ids: Sequence[int]) -> list[str]:
    return [WORDS[i] for i in ids]


TALKS = [talk(3, n) for n in (1, 40, 7, 2, 25, 7, 13, 1)]


@pytest.fixture(scope="module")
def model() -> LlamaForSequenceClassification:
    return reward_model()


def test_scores_are_those_of_transformers_for_a_row_by_itself(model: Any) -> None:
    """Its forward looks for the last token that is no padding, and would pass over an end token that pads; without
    a padding token it takes the last."""
    tokenizer = word_tokenizer()
    model.config.pad_token_id = None
    with torch.no_grad():
        rows = [torch.tensor([encode(tokenizer, one, 64)[0]]) for one in TALKS]
        alone = [model(input_ids=row).logits.item() for row in rows]
    model.config.pad_token_id = 1
    assert len({round(score, 3) for score in alone}) == 6  # those of 7 and of 1 words are there twice
    for budget in (1, 64, 150, 10_000):
        assert RewardModelScorer(model, tokenizer, 64, budget)(TALKS) == pytest.approx(alone, abs=1e-5)


def test_a_row_alone_and_beside_a_longer_one(model: Any) -> None:
    short, long = [3, 6, 7, 1], list(range(5, 45))
    alone, (beside, _) = last_token_scores(model, [short]), last_token_scores(model, [short, long])
    assert beside == pytest.approx(alone[0], abs=1e-5)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_batches_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = token_batches(lengths, budget)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    flat = [lengths[place] for batch in batches for place in batch]
    assert flat == sorted(lengths, reverse=True)
    assert all(len(batch) * lengths[batch[0]] <= budget or len(batch) == 1 for batch in batches)
    for one, following in zip(batches, batches[1:], strict=False):  # none was closed too early
        assert (len(one) + 1) * lengths[one[0]] > budget or following == []


@pytest.mark.parametrize(
    ("template", "adds_bos", "begins"),
    [
        (TEMPLATE, False, ["[user]", "w0"]),           # neither wants one
        (TEMPLATE, True, ["<s>", "[user]"]),           # the template leaves it to the tokenizer
        ("<s> " + TEMPLATE, True, ["<s>", "[user]"]),  # both would
        ("<s> " + TEMPLATE, False, ["<s>", "[user]"]),
        ("<s> <s> " + TEMPLATE, False, ["<s>", "[user]"]),
    ],
)  # fmt: skip
def test_one_bos(template: str, adds_bos: bool, begins: list[str]) -> None:
    ids, _ = encode(word_tokenizer(template, adds_bos), talk(2, 2), 64)
    assert words_of(ids[:2]) == begins


def test_a_cut_is_inside_a_message_and_counted(model: Any) -> None:
    tokenizer = word_tokenizer()
    ids, cut = encode(tokenizer, talk(3, 30), 20)  # template: two roles and the end
    assert cut and words_of(ids) == [
        "[user]",
        "w0",
        "w1",
        "w2",
        "[assistant]",
        *[f"w{7 + k}" for k in range(14)],
        "<eos>",
    ]
    # the answer is cut to half of the room, then the longest message gives the rest
    ids, _ = encode(tokenizer, talk(30, 30), 20)
    assert words_of(ids) == [
        "[user]",
        *[f"w{k}" for k in range(7)],
        "[assistant]",
        *[f"w{7 + k}" for k in range(10)],
        "<eos>",
    ]
    # a long prompt leaves a short answer whole, and an earlier turn is the first to go
    ids, _ = encode(tokenizer, talk(30, 2, 3, 4), 20)
    assert words_of(ids).count("[user]") == 2 and words_of(ids)[-6:] == [
        "[assistant]",
        "w21",
        "w22",
        "w23",
        "w24",
        "<eos>",
    ]
    assert len(ids) == 20
    assert encode(tokenizer, talk(3, 14), 20)[1] is False
    scorer = RewardModelScorer(model, tokenizer, 20, 100)
    scorer([talk(3, 30), talk(3, 14), talk(30, 30)])
    assert scorer.truncated == 2
    assert (scorer.tokens, scorer.unknown) == (3 * 20, 0)
    scorer([[{"role": "user", "content": "w1 nothing"}, {"role": "assistant", "content": "so w2 w3"}]])
    assert (scorer.tokens, scorer.unknown) == (3 * 20 + 8, 2)
    tokenizer.unk_token = "<eos>"  # which stands in every template
    assert RewardModelScorer(model, tokenizer, 20, 100).unknown_ids == set()
    with pytest.raises(JudgefreeError, match="max_tokens is 2 and the template alone takes 3 tokens"):
        encode(tokenizer, talk(1, 1), 2)


def test_folders(tmp_path: Path) -> None:
    """Saved by Transformers, loaded again; bf16 keeps the head in float32, so that near scores stay apart (fault D14)."""
    model = reward_model()
    model.save_pretrained(tmp_path / "rm")
    word_tokenizer().save_pretrained(tmp_path / "rm")
    scores = RewardModelScorer(*load_reward_model(tmp_path / "rm", "cpu", "fp32"), 64, 100)(TALKS)
    assert scores == pytest.approx(RewardModelScorer(model, word_tokenizer(), 64, 100)(TALKS), abs=1e-6)
    loaded, _ = load_reward_model(tmp_path / "rm", "cpu", "bf16")
    assert loaded.model.embed_tokens.weight.dtype == torch.bfloat16
    assert torch.equal(loaded.score.weight, model.score.weight)


def test_three_near_rewards_stay_three_in_bf16(tmp_path: Path) -> None:
    model = reward_model()
    with torch.no_grad():  # without layers the hidden state is sqrt(16) = 4 times the token's unit vector
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(1.0)
        model.model.embed_tokens.weight.zero_()
        for token, reward in ((5, 7.71), (6, 7.72), (7, 7.73)):
            model.model.embed_tokens.weight[token, token] = 1.0
            model.score.weight[0, token] = reward / 4
    model.save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    loaded, _ = load_reward_model(tmp_path, "cpu", "bf16")
    assert last_token_scores(loaded, [[5], [6], [7]]) == pytest.approx([7.71, 7.72, 7.73], abs=1e-3)


def test_what_is_no_reward_model_is_refused(tmp_path: Path) -> None:
    reward_model(labels=3).save_pretrained(tmp_path / "three")
    policy = LlamaForCausalLM(reward_model().config)
    policy.save_pretrained(tmp_path / "policy")
    for name in ("three", "policy"):
        word_tokenizer().save_pretrained(tmp_path / name)
    with pytest.raises(JudgefreeError, match=r"three has no head `score` with one label \(num_labels is 3\)"):
        load_reward_model(tmp_path / "three", "cpu", "fp32")
    with pytest.raises(JudgefreeError, match=r"policy lacks weights: score\.weight"):
        load_reward_model(tmp_path / "policy", "cpu", "fp32")
    with pytest.raises(JudgefreeError, match="gone cannot be loaded"):
        load_reward_model(tmp_path / "gone", "cpu", "fp32")
    with pytest.raises(JudgefreeError, match="max_tokens is 65 and the model takes 64"):
        RewardModelScorer(reward_model(), word_tokenizer(), 65, 100)
    with pytest.raises(JudgefreeError, match="no chat template"):
        encode(word_tokenizer(""), talk(1, 1), 10)
