"""What a reward goes with: correlations and errors worked out by hand."""

import math

import pytest

from judgefree.reward_model import watch

NAN = math.nan


def test_correlation_is_within_groups() -> None:
    assert watch.within_groups([[1, 2], [11, 12]], [[5, 6], [1, 2]]) == pytest.approx(1.0)
    assert watch.within_groups([[1, 2], [1, 3]], [[2, 1], [2, 1]]) == pytest.approx(-1.5 / math.sqrt(2.5 * 1.0))
    assert math.isnan(watch.within_groups([[1, 2]], [[3, 3]]))


def test_overlap_of_words() -> None:
    assert watch.overlap("The cat sat", "a CAT and the dog") == pytest.approx(2 / 3)
    assert watch.overlap("...", "a") == 0.0


def test_limits_are_of_sizes_whatever_the_sign() -> None:
    measured = {"length_correlation": -0.6, "prompt_correlation": 0.5, "anchor_gap": NAN, "drift": 0.2}
    limits = {"length_correlation": 0.5, "prompt_correlation": 0.5, "anchor_gap": 1.0, "drift": 0.1}
    assert watch.above(measured, limits.items()) == ["length_correlation", "drift"]


def test_pairs_of_different_quality() -> None:
    accuracy, pairs = watch.pair_accuracy([[2.0, 1.0, 1.0], [0.0, 5.0]], [[1, 0, 1], [1, NAN]])
    assert pairs == 2 and accuracy == pytest.approx((1 + 0.5) / 2)
    assert math.isnan(watch.pair_accuracy([[1.0]], [[1]])[0])


def test_squared_error_against_the_truth() -> None:
    assert watch.squared_error([[0.0, math.log(3)], [9.0, 0.0]], [[1, 0], [NAN, 0]]) == pytest.approx(
        (0.25 + 0.75**2 + 0.25) / 3
    )
    assert math.isnan(watch.squared_error([[0.0]], [[NAN]]))
