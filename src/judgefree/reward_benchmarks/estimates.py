"""Weighted means of outcomes with their standard errors.

Every score of the benchmarks is a sum over strata (subsets, terms of a formula) of a fixed weight times the plain mean of
the outcomes in it. The error is that of this sum when groups of outcomes (those that share a prompt) are drawn
independently and outcomes within a group are not: squares of the groups' summed residuals (Liang and Zeger 1986, without a
correction for small samples). A bootstrap over prompts tends to the same; with one outcome per group it is the binomial
error sqrt(p (1 - p) / n) of each stratum.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stratum:
    """Outcomes whose plain mean counts, and the group of each."""

    outcomes: Sequence[float]
    groups: Sequence[str]


@dataclass(frozen=True)
class Estimate:
    """A score and its standard error; None where a stratum has a single group, which says nothing about spread."""

    value: float
    error: float | None


Part = tuple[float, Stratum]  # weight and what it weighs


def weighted_mean(parts: Sequence[Part]) -> Estimate:
    """Sum over parts of weight times mean. Raises ValueError for a stratum without outcomes."""
    residuals: dict[str, float] = defaultdict(float)
    value, single = 0.0, False
    for weight, stratum in parts:
        n = len(stratum.outcomes)
        if n == 0:
            raise ValueError("no outcomes to average")
        mean = math.fsum(stratum.outcomes) / n
        value += weight * mean
        single = single or len(set(stratum.groups)) == 1
        for outcome, group in zip(stratum.outcomes, stratum.groups, strict=True):
            residuals[group] += weight * (outcome - mean) / n
    return Estimate(value, None if single else math.sqrt(math.fsum(r * r for r in residuals.values())))


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Plain mean of independent estimates."""
    errors = [estimate.error for estimate in estimates]
    error = None if None in errors else math.sqrt(math.fsum(e * e for e in errors if e is not None)) / len(errors)
    return Estimate(math.fsum(estimate.value for estimate in estimates) / len(estimates), error)
