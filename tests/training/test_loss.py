"""The loss against a slow plain oracle, by hand, and at the places where the neighbours' losses broke."""

import math
import random

import pytest
import torch

from judgefree.config import Loss
from judgefree.training.loss import (
    Denominators,
    LossInputs,
    aggregate,
    covariance,
    k3,
    select_clip_cov,
    select_kl_cov,
    token_losses,
)

BASE = {"aggregation": "dapo", "ratio": "token", "clip_low": 0.2, "clip_high": 0.28, "kl_weight": 0.0}


def settings(**changes: object) -> Loss:
    return Loss.model_validate({**BASE, **changes})


def oracle(rows: list[dict], loss: Loss) -> float:
    """The token-mean loss in plain Python floats, one token after the other."""
    total, tokens = 0.0, 0
    for row in rows:
        steps = [now - old for now, old in zip(row["now"], row["old"], strict=True)]
        for t, now in enumerate(row["now"]):
            ratio = math.exp(steps[t] if loss.ratio == "token" else sum(steps) / len(steps))
            value = 0.0
            if not row["imitation"]:
                a = row["advantage"]
                bounded = min(max(ratio, 1 - loss.clip_low), 1 + loss.clip_high)
                value = -min(ratio * a, bounded * a)
                if loss.kl_cov and row["selected"][t]:
                    value = -ratio * a + loss.kl_cov.weight * abs(steps[t])
                if loss.clip_cov and row["selected"][t]:
                    value = 0.0
                d = row["ref"][t] - now
                value += loss.kl_weight * (math.exp(d) - d - 1) * (ratio if loss.kl_bias_correction else 1.0)
            value -= row["imitation"] * now
            total += value
            tokens += 1
    return total / tokens


def random_rows(draw: random.Random) -> list[dict]:
    rows = []
    for _ in range(draw.randrange(1, 5)):
        length = draw.randrange(1, 6)
        rows.append({
            "now": [-draw.random() * 3 for _ in range(length)],
            "old": [-draw.random() * 3 for _ in range(length)],
            "ref": [-draw.random() * 3 for _ in range(length)],
            "selected": [draw.random() < 0.3 for _ in range(length)],
            "advantage": draw.choice([0.0, draw.uniform(-2, 2)]),
            "imitation": draw.choice([0.0, 0.0, draw.random()]),
        })  # fmt: skip
    return rows


def as_tensors(rows: list[dict], loss: Loss) -> tuple[torch.Tensor, LossInputs]:
    width = max(len(row["now"]) for row in rows) + 1  # always some padding

    def padded(name: str) -> torch.Tensor:
        return torch.tensor([row[name] + [0] * (width - len(row[name])) for row in rows])

    mask = torch.tensor([[1.0] * len(row["now"]) + [0.0] * (width - len(row["now"])) for row in rows])
    column = [[row["imitation"]] for row in rows]
    return padded("now").float(), LossInputs(
        mask=mask,
        advantages=torch.tensor([[row["advantage"]] for row in rows]).expand_as(mask),
        policy_rows=torch.tensor([[float(value[0] == 0)] for value in column]),
        imitation_weight=torch.tensor(column),
        old_logprobs=padded("old").float(),
        ref_logprobs=padded("ref").float() if loss.kl_weight else None,
        selected=padded("selected").bool() if loss.kl_cov or loss.clip_cov else None,
    )


@pytest.mark.parametrize(
    "changes",
    [{}, {"ratio": "sequence"}, {"kl_weight": 0.3}, {"kl_weight": 0.3, "kl_bias_correction": True},
     {"kl_cov": {"share": 0.02, "weight": 5.0}}, {"clip_cov": {"share": 0.02, "low": 1.0, "high": 5.0}},
     {"kl_cov": {"share": 0.02, "weight": 0.5}, "kl_weight": 0.1, "ratio": "sequence"}],
)  # fmt: skip
def test_against_oracle(changes: dict) -> None:
    loss, draw = settings(**changes), random.Random(1)
    for _ in range(400):
        rows = random_rows(draw)
        logprobs, inputs = as_tensors(rows, loss)
        losses, _ = token_losses(logprobs, inputs, loss)
        counts = Denominators(len(rows), float(inputs.mask.sum()), float(inputs.mask.sum()), 8, 1)
        assert float(aggregate(losses, inputs.mask, loss, counts)) == pytest.approx(
            oracle(rows, loss), rel=2e-4, abs=2e-5
        )


