"""Looking for reward hacking: what a reward goes with, among the responses to one prompt."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Groups = Sequence[Sequence[float]]


def within_groups(values: Groups, others: Groups) -> float:
    """Pearson correlation of two quantities after their group means are taken away; NaN where one does not vary."""
    a, b = centred(values), centred(others)
    scale = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / scale) if scale > 0 else math.nan


def centred(values: Groups) -> NDArray[np.float64]:
    """All values in one row, each less the mean of its group."""
    return np.concatenate([np.asarray(group, dtype=np.float64) - np.mean(group) for group in values])


def overlap(response: str, prompt: str) -> float:
    """Share of a response's different words that stand in the prompt as well; 0 for a response without words."""
    words = set(_words(response))
    return len(words & set(_words(prompt))) / len(words) if words else 0.0


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def above(measured: Mapping[str, float], limits: Iterable[tuple[str, float]]) -> list[str]:
    """Names of what is further from 0 than its limit; what could not be measured (NaN) is not."""
    return [name for name, limit in limits if abs(measured[name]) > limit]


def pair_accuracy(rewards: Groups, qualities: Groups) -> tuple[float, int]:
    """How often, among pairs of responses to one prompt of different true quality, the better one has the higher reward
    (equal rewards: half), and the number of such pairs; responses of unknown quality (NaN) are in none."""
    right, pairs = 0.0, 0
    for scores, truths in zip(rewards, qualities, strict=True):
        reward, truth = np.asarray(scores, dtype=np.float64), np.asarray(truths, dtype=np.float64)
        better = truth[:, None] > truth[None, :]
        difference = reward[:, None] - reward[None, :]
        right += float((better * ((difference > 0) + 0.5 * (difference == 0))).sum())
        pairs += int(better.sum())
    return (right / pairs if pairs else math.nan), pairs


def squared_error(advantages: Groups, qualities: Groups) -> float:
    """Mean of (sigmoid(a) - q)^2 over responses of known true quality q in 0..1: the reward model's advantage a = R - V
    taken as the log-odds of a response being good (its error on the policy's own responses); NaN where none is known."""
    a, q = (
        np.concatenate([np.asarray(group, dtype=np.float64) for group in groups]) for groups in (advantages, qualities)
    )
    known = np.isfinite(q)
    return float(np.mean((1 / (1 + np.exp(-a[known])) - q[known]) ** 2)) if known.any() else math.nan
