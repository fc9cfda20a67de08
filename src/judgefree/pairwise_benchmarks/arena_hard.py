"""Arena-Hard v2: verdicts to win rates. Source: papers.md 6.4 (arena-hard-auto).

Two games a prompt, the model second and first. A win is 1, a tie 0.5, a loss 0, and a strong verdict counts three times.
The win rate is the mean of all these scores; its interval, from the 5th to the 95th percentile, comes from 100 bootstraps
over scores, as the official one does, so the two games of a prompt and the copies of a strong verdict are drawn apart. A
prompt with a game without verdict is left out. Where ours differs: the official script reports the mean of the bootstraps
as the score and draws without a seed; here the score is that of all rows.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from judgefree.episodes import stream_seed
from judgefree.errors import JudgefreeError
from judgefree.evaluation.statistics import Interval

# Whom a model meets, by the prompt's category; the first is the category that the official script reports by default.
BASELINES = {"hard_prompt": "o3-mini-2025-01-31", "creative_writing": "gemini-2.0-flash-001"}
STRONG = 3
BOOTSTRAPS = 100
LOW, HIGH = 0.05, 0.95

_SIGNS = {
    ">>": (1.0, STRONG),
    ">": (1.0, 1),
    "=": (0.5, 1),
    "<": (0.0, 1),
    "<<": (0.0, STRONG),
}  # the left one's scores


def game_scores(verdict: str | None, model_first: bool) -> list[float] | None:
    """The model's scores in one game: one, or three equal ones. verdict: such as A>>B, also the other way round (B<<A); A
    is the text shown first. None without a verdict and for what is none, such as A>A."""
    if verdict is None or {verdict[:1], verdict[-1:]} != {"A", "B"} or verdict[1:-1] not in _SIGNS:
        return None
    score, times = _SIGNS[verdict[1:-1]]
    return [score if (verdict[0] == "A") == model_first else 1 - score] * times


def battles(games: pd.DataFrame) -> pd.DataFrame:
    """One row per score: id, score. games: id, model_first, verdict; two rows an id, one in each order.

    Prompts with a game without verdict are left out. Raises JudgefreeError naming the first id without both orders.
    """
    rows = []
    for name, pair in games.groupby("id", sort=False):
        if sorted(pair["model_first"]) != [False, True]:
            raise JudgefreeError(f"prompt {name} was not judged once in each order", "judge it in both orders")
        scores = [game_scores(verdict if isinstance(verdict, str) else None, bool(first))
                  for verdict, first in zip(pair["verdict"], pair["model_first"], strict=True)]  # fmt: skip
        if None not in scores:
            rows += [{"id": name, "score": score} for one in scores for score in one or ()]
    return pd.DataFrame(rows, columns=["id", "score"]).astype({"score": float})


def win_rate(scores: NDArray, seed: int) -> Interval:
    """Mean score with its bootstrap interval. scores: of shape (scores,), at least one."""
    draws = bootstrap_rows(len(scores), seed)
    low, high = np.quantile(scores[draws].mean(axis=1), [LOW, HIGH])
    return Interval(float(scores.mean()), float(low), float(high))


def bootstrap_rows(count: int, seed: int) -> NDArray[np.int64]:
    """Which rows each bootstrap draws: shape (BOOTSTRAPS, count)."""
    generator = np.random.default_rng(stream_seed(seed, "arena-hard"))
    return generator.integers(0, count, size=(BOOTSTRAPS, count))


def score_category(games: pd.DataFrame, category: str, seed: int) -> dict[str, float]:
    """win_rate with _low and _high, prompts (with two verdicts), dropped. games: as `battles` takes them.

    Raises JudgefreeError naming the category where no prompt has two verdicts.
    """
    rows = battles(games)
    prompts, judged = games["id"].nunique(), rows["id"].nunique()
    if not judged:
        raise JudgefreeError(f"no prompt of category {category} has two verdicts", "look at what the judge said")
    found = win_rate(rows["score"].to_numpy(), seed)
    return {"win_rate": found.value, "win_rate_low": found.low, "win_rate_high": found.high,
            "prompts": judged, "dropped": prompts - judged}  # fmt: skip


def by_category(scored: Mapping[str, Mapping[str, float]], categories: Sequence[str]) -> dict[str, float]:
    """The categories' figures under their names, and `win_rate`: that of the official default category where it was
    played, else of the first."""
    default = next((name for name in BASELINES if name in categories), categories[0])
    named = {f"{category}/{name}": value for category in categories for name, value in scored[category].items()}
    return {"win_rate": scored[default]["win_rate"], **named}
