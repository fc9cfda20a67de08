"""Self-certainty against whole logits, in the trainer's own pass, and where it must be refused."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from harness import PLAIN, Given, load
from torch import nn
from world import make_turns, training

from judgefree.episodes import Example
from judgefree.errors import JudgefreeError
from judgefree.training import certainty
from judgefree.training.arguments import episode_arguments, lora_config
from judgefree.training.certainty import linear_head, token_certainty
from judgefree.training.trainer import EpisodeTrainer


def slow(logits: list[float]) -> float:
    """KL(U || softmax(z)) = - log|V| - mean of log p, term by term."""
    top = max(logits)
    total = math.log(math.fsum(math.exp(z - top) for z in logits)) + top
    return -math.log(len(logits)) - math.fsum(z - total for z in logits) / len(logits)


def pieces(rows: int = 40, width: int = 8, vocabulary: int = 50, bias: bool = True) -> tuple:
    torch.manual_seed(0)
    head = nn.Linear(width, vocabulary, bias=bias)
    nn.init.normal_(head.weight, std=1.5)
    return torch.randn(rows, width), torch.randint(vocabulary, (rows,)), head


def measured(hidden: torch.Tensor, ids: torch.Tensor, head: nn.Linear, temperature: float = 1.0, chunk: int = 4096):
    logits = head(hidden) / temperature
    logprobs = logits.log_softmax(-1).gather(1, ids[:, None])[:, 0]
    with torch.no_grad():
        return token_certainty(hidden, ids, logprobs, head, temperature, chunk)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_against_whole_logits(bias: bool, temperature: float) -> None:
    hidden, ids, head = pieces(bias=bias)
    expected = [slow((row / temperature).tolist()) for row in head(hidden)]
    assert measured(hidden, ids, head, temperature).tolist() == pytest.approx(expected, abs=1e-4)


def test_ten_thousand_positions_against_the_slow_sum() -> None:
    hidden, ids, head = pieces(rows=10_000, vocabulary=11)
    assert measured(hidden, ids, head).tolist() == pytest.approx([slow(row) for row in head(hidden).tolist()], abs=1e-4)


def test_a_constant_on_the_logits_changes_nothing() -> None:
    hidden, ids, head = pieces()
    before = measured(hidden, ids, head)
    with torch.no_grad():
        head.bias += 30.0
    assert torch.allclose(measured(hidden, ids, head), before, atol=1e-4)


def test_uniform_logits_give_zero_and_a_sure_policy_much() -> None:
    hidden, ids, head = pieces()
    with torch.no_grad():
        head.weight[:] = head.weight[0]  # every token has the same logit, whatever it is
        head.bias[:] = 3.0
    assert measured(hidden, ids, head).abs().max() < 1e-5
    with torch.no_grad():
        head.weight.zero_()
        head.bias[:] = torch.tensor([50.0] + [0.0] * 49)
    assert measured(hidden, ids * 0, head).tolist() == pytest.approx([50 - 50 / 50 - math.log(50)] * 40, abs=1e-4)


def test_it_does_not_depend_on_the_token_that_was_sampled() -> None:
    hidden, _, head = pieces()
    one, other = (measured(hidden, torch.full((40,), token), head) for token in (3, 44))
    assert torch.allclose(one, other, atol=1e-4)


def test_chunks_change_no_value_and_bound_what_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, ids, head = pieces()
    seen: list[int] = []
    plain = torch.Tensor.float
    monkeypatch.setattr(torch.Tensor, "float", lambda self: (seen.append(self.numel()), plain(self))[1])
    whole, split = measured(hidden, ids, head), measured(hidden, ids, head, chunk=7)
    assert torch.equal(whole, split)
    seen.clear()
    measured(hidden, ids, head, chunk=7)
    assert max(seen) == 7 * 8  # tokens of a chunk by hidden size; 40 * 50 would be the logits


def test_a_large_vocabulary_in_bf16_stays_close_to_float32() -> None:
    torch.manual_seed(0)
    head, hidden = nn.Linear(64, 20_000, bias=False), torch.randn(30, 64)
    nn.init.normal_(head.weight, std=0.3)
    ids = torch.randint(20_000, (30,))
    exact = torch.tensor([slow(row.tolist()) for row in head(hidden)])
    head16, hidden16 = head.bfloat16(), hidden.bfloat16()
    logprobs = head16(hidden16).float().log_softmax(-1).gather(1, ids[:, None])[:, 0]
    with torch.no_grad():
        values = token_certainty(hidden16, ids, logprobs, head16, 1.0)
    assert values.dtype == torch.float32 and (values - exact).abs().max() < 0.1 and (values - exact).mean().abs() < 0.02


def trainer_on(tiny: Path, work: Path, **changes: object) -> EpisodeTrainer:
    settings = training(steps=1, save_every=1, **changes)
    model, tokenizer = load(tiny)
    args = episode_arguments(settings, work, 0)
    args.save_strategy = "no"
    return EpisodeTrainer(
        model, method=Given(make_turns), examples=[Example(f"e{i}", "w1") for i in range(64)], training=settings,
        prompt=PLAIN, seed=0, make_engine=lambda *_: None, on_rollout=lambda *_: None, args=args, tokenizer=tokenizer,
        peft_config=lora_config(settings),
    )  # fmt: skip


LORA = {"rank": 2, "alpha": 4, "dropout": 0.0, "target_modules": ["q_proj", "v_proj"]}


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_policy_scores_and_measures_in_one_pass(
    tiny: Path, tmp_path: Path, lora: dict | None, temperature: float
) -> None:
    trainer = trainer_on(tiny, tmp_path, lora=lora, sampling={"temperature": temperature})
    turns = make_turns()
    passes: list[int] = []
    forward = trainer._forward
    trainer._forward = lambda *a: (passes.append(1), forward(*a))[1]  # type: ignore[method-assign]
    values = trainer.policy.self_certainty(turns)
    assert len(passes) == 2  # as many micro-batches as the scoring pass makes
    logprobs = [turn.old_logprobs for turn in turns]
    assert logprobs == trainer.policy.score(turns)
    model = trainer.model
    for turn, value, scores in zip(turns, values, logprobs, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([turn.prompt_ids + turn.completion_ids])).logits[0] / temperature
        at = logits[len(turn.prompt_ids) - 1 : -1]
        expected = [slow(row.tolist()) for row in at]
        assert value == pytest.approx(sum(expected) / len(expected), abs=1e-4)
        assert scores == pytest.approx(at.log_softmax(-1)[range(len(at)), turn.completion_ids].tolist(), abs=1e-4)
    assert trainer.policy.self_certainty([]) == []


def test_an_output_embedding_that_is_not_whole_is_refused(tiny: Path, tmp_path: Path) -> None:
    trainer = trainer_on(tiny, tmp_path)
    head = trainer.model.get_output_embeddings()
    head.weight.data = head.weight.data[:0]  # as where weights are spread over devices
    with pytest.raises(JudgefreeError, match="reads the whole output embedding"):
        trainer.policy.self_certainty(make_turns())


@pytest.mark.parametrize(
    ("name", "value"), [("final_logit_softcapping", 30.0), ("logit_scale", 0.0625), ("logits_scaling", 8.0)]
)
def test_logits_that_are_not_linear_are_refused(name: str, value: float) -> None:
    config = SimpleNamespace(**{name: value})
    config.get_text_config = lambda: config
    model = SimpleNamespace(config=config, get_output_embeddings=lambda: nn.Linear(2, 3))
    with pytest.raises(JudgefreeError, match=name):
        linear_head(model)
    setattr(config, name, None)
    assert linear_head(model).out_features == 3
    assert certainty.CHUNK_TOKENS * 2048 * 4 < 64 << 20  # bytes of float32 at a hidden size of 2,048