def test_aggregations_by_hand() -> None:
    """Two sequences with token losses [1, 3] and [5]: the four means are 3.5, 3, 3 and 9 / (2 * 4)."""
    losses, mask = torch.tensor([[1.0, 3.0], [5.0, 0.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    counts = Denominators(rows=2, tokens_here=3, tokens_everywhere=3, max_completion_tokens=4, processes=1)
    expected = {"grpo": 3.5, "bnpo": 3.0, "dapo": 3.0, "dr_grpo": 1.125}
    for name, value in expected.items():
        assert float(aggregate(losses, mask, settings(aggregation=name), counts)) == pytest.approx(value)


@pytest.mark.parametrize("aggregation", ["grpo", "bnpo", "dapo", "dr_grpo"])
def test_a_batch_from_which_nothing_is_learnt_is_finite(aggregation: str) -> None:
    """SAVE's filter kept no response: rows of padding, none counted."""
    logprobs, mask = torch.full((2, 3), -1.0, requires_grad=True), torch.zeros(2, 3)
    counts = Denominators(rows=0, tokens_here=0, tokens_everywhere=0, max_completion_tokens=4, processes=1)
    loss = aggregate(logprobs * mask, mask, settings(aggregation=aggregation), counts)
    loss.backward()
    assert loss.item() == 0.0 and logprobs.grad is not None and logprobs.grad.abs().sum() == 0.0


def test_equal_token_gradient_for_short_and_long_answers() -> None:
    """The default divides by tokens, not by the answer's length: a wrong long answer is not punished less (faults A13)."""
    logprobs = torch.full((2, 1000), -1.0, requires_grad=True)
    mask = torch.zeros(2, 1000)
    mask[0, :10], mask[1, :] = 1.0, 1.0
    inputs = LossInputs(mask, -torch.ones(2, 1000), torch.ones(2, 1), torch.zeros(2, 1))
    losses, _ = token_losses(logprobs, inputs, settings())
    aggregate(losses, mask, settings(), Denominators(2, 1010, 1010, 1000, 1)).backward()
    assert logprobs.grad is not None
    assert logprobs.grad[0, 0] == logprobs.grad[1, 999] > 0


def test_far_reference_stays_finite_and_is_counted() -> None:
    logprobs = torch.tensor([[-200.0]], requires_grad=True)
    inputs = LossInputs(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1), torch.zeros(1, 1), None,
                        torch.tensor([[-0.1]]))  # fmt: skip
    losses, statistics = token_losses(logprobs, inputs, settings(kl_weight=1.0))
    losses.sum().backward()
    assert torch.isfinite(losses).all() and logprobs.grad is not None and torch.isfinite(logprobs.grad).all()
    assert float(statistics["kl/clamped"].sum()) == 1.0


def test_padding_never_reaches_the_gradient() -> None:
    """old = -200 on a padded column: exp before the mask would be inf, and inf * 0 a NaN gradient (faults A3)."""
    logprobs = torch.tensor([[-1.0, 0.0]], requires_grad=True)
    inputs = LossInputs(torch.tensor([[1.0, 0.0]]), torch.ones(1, 2), torch.ones(1, 1), torch.zeros(1, 1),
                        torch.tensor([[-1.0, -200.0]]))  # fmt: skip
    losses, _ = token_losses(logprobs, inputs, settings())
    losses.sum().backward()
    assert logprobs.grad is not None and logprobs.grad.tolist() == [[-1.0, 0.0]]


def test_kl_cov_has_no_gradient_at_ratio_one_and_some_after() -> None:
    loss = settings(kl_cov={"share": 0.5, "weight": 2.0})
    gradients = []
    for old in (-1.0, -1.1):
        logprobs = torch.tensor([[-1.0]], requires_grad=True)
        inputs = LossInputs(torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(1, 1),
                            torch.tensor([[old]]), None, torch.ones(1, 1, dtype=torch.bool))  # fmt: skip
        token_losses(logprobs, inputs, loss)[0].sum().backward()
        assert logprobs.grad is not None
        gradients.append(float(logprobs.grad))
    assert gradients == [0.0, 2.0]


def test_k3_by_hand() -> None:
    assert k3(torch.tensor([0.0, math.log(2.0)])).tolist() == pytest.approx([0.0, 2 - math.log(2) - 1])


def test_covariance_selection_by_hand() -> None:
    """log-probs -1, -2, -3 (mean -2), advantages 1, 0, -4 (mean -1): covariances 2, 0, 3."""
    cov = covariance(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([1.0, 0.0, -4.0]))
    assert cov.tolist() == pytest.approx([2.0, 0.0, 3.0])
    assert select_kl_cov(cov, 0.02).tolist() == [False, False, True]  # max(1, int(0.02 * 3)) = 1
    assert select_kl_cov(cov, 0.67).tolist() == [True, False, True]
    assert select_kl_cov(torch.zeros(4), 0.5).tolist() == [True, True, False, False]  # ties: the earlier ones
    draws = [select_clip_cov(cov, 0.34, 1.0, 2.5, torch.Generator().manual_seed(seed)).tolist() for seed in range(5)]
    assert draws == [[True, False, False]] * 5  # only the first lies between 1 and 2.5
