"""What a judge says of a model's answers beside a baseline's: one row a game, and what the places did."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from judgefree.episodes import stream_seed
from judgefree.judging.judges import Contest, Judge, Verdict

BOTH = (False, True)  # Arena-Hard's first game shows the baseline first, its second the model


def drawn_order(seed: int, row: int) -> tuple[bool]:
    """Whether the model is shown first in a row's only game."""
    return (bool(stream_seed(seed, "order", row) & 1),)


def play(judge: Judge, rows: pd.DataFrame, orders: Sequence[Sequence[bool]]) -> pd.DataFrame:
    """Every game judged, those of one row next to each other.

    rows: id, instruction, text, baseline_text; orders: of each row's games, whether the model is shown first.

    A row per game: id, model_first, verdict (of the text shown first over the second; None where there is none), preference
    (for the model, in [0, 1], NaN without a verdict), said, prompt_tokens, completion_tokens, cost.
    """
    games, contests = [], []
    columns = [rows[name].tolist() for name in ("id", "instruction", "text", "baseline_text")]
    for name, instruction, text, baseline, firsts in zip(*columns, orders, strict=True):
        for model_first in firsts:
            games.append((name, model_first))
            contests.append(Contest(instruction, *((text, baseline) if model_first else (baseline, text))))
    judged = judge.compare(contests)
    return pd.DataFrame(
        {
            "id": name, "model_first": model_first, "verdict": one.verdict and str(one.verdict),
            "preference": 1 - one.preference if model_first else one.preference, "said": one.said,
            "prompt_tokens": one.bill.prompt_tokens, "completion_tokens": one.bill.completion_tokens,
            "cost": one.bill.cost,
        }
        for (name, model_first), one in zip(games, judged, strict=True)
    )  # fmt: skip


def conduct(games: pd.DataFrame) -> dict[str, float]:
    """games, no_verdict: counts; ties: share of the verdicts; first_chosen: of the verdicts that are no tie, the share for
    the text shown first, absent without any; prompt_tokens, completion_tokens, cost: sums."""
    places = np.array([Verdict(one).preference for one in games["verdict"] if isinstance(one, str)])
    decided = places[places != 0.5]
    counted: dict[str, Any] = {
        "games": len(games), "no_verdict": len(games) - len(places),
        "prompt_tokens": int(games["prompt_tokens"].sum()), "completion_tokens": int(games["completion_tokens"].sum()),
        "cost": float(games["cost"].sum()),
    }  # fmt: skip
    shares = {"ties": 1 - len(decided) / len(places)} if len(places) else {}
    return {**counted, **shares, **({"first_chosen": float((decided == 0).mean())} if len(decided) else {})}
