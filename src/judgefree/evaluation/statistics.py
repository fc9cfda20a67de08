"""Means, standard errors and bootstrap intervals of scores per test item. Pure numpy; same seed, same numbers.

Models are compared on the same items, so differences are *paired*: one resample of the items serves all arms, and what
is common to all of them (easy and hard items) cancels. An arm is one model, or several that differ by seed only; then
its seeds are resampled too, each arm's from a stream of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgefree.episodes import stream_seed

Scores = NDArray[np.float64]

# Below this many items the percentile interval covers clearly less than it says; reports then call it rough.
ENOUGH_ITEMS = 30
_BLOCK = 1 << 21  # item draws held in memory at once


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its confidence interval."""

    value: float
    low: float
    high: float


def mean_and_error(values: NDArray) -> tuple[float, float]:
    """Mean and its standard error, s / sqrt(n) with the n - 1 form of s; the error of a single value is NaN.

    Raises ValueError for no values.
    """
    if len(values) == 0:
        raise ValueError("no values to average")
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(np.mean(values)), error


def bootstrap_means(
    arms: Mapping[str, Scores], resamples: int, seed: int, seeds_like: Mapping[str, str] | None = None
) -> dict[str, Scores]:
    """Means of every arm, of shape (resamples,), over resampled seeds and items.

    arms: name -> scores of shape (seeds, items), the same items in the same order in all. Row r of the result holds
    each arm's mean over one draw of its seeds (with replacement; a single seed stays) crossed with one draw of the
    items that all arms share: differences of two arms' results are paired. Which other arms are present changes
    nothing. seeds_like: arm -> the arm whose draws of seeds it takes over, as runs and their starts do.

    With few seeds the interval is a little too narrow, as every bootstrap of few units is.

    Raises ValueError for no items or arms of different shapes.
    """
    counts = {scores.shape[1] for scores in arms.values()}
    if len(counts) != 1 or 0 in counts or any(len(scores) == 0 for scores in arms.values()):
        shapes = {name: scores.shape for name, scores in arms.items()}
        raise ValueError(f"arms need the same items, at least one, and at least one seed each: {shapes}")
    items = counts.pop()
    generator = np.random.default_rng(stream_seed(seed, "items"))
    stream_of = {**{name: name for name in arms}, **(seeds_like or {})}
    seed_weights = {name: _seed_weights(len(arms[name]), resamples, seed, stream_of[name]) for name in arms}
    means = {name: np.empty(resamples) for name in arms}
    block = max(1, _BLOCK // items)
    for start in range(0, resamples, block):
        rows = slice(start, min(start + block, resamples))
        item_counts = _draw_counts(generator, rows.stop - rows.start, items)
        for name, scores in arms.items():
            means[name][rows] = ((item_counts @ scores.T) * seed_weights[name][rows]).sum(axis=1) / items
    return means


def interval(scores: Scores, means: Scores, confidence: float) -> Interval:
    """Mean of one arm with its percentile interval.

    scores: of shape (seeds, items); means: what `bootstrap_means` made of them; confidence: e.g. 0.95.
    """
    return Interval(float(scores.mean()), *_percentiles(means, confidence))


def difference(a: Scores, b: Scores, a_means: Scores, b_means: Scores, confidence: float) -> Interval:
    """Mean of arm a minus mean of arm b with its percentile interval; the means come from one `bootstrap_means`."""
    return Interval(float(a.mean() - b.mean()), *_percentiles(a_means - b_means, confidence))


def _percentiles(values: Scores, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def _seed_weights(seeds: int, resamples: int, seed: int, arm: str) -> Scores:
    if seeds == 1:
        return np.ones((resamples, 1))
    return _draw_counts(np.random.default_rng(stream_seed(seed, "seeds", arm)), resamples, seeds) / seeds


def _draw_counts(generator: np.random.Generator, rows: int, n: int) -> Scores:
    """How often each of n units comes up in each of `rows` draws of n units with replacement: shape (rows, n)."""
    draws = generator.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
    return np.bincount(draws.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
