"""One suite on one model, by what its data set's answers are compared with: exact values (maths.py), or the words of a
reference (summaries.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from judgefree.config import PromptFormat, Suite
from judgefree.episodes import Example
from judgefree.evaluation.maths import run_maths
from judgefree.evaluation.summaries import run_summaries
from judgefree.scoring.grader import Grader


def run_suite(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    suite: Suite,
    prompt: PromptFormat,
    grader: Grader,
    texts: Mapping[str, str] | None = None,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Items, a row per example in the examples' order with columns id and gold, and metrics by name; what else both hold
    is said where the kind of suite is made. texts: those of the suite's prompt file, where it has one.

    What is to be measured besides joins here: further columns beside `items`, further metrics beside `metrics`.

    Raises JudgefreeError for no examples, an example without answer, or a prompt that leaves the model no room.
    """
    if prompt.measure == "rouge":
        return run_summaries(model, tokenizer, examples, suite, prompt, grader.workers)
    return run_maths(model, tokenizer, examples, suite, prompt, grader, texts)
