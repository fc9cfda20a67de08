import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgefree.episodes import stream_seed
from judgefree.evaluation import statistics
from judgefree.evaluation.statistics import bootstrap_means, difference, interval, mean_and_error

rates = st.integers(0, 8).map(lambda c: c / 8)


def test_mean_and_error_by_hand():
    # 1, 0, 0, 1: mean 1/2, squared deviations sum to 1, s^2 = 1/3, error = sqrt(1/3) / sqrt(4)
    assert mean_and_error(np.array([1.0, 0.0, 0.0, 1.0])) == pytest.approx((0.5, math.sqrt(1 / 12)))


def test_one_value_has_no_error_and_none_is_refused():
    mean, error = mean_and_error(np.array([0.25]))
    assert mean == 0.25 and math.isnan(error)
    with pytest.raises(ValueError, match="no values"):
        mean_and_error(np.array([]))


def slow_bootstrap(arms, resamples, seed):
    """The same draws, summed one score at a time."""
    items = len(next(iter(arms.values()))[0])
    item_draws = np.random.default_rng(stream_seed(seed, "items"))
    seed_draws = {name: np.random.default_rng(stream_seed(seed, "seeds", name)) for name in arms}
    means = {name: [] for name in arms}
    for _ in range(resamples):
        drawn = item_draws.integers(0, items, size=items).tolist()
        for name, scores in arms.items():
            count = len(scores)
            seeds = [0] if count == 1 else seed_draws[name].integers(0, count, size=count).tolist()
            means[name].append(sum(scores[s][i] for s in seeds for i in drawn) / (count * items))
    return means


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 12), st.integers(0, 3))
def test_equals_the_slow_bootstrap_with_the_same_draws(data, items, seed):
    arms = {
        name: data.draw(st.lists(st.lists(rates, min_size=items, max_size=items), min_size=1, max_size=3))
        for name in ("a", "b", "c")
    }
    fast = bootstrap_means({name: np.array(scores) for name, scores in arms.items()}, 40, seed)
    slow = slow_bootstrap(arms, 40, seed)
    for name in arms:
        np.testing.assert_allclose(fast[name], slow[name], rtol=0, atol=1e-12)


def test_blocks_of_draws_join_without_a_seam(monkeypatch):
    scores = {"a": np.random.default_rng(0).random((2, 7))}
    whole = bootstrap_means(scores, 50, 0)["a"]
    monkeypatch.setattr(statistics, "_BLOCK", 7 * 8)  # eight rows at a time, the last block smaller
    np.testing.assert_array_equal(bootstrap_means(scores, 50, 0)["a"], whole)


def test_two_items_approach_the_exact_distribution():
    # Each of the four equally likely draws of two items: differences 1, 1/2, 1/2, 0 for scores that differ in one item.
    a, b = np.array([[1.0, 1.0]]), np.array([[0.0, 1.0]])
    means = bootstrap_means({"a": a, "b": b}, 4000, 0)
    exact = [sum((a - b)[0, i] for i in draw) / 2 for draw in product(range(2), repeat=2)]
    for value in (0.0, 0.5, 1.0):
        share = np.mean(means["a"] - means["b"] == value)
        assert share == pytest.approx(exact.count(value) / 4, abs=0.03)  # four standard errors of a share of 4000


def test_seeds_are_resampled_in_both_arms():
    # All items alike, so only the seeds vary: means of two draws from {0, 1} are 0, 1/2, 1 with shares 1/4, 1/2, 1/4,
    # and the difference of two independent ones is -1, -1/2, 0, 1/2, 1 with shares 1, 4, 6, 4, 1 of 16.
    arm = np.array([[0.0] * 5, [1.0] * 5])
    means = bootstrap_means({"a": arm, "b": arm}, 8000, 0)
    gaps, counts = np.unique(means["a"] - means["b"], return_counts=True)
    assert gaps.tolist() == [-1, -0.5, 0, 0.5, 1]
    assert counts / 8000 == pytest.approx(np.array([1, 4, 6, 4, 1]) / 16, abs=0.025)


def test_an_arm_may_take_over_another_s_draws_of_seeds():
    levels, items = np.array([[0.0], [1.0], [4.0]]), np.random.default_rng(4).random((1, 30))
    arms = {"run": levels + items + 0.25, "start": levels + items}
    own = bootstrap_means(arms, 200, 0)
    together = bootstrap_means(arms, 200, 0, seeds_like={"start": "run"})
    np.testing.assert_allclose(together["run"] - together["start"], 0.25, rtol=0, atol=1e-12)
    assert np.std(own["run"] - own["start"]) > 0.5
    np.testing.assert_array_equal(own["run"], together["run"])


def test_equal_arms_differ_by_nothing():
    scores = np.random.default_rng(1).integers(0, 2, (1, 50)).astype(float)
    means = bootstrap_means({"a": scores, "b": scores.copy()}, 200, 0)
    gap = difference(scores, scores, means["a"], means["b"], 0.95)
    assert (gap.value, gap.low, gap.high) == (0, 0, 0)


def test_one_item_has_an_interval_without_width():
    a, b = np.array([[1.0]]), np.array([[0.0]])
    means = bootstrap_means({"a": a, "b": b}, 100, 0)
    gap = difference(a, b, means["a"], means["b"], 0.95)
    assert (gap.value, gap.low, gap.high) == (1, 1, 1)


def test_other_arms_change_nothing():
    generator = np.random.default_rng(2)
    a, b, c = (generator.random((seeds, 20)) for seeds in (3, 1, 2))
    alone = bootstrap_means({"a": a, "b": b}, 100, 5)
    among = bootstrap_means({"c": c, "b": b, "a": a}, 100, 5)
    np.testing.assert_array_equal(alone["a"], among["a"])
    np.testing.assert_array_equal(alone["b"], among["b"])


def test_interval_takes_the_central_share():
    means = np.arange(101) / 100
    one = interval(np.array([[0.5]]), means, 0.9)
    assert (one.value, one.low, one.high) == pytest.approx((0.5, 0.05, 0.95))


@pytest.mark.parametrize(
    "arms",
    [{"a": np.zeros((1, 3)), "b": np.zeros((1, 4))}, {"a": np.zeros((1, 0))}, {"a": np.zeros((0, 3))}, {}],
)
def test_arms_without_common_items_are_refused(arms):
    with pytest.raises(ValueError, match="arms need the same items"):
        bootstrap_means(arms, 10, 0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    # Paired 0/1 scores of correlated models, true difference 0.1, 150 items, 400 experiments: a 90 % interval should
    # hold it in 360 of them, give or take 4 standard errors of 6.
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        ease = generator.random((1, 150))
        a = (ease + 0.3 * generator.random((1, 150)) < 0.75).astype(float)
        b = (ease + 0.3 * generator.random((1, 150)) < 0.65).astype(float)
        means = bootstrap_means({"a": a, "b": b}, 300, 0)
        gap = difference(a, b, means["a"], means["b"], 0.9)
        hits += gap.low <= 0.1 <= gap.high
    assert 336 <= hits <= 384


def test_pairing_makes_the_interval_narrower():
    ease = np.random.default_rng(3).random((1, 400))
    a, b = (ease < 0.6).astype(float), (ease < 0.5).astype(float)
    means = bootstrap_means({"a": a, "b": b}, 1000, 0)
    paired = difference(a, b, means["a"], means["b"], 0.95)
    other = bootstrap_means({"a": a, "b": b}, 1000, 1)
    unpaired = difference(a, b, means["a"], other["b"], 0.95)
    assert (paired.high - paired.low) < 0.7 * (unpaired.high - unpaired.low)
