"""What items are scored by: the measures of exact answers, and those of texts with references. Pure."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True)
class Measure:
    """How a measure is called: over a column of a table, and in a plot; brief: it stands in a table of few columns."""

    column: str
    legend: str
    brief: bool = True


MATHS = {
    "pass@1": Measure("pass@1", "greedy pass@1"),
    "sampled/accuracy": Measure("sampled", "sampled accuracy"),
}
TEXTS = {
    "rouge_l": Measure("rouge_l", "ROUGE-L (LongBench), greedy"),
    "rouge_score/rougeL": Measure("rougeL", "rougeL (rouge-score), greedy", brief=False),
    "rouge_score/rougeLsum": Measure("rougeLsum", "rougeLsum (rouge-score), greedy", brief=False),
    "sampled/rouge_l": Measure("sampled rouge_l", "ROUGE-L (LongBench), sampled"),
    "sampled/rouge_score/rougeL": Measure("sampled rougeL", "rougeL (rouge-score), sampled", brief=False),
    "sampled/rouge_score/rougeLsum": Measure("sampled rougeLsum", "rougeLsum (rouge-score), sampled", brief=False),
}
MEASURES = MATHS | TEXTS
VALIDATIONS = ("validation/pass@1", "validation/rouge_l")  # as training logs them; a run has one of them at most


def item_scores(items: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Measure -> score of every item, of the measures that a suite's items have; of texts, of those with a reference."""
    if are_texts(items):
        items = items[items["gold"] != ""]
        return {name: items[name].to_numpy(np.float64) for name in TEXTS if name in items}
    scores = {"pass@1": items["correct"].to_numpy(np.float64)}
    if (items["n_samples"] > 0).all():
        scores["sampled/accuracy"] = (items["n_correct"] / items["n_samples"]).to_numpy(np.float64)
    return scores


def are_texts(items: pd.DataFrame) -> bool:
    """Whether a suite's items are texts with references, and not exact answers."""
    return "correct" not in items


def validation_of(history: pd.DataFrame) -> str | None:
    """The metric that a run validated by; None where it did not."""
    return next((name for name in VALIDATIONS if name in history), None)
