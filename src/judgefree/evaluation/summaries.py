"""A suite of texts with references: ROUGE of greedy texts and, where the suite asks for samples, of sampled ones.

The answer is the part of a completion that the prompt's format names: all after `Answer:`, or the whole. A completion
without one scores 0 and stays in the mean; its share is `empty`. Lengths stand beside every score, since a longer text
covers more of a reference.

A row without a reference, as a data set of prompts may have, is written to like the others, for judges to read; it has no
ROUGE and is left out of its means.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from judgefree.config import PromptFormat, Suite
from judgefree.episodes import Completion, Example
from judgefree.errors import JudgefreeError
from judgefree.evaluation.completions import complete, prompts_of, with_error
from judgefree.scoring.answers import final_answer
from judgefree.scoring.rouge import MEASURES, rouge_of

QUESTION_CHARS = 1000  # of a source that items show; the data set has all of it under the same id


@dataclass(frozen=True)
class Scored:
    """A completion, the text read from it, and each of MEASURES, NaN where the row has no reference."""

    completion: Completion
    answer: str | None
    rouge: dict[str, float]

    @property
    def words(self) -> int:
        return len((self.answer or "").split())


def run_summaries(
    model: Any, tokenizer: Any, examples: Sequence[Example], suite: Suite, prompt: PromptFormat, workers: int
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Items and metrics of a suite on test examples with reference texts; `workers` processes score.

    Items: a row per example in the examples' order with columns id, question (its beginning where it is longer than
    QUESTION_CHARS), gold (the reference, whole; empty where there is none), text (of the greedy completion), answer (the
    part of it that is scored, None where there is none), a column for each of MEASURES (NaN without a reference), length
    (completion tokens, the end token included), words and reference_words (parts between blanks), finish_reason,
    n_samples and, with samples, `sampled/` and each measure: the mean over the item's samples.

    Metrics, of the greedy completions: items, each measure with _se (over the items with a reference), the shares truncated
    and empty, the means length and words, and words_ratio, all words of the answers over all words of their references.
    With `samples`, at the suite's temperature, the same of those under `sampled/`. `referenced` counts the items with a
    reference where some have none. Intervals are made where models are compared.

    Raises JudgefreeError for no examples, none with a reference, or a prompt that leaves the model no room.
    """
    prompts = prompts_of(tokenizer, examples, suite, prompt, None)
    golds = [str(example.answer) if (example.answer or "").strip() else "" for example in examples]
    referenced = sum(gold != "" for gold in golds)
    if not referenced:
        raise JudgefreeError(f"no test item of {suite.dataset} has a reference text to compare with",
                             "remove the suite or mend the data set")  # fmt: skip
    n = suite.samples or 0
    groups = complete(model, tokenizer, prompts, 1, suite, prompt, greedy=True)
    if n:
        sampled = complete(model, tokenizer, prompts, n, suite, prompt, greedy=False)
        groups = [[*greedy, *more] for greedy, more in zip(groups, sampled, strict=True)]
    scored = _score(groups, golds, prompt, workers)
    items = pd.DataFrame([_item(*row) for row in zip(examples, golds, scored, strict=True)])
    words = int(items["reference_words"].sum())
    metrics: dict[str, float] = {"items": len(items)}
    if referenced < len(items):
        metrics["referenced"] = referenced
    metrics |= _metrics([group[:1] for group in scored], words)
    if n:
        metrics |= {
            f"sampled/{name}": value for name, value in _metrics([one[1:] for one in scored], n * words).items()
        }
    return items, metrics


def _score(
    groups: Sequence[Sequence[Completion]], golds: Sequence[str], prompt: PromptFormat, workers: int
) -> list[list[Scored]]:
    answers = [[final_answer(completion, prompt.answer) for completion in group] for group in groups]
    rows = [(answer, [gold]) for gold, group in zip(golds, answers, strict=True) if gold for answer in group]
    scores = iter(rouge_of(rows, workers))
    unscored = dict.fromkeys(MEASURES, math.nan)
    return [
        [
            Scored(completion, answer, next(scores) if gold else unscored)
            for completion, answer in zip(*both, strict=True)
        ]
        for gold, *both in zip(golds, groups, answers, strict=True)
    ]


def _item(example: Example, gold: str, scored: Sequence[Scored]) -> dict[str, Any]:
    greedy, *sampled = scored
    question = example.question
    if len(question) > QUESTION_CHARS:
        question = f"{question[:QUESTION_CHARS]} [... {len(question) - QUESTION_CHARS} characters]"
    return {
        "id": example.id,
        "question": question,
        "gold": gold,
        "text": greedy.completion.text,
        "answer": greedy.answer,
        **greedy.rouge,
        "length": len(greedy.completion.ids),
        "words": greedy.words,
        "reference_words": len(gold.split()),
        "finish_reason": greedy.completion.finish_reason,
        "n_samples": len(sampled),
        **({f"sampled/{name}": _mean([one.rouge[name] for one in sampled]) for name in MEASURES} if sampled else {}),
    }


def _metrics(groups: Sequence[Sequence[Scored]], reference_words: int) -> dict[str, float]:
    """Measures with errors over the items with a reference, each the mean of its group; shares and lengths over all
    completions."""
    metrics: dict[str, float] = {}
    scored = [group for group in groups if not math.isnan(group[0].rouge[MEASURES[0]])]
    for name in MEASURES:
        metrics |= with_error(name, [_mean([one.rouge[name] for one in group]) for group in scored])
    every = [one for group in groups for one in group]
    return metrics | {
        "truncated": _mean([one.completion.finish_reason == "length" for one in every]),
        "empty": _mean([one.answer is None for one in every]),
        "length": _mean([len(one.completion.ids) for one in every]),
        "words": _mean([one.words for one in every]),
        "words_ratio": sum(one.words for group in scored for one in group) / reference_words,
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
