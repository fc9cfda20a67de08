"""The length-controlled model against hand-worked values and a slow plain oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from judgefree.errors import JudgefreeError
from judgefree.pairwise_benchmarks.length_control import (
    GamedRows,
    Weights,
    controlled_win_rate,
    fit,
    is_extreme,
    length_term,
    win_rate,
)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def world(items: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Preferences that follow known weights (-1.5, 0.8, -0.4) with noise; length terms; difficulties."""
    generator = np.random.default_rng(seed)
    length, difficulty = np.tanh(generator.normal(size=items)), generator.normal(size=items) * 2
    logits = -1.5 * length + 0.8 * difficulty - 0.4 + generator.normal(size=items)
    return sigmoid(logits), length, difficulty


def gamed_world(items: int) -> GamedRows:
    generator = np.random.default_rng(9)
    length, difficulty = np.tanh(generator.normal(size=items)), generator.normal(size=items)
    return GamedRows(sigmoid(-length + 0.5 * difficulty), length, difficulty)


def oracle(terms, preference, importance, strength):
    """Coefficients by a general optimiser: each weight as the difference of two that are not negative, L1 their sum."""

    def loss(split):
        logits = terms @ (split[:3] - split[3:])
        rows = preference * np.logaddexp(0, -logits) + (1 - preference) * np.logaddexp(0, logits)
        return strength * (rows * importance).sum() + split.sum()

    found = minimize(
        loss, np.full(6, 0.1), bounds=[(0, None)] * 6, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
    )
    return found.x[:3] - found.x[3:]


def test_win_rate_is_mean_and_standard_error():
    mean, error = win_rate(np.array([1.0, 0.0, 0.5, 1.0]))
    assert mean == 0.625
    assert error == pytest.approx(np.sqrt(((0.375**2 * 2 + 0.625**2 + 0.125**2) / 3) / 4))


def test_length_term_by_hand():
    # differences 10, -10, 0: sample deviation 10
    assert length_term(np.array([30, 20, 7]), np.array([20, 30, 7])) == pytest.approx([np.tanh(1), -np.tanh(1), 0])


@pytest.mark.parametrize("model", [[5, 6, 7], [4, 5, 6]])
def test_lengths_that_always_differ_by_the_same_are_refused(model):
    with pytest.raises(JudgefreeError, match="same number of characters"):
        length_term(np.array([5, 6, 7]), np.array(model))


@pytest.mark.parametrize("gamed", [None, gamed_world(40)])
def test_weights_are_those_of_a_plain_optimiser(gamed):
    preference, length, difficulty = world(120, 0)
    found = fit(preference, length, difficulty, gamed)
    terms, importance = np.column_stack([length, difficulty, np.ones(120)]), np.ones(120)
    if gamed:
        terms = np.vstack([terms, np.column_stack([gamed.length, gamed.difficulty, np.zeros(40)])])
        preference = np.concatenate([preference, gamed.preference])
        importance = np.concatenate([importance, np.full(40, 0.1)])  # two gamed baselines share 0.2
    wanted = oracle(terms, preference, importance, found.strength)
    assert (found.length, found.difficulty, found.constant) == pytest.approx(wanted, abs=5e-3)


@pytest.mark.parametrize(("items", "seed"), [(20, 0), (25, 37), (25, 4), (25, 12)])
def test_the_strength_is_the_best_of_five_folds_by_the_plain_optimiser(items, seed):
    preference, length, difficulty = world(items, seed)
    terms = np.column_stack([length, difficulty, np.ones(items)])
    strengths, losses = np.logspace(-4, 4, 10), []
    for strength in strengths:
        folds = []
        for fold in range(5):  # the library deals items of equal size out one after another, from the last
            test = (items - 1 - np.arange(items)) % 5 == fold
            weights = oracle(terms[~test], preference[~test], np.ones((~test).sum()), strength)
            share = sigmoid(terms[test] @ weights)
            folds.append(-(preference[test] * np.log(share) + (1 - preference[test]) * np.log(1 - share)).mean())
        losses.append(np.mean(folds))
    best, second = sorted(losses)[:2]
    assert second - best > 5e-4  # no tie, which two optimisers, or one on two processors, would break differently
    assert fit(preference, length, difficulty, None).strength == pytest.approx(strengths[int(np.argmin(losses))])


def test_controlled_rate_by_hand():
    # sigmoid(0) and sigmoid(log 3): 1/2 and 3/4; the length weight plays no part
    rate, error = controlled_win_rate(Weights(-9.0, np.log(3), 0.0, 1.0), np.array([0.0, 1.0]))
    assert (rate, error) == pytest.approx((0.625, 0.125))


def test_a_bias_for_length_is_taken_out():
    """Answers equal in all but their length: the judge takes the longer one, and at equal length nobody wins."""
    generator = np.random.default_rng(1)
    length, difficulty = np.tanh(generator.normal(-0.7, 1.0, size=400)), generator.normal(size=400)
    preference = sigmoid(-2.0 * length)
    raw, _ = win_rate(preference)
    controlled, _ = controlled_win_rate(fit(preference, length, difficulty, None), difficulty)
    assert raw > 0.6 and controlled == pytest.approx(0.5, abs=0.01)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_who_is_baseline_is_a_matter_of_sign(seed):
    preference, length, difficulty = world(20, seed)
    one, other = fit(preference, length, difficulty, None), fit(1 - preference, -length, difficulty, None)
    assert other.length == pytest.approx(one.length, abs=0.02)
    assert other.difficulty == pytest.approx(-one.difficulty, abs=0.02)
    assert controlled_win_rate(other, difficulty)[0] == pytest.approx(
        1 - controlled_win_rate(one, difficulty)[0], abs=0.01
    )


def test_too_few_rows_are_refused():
    with pytest.raises(JudgefreeError, match="4 judged rows are too few"):
        fit(np.ones(4), np.zeros(4), np.zeros(4), None)


@pytest.mark.parametrize(
    ("raw", "controlled", "extreme"), [(0.2, 0.11, False), (0.2, 0.09, True), (0.5, 0.62, False), (0.5, 0.63, True),
                                       (0.05, 0.3, True), (0.04, 0.0, False)],
)  # fmt: skip
def test_extreme_changes(raw, controlled, extreme):
    assert is_extreme(raw, controlled) == extreme
