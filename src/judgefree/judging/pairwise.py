"""A/B win rate: two models' texts, both orders, one outcome a row. Source: papers.md 6.5 (SpyRL's evaluation).

Each row is judged twice, the model's text first and then second, since judges favour a place. It wins with (win, win) or
(win, tie), loses likewise, and everything else is a tie: (win, loss) says that the judge went by the place.
"""

import math
from typing import Any, Literal

import numpy as np
import pandas as pd

from judgefree.config import Compare
from judgefree.evaluation.statistics import bootstrap_means, interval, mean_and_error
from judgefree.judging.judges import Contest, Judge, Judgement, Verdict, require_coverage, total

Outcome = Literal["win", "tie", "loss"]
SCORE: dict[str | None, float] = {"win": 1.0, "tie": 0.5, "loss": 0.0, None: math.nan}


def outcome(shown_first: Verdict, shown_second: Verdict) -> Outcome:
    """Of a text, from the verdicts where it was shown first and where it was shown second."""
    ahead = np.sign(1 - 2 * shown_first.preference) + np.sign(2 * shown_second.preference - 1)
    return "win" if ahead > 0 else "loss" if ahead < 0 else "tie"


def play(judge: Judge, name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Every row judged in both orders.

    rows: id, question, text, against_text. Returned with verdict and said (the model's text first), verdict_swapped and
    said_swapped, outcome (None where an order has no verdict), score, length and against_length (characters),
    prompt_tokens, completion_tokens and cost of both orders.

    Raises JudgefreeError where more than 1 % of the rows have no outcome, naming `name` and rows.
    """
    contests = [Contest(*texts) for texts in zip(rows["question"], rows["text"], rows["against_text"], strict=True)]
    swapped = [Contest(one.instruction, one.second, one.first) for one in contests]
    judged = judge.compare([*contests, *swapped])
    pairs = list(zip(judged[: len(contests)], judged[len(contests) :], strict=True))
    missing = [(str(row), next(one.said for one in pair if one.verdict is None))
               for row, pair in zip(rows["id"], pairs, strict=True) if _outcome(*pair) is None]  # fmt: skip
    require_coverage(missing, len(rows), name)
    return pd.concat(
        [rows.reset_index(drop=True), pd.DataFrame([_row(*pair) for pair in pairs])], axis="columns"
    ).assign(length=rows["text"].str.len().to_numpy(), against_length=rows["against_text"].str.len().to_numpy())


def measure(items: pd.DataFrame, settings: Compare) -> dict[str, float]:
    """Figures of judged rows, those without an outcome left out but for `failed`.

    win_rate = (wins + ties / 2) / n, with _se and the bootstrap interval's _low and _high; strict = wins / n; decided =
    wins / (wins + losses), absent without any. first_chosen: of the verdicts that are no tie, the share for the text shown
    first, 0.5 for a judge that goes by content alone; consistent: rows whose two verdicts name the same text, or both a
    tie; longer_chosen: of the decided rows with texts of unequal length, the share that the longer one won.
    """
    judged = items[items["outcome"].notna()]
    counts = {name: int((judged["outcome"] == name).sum()) for name in ("win", "tie", "loss")}
    n, decided = len(judged), counts["win"] + counts["loss"]
    scores = judged["score"].to_numpy(np.float64)[None, :]
    ends = interval(
        scores, bootstrap_means({"model": scores}, settings.resamples, settings.seed)["model"], settings.confidence
    )
    places = np.array(
        [[Verdict(one).preference for one in judged[column]] for column in ("verdict", "verdict_swapped")]
    )
    chosen = places[places != 0.5]
    longer = judged[(judged["outcome"] != "tie") & (judged["length"] != judged["against_length"])]
    longer_won = (longer["length"] > longer["against_length"]) == (longer["outcome"] == "win")
    metrics = {
        "items": n, "failed": len(items) - n,
        "win_rate": ends.value, "win_rate_se": mean_and_error(scores[0])[1],
        "win_rate_low": ends.low, "win_rate_high": ends.high,
        "strict": counts["win"] / n, "decided": counts["win"] / decided if decided else math.nan,
        "wins": counts["win"], "ties": counts["tie"], "losses": counts["loss"],
        "first_chosen": float((chosen == 0).mean()) if len(chosen) else math.nan,
        "consistent": float((places[0] == 1 - places[1]).mean()),
        "longer_chosen": float(longer_won.mean()) if len(longer) else math.nan,
        "length": float(judged["length"].mean()), "against_length": float(judged["against_length"].mean()),
        "prompt_tokens": int(items["prompt_tokens"].sum()), "completion_tokens": int(items["completion_tokens"].sum()),
        "cost": math.fsum(items["cost"]),
    }  # fmt: skip
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def _outcome(first: Judgement, swapped: Judgement) -> Outcome | None:
    return None if first.verdict is None or swapped.verdict is None else outcome(first.verdict, swapped.verdict)


def _row(first: Judgement, swapped: Judgement) -> dict[str, Any]:
    bill, result = total([first.bill, swapped.bill]), _outcome(first, swapped)
    return {
        "verdict": first.verdict and str(first.verdict), "verdict_swapped": swapped.verdict and str(swapped.verdict),
        "outcome": result, "score": SCORE[result], "said": first.said, "said_swapped": swapped.said,
        "prompt_tokens": bill.prompt_tokens, "completion_tokens": bill.completion_tokens, "cost": bill.cost,
    }  # fmt: skip
