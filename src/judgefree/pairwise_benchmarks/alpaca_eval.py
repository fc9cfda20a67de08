"""AlpacaEval 2: judged rows to win rates. Source: papers.md 6.3."""

from typing import Any

import numpy as np
import pandas as pd

from judgefree.errors import JudgefreeError
from judgefree.pairwise_benchmarks.alpaca_data import Benchmark
from judgefree.pairwise_benchmarks.length_control import (
    Values,
    controlled_win_rate,
    fit,
    is_extreme,
    length_term,
    win_rate,
)

TIES = (0.0, 1.5)  # both are written for a tie
_SHOWN = 60


def score(items: pd.DataFrame, benchmark: Benchmark) -> dict[str, float]:
    """Figures of a model's judged rows.

    items: a row per instruction of the benchmark, in its order: instruction, text, baseline_text, preference (from 1, the
    baseline is better, to 2, the model is; 1.5 or 0 for a tie).

    win_rate and length_controlled, shares, with _se over items; extreme: 1 where control moved the rate so far that its fit
    should be doubted; length and baseline_length: mean characters; weight/*: of the fitted model, as published for others.

    Raises JudgefreeError naming the first row that is missing, belongs to another instruction, or has no preference.
    """
    preference = preferences(items, benchmark)
    lengths, baseline = items["text"].str.len().to_numpy(), items["baseline_text"].str.len().to_numpy()
    weights = fit(preference, length_term(baseline, lengths), benchmark.difficulty, benchmark.gamed)
    (raw, raw_error), (controlled, error) = win_rate(preference), controlled_win_rate(weights, benchmark.difficulty)
    return {
        "items": len(items), "win_rate": raw, "win_rate_se": raw_error,
        "length_controlled": controlled, "length_controlled_se": error, "extreme": float(is_extreme(raw, controlled)),
        "length": float(lengths.mean()), "baseline_length": float(baseline.mean()),
        "weight/length": weights.length, "weight/difficulty": weights.difficulty, "weight/constant": weights.constant,
    }  # fmt: skip


def preferences(items: pd.DataFrame, benchmark: Benchmark) -> Values:
    """For the model, in [0, 1], of shape (instructions,), after checking every row; see `score`."""
    for place, (instruction, baseline) in enumerate(zip(benchmark.instructions, benchmark.baseline, strict=True)):
        if place >= len(items):
            raise JudgefreeError(f"row {place} is missing: {_shown(instruction)}", "judge all instructions")
        row = items.iloc[place]
        for name, wanted in (("instruction", instruction), ("baseline_text", baseline)):
            if row[name] != wanted:
                raise JudgefreeError(
                    f"row {place}: its {name} is {_shown(row[name])} and the benchmark's is {_shown(wanted)}",
                    "keep the rows in the benchmark's order, and its own baseline",
                )
        if not isinstance(row["text"], str):
            raise JudgefreeError(f"row {place} has no answer of the model: {_shown(instruction)}", "generate it again")
        value = row["preference"]
        if pd.isna(value) or not (1 <= float(value) <= 2 or float(value) in TIES):
            raise JudgefreeError(
                f"row {place} has the preference {value}, and it should lie between 1 and 2: {_shown(instruction)}",
                "judge the row again",
            )
    if len(items) > len(benchmark.instructions):
        raise JudgefreeError(
            f"row {len(benchmark.instructions)} belongs to no instruction of the benchmark",
            "remove what is not part of it",
        )
    values = items["preference"].to_numpy(np.float64)
    return np.where(values == 0, 0.5, values - 1)


def _shown(text: Any) -> str:
    return repr(text if not isinstance(text, str) or len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
