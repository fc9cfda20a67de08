"""Arena-Hard's style control: the win rate at equal length and markdown. Source: papers.md 6.4.

A Bradley-Terry model of the scores with four more terms, the differences in length and in the density of headers, lists and
bold text. Where ours differs: the official script standardises each term over the battles of all models on the leaderboard,
so its rate is that at their mean style; with one model there are no others, so the terms are scaled and not centred, and
the rate is that at the baseline's style. Length is counted in words and signs, the same for both texts, where the official
one takes a tokenizer that has to be downloaded.
"""

import re

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from judgefree.evaluation.statistics import Interval
from judgefree.pairwise_benchmarks.arena_hard import HIGH, LOW, bootstrap_rows

TERMS = ("length", "headers", "lists", "bold")

_CODE = re.compile(r"```[^`]*```")
_TOKENS = re.compile(r"\w+|[^\w\s]")
_MARKS = (
    (re.compile(r"^#{1,6}\s", re.MULTILINE),),
    (re.compile(r"^[^\S\n]*\d{1,9}\.\s", re.MULTILINE), re.compile(r"^[^\S\n]*[-*+]\s", re.MULTILINE)),
    (re.compile(r"\*\*[^*\n]+\*\*"), re.compile(r"__[^_\n]+__")),
)


def style(text: str) -> list[int]:
    """Length in words and signs, and numbers of headers, list items and bold passages outside of code blocks."""
    prose = _CODE.sub("", text)
    marks = [sum(len(pattern.findall(prose)) for pattern in patterns) for patterns in _MARKS]
    return [len(_TOKENS.findall(text)), *marks]


def style_terms(texts: list[str], baseline: list[str]) -> NDArray[np.float64]:
    """Of shape (rows, 4), each between -1 and 1: (a - b) / (a + b) of the lengths, and (a - b) / (a + b + 1) of each mark's
    density, its number over length + 1. Two empty texts do not differ in length."""
    ours, theirs = (
        np.array([style(text) for text in side], dtype=np.float64).reshape(-1, 4) for side in (texts, baseline)
    )
    lengths = ours[:, :1] + theirs[:, :1]
    length = np.divide(ours[:, :1] - theirs[:, :1], lengths, out=np.zeros_like(lengths), where=lengths > 0)
    dense, denser = ours[:, 1:] / (ours[:, :1] + 1), theirs[:, 1:] / (theirs[:, :1] + 1)
    return np.hstack([length, (dense - denser) / (dense + denser + 1)])


def controlled(battles: pd.DataFrame, terms: pd.DataFrame, seed: int) -> Interval:
    """Median, 5th and 95th percentile over the bootstraps of the win rate at the baseline's style.

    battles: id, score; terms: indexed by id, a column a term.
    """
    scores = battles["score"].to_numpy(np.float64)
    rows = terms.loc[battles["id"]].to_numpy(np.float64)
    deviation = rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
    scaled = np.divide(rows, deviation, out=np.zeros_like(rows), where=deviation > 0)
    rates = [_rate(scaled[draw], scores[draw]) for draw in bootstrap_rows(len(scores), seed)]
    low, middle, high = np.quantile(rates, [LOW, 0.5, HIGH])
    return Interval(float(middle), float(low), float(high))


def _rate(terms: NDArray, scores: NDArray) -> float:
    """The share of wins that the model predicts where all terms are 0."""
    if scores.min() == scores.max() and scores[0] in (0.0, 1.0):
        return float(scores[0])  # no finite strength explains it
    design = np.column_stack([np.ones(len(scores)), terms])
    outcomes = np.repeat([1, 0], len(scores))
    model = LogisticRegression(C=np.inf, fit_intercept=False, max_iter=1000)
    model.fit(np.concatenate([design, design]), outcomes, sample_weight=np.concatenate([scores, 1 - scores]))
    return float(expit(model.coef_[0, 0]))
