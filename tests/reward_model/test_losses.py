"""The losses of SAVE against values worked out by hand, a slow plain oracle, and the gradients that the paper allows."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from judgefree.reward_model import losses

LOG2 = math.log(2)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values)


def test_one_response_at_the_anchor_costs_log_2() -> None:
    assert losses.positive_loss(tensor(1.5), torch.tensor(1.5)).item() == pytest.approx(LOG2)
    assert losses.negative_loss(tensor(1.5), torch.tensor(1.5)).item() == pytest.approx(LOG2)


def test_by_hand() -> None:
    # e^0 = 1 stands for V, e^log 2 = 2 and e^log 3 = 3 for the rewards
    rewards, value = tensor(math.log(2), math.log(3)), torch.tensor(0.0)
    assert losses.positive_loss(rewards, value).item() == pytest.approx(
        -(math.log(2 / 6) + math.log(3 / 6)) / 2, abs=1e-6
    )
    assert losses.negative_loss(-rewards, value).item() == pytest.approx(-math.log(1 / (1 + 1 / 2 + 1 / 3)), abs=1e-6)
    assert losses.bradley_terry_loss(tensor(2.0, 0.0), tensor(1.0, 0.0)).item() == pytest.approx(
        (math.log(1 + math.exp(-1)) + LOG2) / 2
    )
    assert losses.value_loss(tensor(1.0, 0.0), torch.tensor([[2.0, 4.0], [1.0, 9.0]]),
                             torch.tensor([[True, True], [True, False]])).item() == pytest.approx((4 + 1) / 2)  # fmt: skip


def test_the_gradient_of_a_lone_positive() -> None:
    rewards = tensor(0.3).requires_grad_()
    losses.positive_loss(rewards, torch.tensor(-0.4)).backward()
    softmax = math.exp(0.3) / (math.exp(0.3) + math.exp(-0.4))
    assert rewards.grad is not None and rewards.grad.item() == pytest.approx(-(1 - softmax), abs=1e-6)


def test_extreme_scores_stay_finite() -> None:
    rewards = torch.tensor([[3e4, -3e4], [1e4, 2e4]], requires_grad=True)
    loss = losses.reward_loss(rewards, tensor(0.0, 15e3), rewards > 0, rewards <= 0)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(rewards.grad).all()  # type: ignore[arg-type]


def oracle(rewards: np.ndarray, value: float, positive: np.ndarray, negative: np.ndarray) -> float:
    """L+ + L- of one prompt as the paper writes it, in float64."""
    anchor = math.exp(value)
    top = [math.exp(r) for r in rewards[positive]]
    bottom = [math.exp(r) for r in rewards[negative]]
    plus = -sum(math.log(one / (anchor + sum(top))) for one in top) / len(top)
    return plus - math.log(anchor / (anchor + sum(bottom)))


def test_ten_thousand_random_groups() -> None:
    draw = np.random.default_rng(0)
    rewards, values = draw.normal(0, 2, (10_000, 6)), draw.normal(0, 1, 10_000)
    signs = draw.integers(-1, 2, (10_000, 6))  # 0: filtered out
    positive, negative = signs > 0, signs < 0
    both = [i for i in range(10_000) if positive[i].any() and negative[i].any()]
    assert 5_000 < len(both) < 10_000
    expected = [oracle(rewards[i], values[i], positive[i], negative[i]) for i in both]
    found = losses.reward_loss(*map(torch.tensor, (rewards, values, positive, negative)))
    assert found.item() == pytest.approx(sum(expected) / len(both), rel=1e-9)
    for i, want in list(zip(both, expected, strict=True))[:200]:
        one = losses.reward_loss(*(torch.tensor(x[i : i + 1]) for x in (rewards, values, positive, negative)))
        assert one.item() == pytest.approx(want, rel=1e-9)


def test_without_both_signs_there_is_no_loss() -> None:
    rewards = torch.ones(2, 3, requires_grad=True)
    none = torch.zeros(2, 3, dtype=torch.bool)
    loss = losses.reward_loss(rewards, torch.zeros(2), ~none, none)
    assert loss.item() == 0.0 and not loss.requires_grad


def test_no_gradient_where_the_paper_stops_it() -> None:
    rewards, values = torch.randn(2, 4, requires_grad=True), torch.randn(2, requires_grad=True)
    signs = torch.tensor([[True, True, False, False]] * 2)
    losses.reward_loss(rewards, values, signs, ~signs).backward()
    assert values.grad is None and rewards.grad is not None and rewards.grad.abs().sum() > 0
    rewards.grad = None
    losses.value_loss(values, rewards, torch.ones(2, 4, dtype=torch.bool)).backward()
    assert rewards.grad is None and values.grad is not None and values.grad.abs().sum() > 0


def test_highest_against_lowest() -> None:
    rewards = torch.tensor([[1.0, 3.0, 9.0], [2.0, 2.0, 2.0], [0.0, -1.0, 5.0]], requires_grad=True)
    counted = torch.tensor([[True, True, False], [True, True, True], [True, True, True]])
    loss = losses.highest_lowest_loss(rewards, counted)
    assert loss.item() == pytest.approx((math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-6))) / 2)
    loss.backward()
    moved = rewards.grad.ne(0)  # type: ignore[union-attr]
    assert moved.tolist() == [[True, True, False], [False] * 3, [False, True, True]]
    assert losses.highest_lowest_loss(rewards[1:2], counted[1:2]).item() == 0.0
