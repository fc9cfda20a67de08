"""The feedback filter: the paper's numbers, a table worked out by hand, and its form without a sigmoid."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judgefree.reward_model import feedback


@pytest.mark.parametrize(
    ("m0", "share", "least"),
    [(0.5, 0.0, 1.099), (0.5, 0.25, 0.511), (0.5, 0.5, 0.0), (0.5, 1.0, 0.0), (0.3, 0.0, 0.619), (0.7, 0.0, 1.735)],
)
def test_the_papers_thresholds(m0: float, share: float, least: float) -> None:
    assert feedback.threshold(round(320 * share), 320, m0) == pytest.approx(least, abs=5e-4)


def test_without_a_curriculum_all_is_kept() -> None:
    assert feedback.threshold(0, 320, None) == 0.0


def test_a_table_by_hand() -> None:
    rewards = torch.tensor([[2.0, 0.5, -1.2, 0.0], [1.0, 1.1, 1.0, 7.0], [-1.0, -3.0, -1.0, -1.0]])
    values = torch.tensor([0.0, 1.0, -1.0])
    there = torch.tensor([[True] * 4, [True, True, True, False], [True] * 4])
    least = feedback.threshold(0, 320, 0.5)  # log 3
    found = feedback.select(feedback.advantages_of(rewards, values), there, least)
    assert found.positive.tolist() == [[True, False, False, False], [False] * 4, [False] * 4]
    assert found.negative.tolist() == [[False, False, True, False], [False] * 4, [False, True, False, False]]
    assert found.both.tolist() == [True, False, False] and found.kept.sum() == 3
    late = feedback.select(feedback.advantages_of(rewards, values), there, feedback.threshold(160, 320, 0.5))
    assert late.positive.tolist() == [[True, True, False, True], [True, True, True, False], [True, False, True, True]]
    assert late.negative.tolist() == [[False, False, True, False], [False] * 4, [False, True, False, False]]
    assert late.both.tolist() == [True, False, True]


@given(st.integers(0, 400), st.floats(0.01, 0.99), st.floats(-6, 6))
def test_the_form_without_sigmoid_is_the_papers(step: int, m0: float, advantage: float) -> None:
    mu = (2 - min(1 - m0 + step / 320, 1)) / 2
    share = 1 / (1 + math.exp(-abs(advantage)))
    if abs(share - mu) < 1e-9:
        return
    found = feedback.select(torch.tensor([[advantage]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool),
                            feedback.threshold(step, 320, m0))  # fmt: skip
    assert bool(found.kept) == (share >= mu)
