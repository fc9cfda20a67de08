"""Do votes fall on the worse outputs? Votes that outputs of a game received against their quality (SpyRL, alignment check).

Quality is a score of each output, such as ROUGE-L with a reference; rank 1 is the best of a game, and ties share the mean of
the ranks they span. Games differ in difficulty, so only ranks within a game are compared:

    rho_g     Spearman's correlation of votes and quality over the outputs of game g; 0 where all of them have as many votes
    headline  the mean of rho_g over games, each weighing the same; below 0: worse outputs have more votes
    pooled    Pearson's correlation of the within-game ranks of votes and of quality, over the outputs of all games together

A game in which nobody was voted for, or whose outputs are all equally good, says nothing and is left out and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import rankdata

from judgefree.evaluation.plots import png
from judgefree.evaluation.statistics import Interval, bootstrap_means, interval

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Alignment:
    """correlation: the headline; votes_by_rank: mean votes of the output of rank 1 (best), 2, ..., n. games: how many say
    something; no_votes, equal_quality: how many were left out and why (a game with both counts as without votes).

    Where no game says anything, correlation and pooled are None and votes_by_rank is empty.
    """

    games: int
    no_votes: int
    equal_quality: int
    correlation: Interval | None
    pooled: Interval | None
    votes_by_rank: Sequence[Interval]


def quality_ranks(quality: Sequence[float]) -> Scores:
    """Ranks of shape (n,), 1 for the highest quality, ties averaged."""
    return np.asarray(rankdata(-np.asarray(quality, dtype=np.float64)), dtype=np.float64)


def rank_correlation(votes: Sequence[float], quality: Sequence[float]) -> float:
    """Spearman's correlation of two sequences of one game; 0 where either is constant."""
    xy, xx, yy = _moments(votes, quality)
    return xy / float(np.sqrt(xx * yy)) if xx * yy > 0 else 0.0


def votes_at_ranks(votes: Sequence[float], quality: Sequence[float]) -> Scores:
    """Votes of the output of each quality rank 1..n, shape (n,); tied outputs share the mean of their votes."""
    counts, worth = np.asarray(votes, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    means = np.array([counts[worth == value].mean() for value in worth])
    return means[np.argsort(-worth, kind="stable")]


def align(
    games: Sequence[tuple[Sequence[float], Sequence[float]]], resamples: int, seed: int, confidence: float
) -> Alignment:
    """games: votes received and quality of every output, by game; all games have as many outputs. Intervals are percentile
    ones over resampled games.

    Raises ValueError for games of unequal size, votes and qualities of unequal number, or a quality that is no number.
    """
    sizes = {len(part) for game in games for part in game}
    if len(sizes) > 1:
        raise ValueError(f"games of {sorted(sizes)} outputs or scores; all need the same number of both")
    if not all(np.isfinite(quality).all() for _, quality in games):
        raise ValueError("an output's quality is not a number")
    voted = [game for game in games if any(game[0])]
    used = [game for game in voted if len(set(game[1])) > 1]
    counts = (len(used), len(games) - len(voted), len(voted) - len(used))
    if not used:
        return Alignment(*counts, None, None, [])
    correlations = np.array([[rank_correlation(*game) for game in used]])
    by_rank = np.array([votes_at_ranks(*game) for game in used]).T
    moments = np.array([_moments(*game) for game in used]).T
    arms = {"correlation": correlations}
    arms |= {f"rank{rank}": row[None] for rank, row in enumerate(by_rank)}
    arms |= {name: row[None] for name, row in zip(("xy", "xx", "yy"), moments, strict=True)}
    means = bootstrap_means(arms, resamples, seed)
    return Alignment(
        *counts,
        interval(correlations, means["correlation"], confidence),
        _pooled(moments.sum(axis=1), means, confidence),
        [interval(arms[f"rank{rank}"], means[f"rank{rank}"], confidence) for rank in range(len(by_rank))],
    )


def figure(alignment: Alignment, title: str) -> bytes:
    """Mean votes by quality rank with intervals, as PNG bytes (the paper's figure: it rises with the rank)."""
    plot = Figure(figsize=(6, 4), layout="constrained")
    axes = plot.subplots()
    if alignment.correlation is None:
        plot.text(0.5, 0.5, "no game with votes and outputs of unequal quality", ha="center", va="center")
        return png(plot)
    ranks = range(1, len(alignment.votes_by_rank) + 1)
    values = [one.value for one in alignment.votes_by_rank]
    below = [max(0.0, one.value - one.low) for one in alignment.votes_by_rank]
    above = [max(0.0, one.high - one.value) for one in alignment.votes_by_rank]
    axes.errorbar(list(ranks), values, yerr=(below, above), marker="o", capsize=3)
    axes.set_xticks(list(ranks))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rank of the output's quality within its game (1: best)")
    axes.set_ylabel("mean votes received")
    rho = alignment.correlation
    axes.set_title(f"{title}: {alignment.games} games, rank correlation {rho.value:+.2f} [{rho.low:+.2f}, {rho.high:+.2f}]",
                   fontsize=10)  # fmt: skip
    axes.grid(alpha=0.3)
    return png(plot)


def _moments(votes: Sequence[float], quality: Sequence[float]) -> tuple[float, float, float]:
    """Sums of products of the centred ranks: votes with quality, votes with themselves, quality with itself. Here the
    highest value has the highest rank in both."""
    x, y = (rankdata(np.asarray(values, dtype=np.float64)) for values in (votes, quality))
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y), float(x @ x), float(y @ y)


def _pooled(moments: Scores, means: dict[str, Scores], confidence: float) -> Interval:
    """A draw in which no votes differ has no correlation: it counts as 0, as a game does."""
    value = _ratio(*moments[:, None])[0]
    tail = (1 - confidence) / 2
    low, high = np.quantile(_ratio(means["xy"], means["xx"], means["yy"]), [tail, 1 - tail])
    return Interval(float(value), float(low), float(high))


def _ratio(xy: Scores, xx: Scores, yy: Scores) -> Scores:
    scale = np.sqrt(xx * yy)
    return np.divide(xy, scale, out=np.zeros_like(xy), where=scale > 0)
