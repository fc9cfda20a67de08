"""A suite of exact answers: greedy pass@1 and, where the suite asks for samples, unbiased pass@k.

What counts: a completion is right only if the grader says "correct". "timeout" and "error" are verdicts about the
grader, not about the model: such rows are graded a second time, and what fails again is not correct but is shown as
its own share `ungraded`; more than UNGRADED_LIMIT of it is worth a warning. "unparsed" (no answer to be found) is a
fault of the completion, so simply not correct.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from judgefree.config import PromptFormat, Retry, Suite
from judgefree.episodes import Completion, Example, Prompt
from judgefree.evaluation.completions import complete, progress, prompts_of, with_error
from judgefree.evaluation.retry import Course, Request, try_again
from judgefree.prompting import encode_message, encode_question
from judgefree.sampling.transformers_engine import max_positions
from judgefree.scoring.answers import final_answer
from judgefree.scoring.grader import Grader
from judgefree.scoring.passk import pass_at_k

UNGRADED_LIMIT = 0.01
UNGRADED = ("timeout", "error")
_GRADING_ROWS = 256  # between two movements of the progress bar


@dataclass(frozen=True)
class Judged:
    """A completion with the answer read from it and the grader's verdict."""

    completion: Completion
    answer: str | None
    verdict: str

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"


def run_maths(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    suite: Suite,
    prompt: PromptFormat,
    grader: Grader,
    texts: Mapping[str, str] | None = None,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Items and metrics of a suite on test examples with gold answers that are values.

    Items: a row per example in the examples' order with columns id, question, gold, text, answer, verdict, correct,
    length (completion tokens, the end token included), finish_reason; of the sampled completions n_samples, n_correct
    and n_ungraded (0 without sampling).

    Metrics, of the greedy completions: items, pass@1, pass@1_se, the shares unparsed, truncated and ungraded, and the
    mean lengths length, length_right, length_wrong; with `samples`, at the suite's temperature: sampled/accuracy and
    sampled/pass@k for each listed k, each with _se, and the same shares and lengths. Standard errors are over items.
    What does not exist (the error of a single item, the length of no right answers) is left out.

    With `retry` (texts: those of its prompt file) all of the above are of each item's last attempt; under reflexion, which
    asks the gold answers which attempts failed, pass@1 is then no pass@1 of a policy. Items have more columns: rounds
    (attempts after the first), tokens (sampled for the item in all), first_correct and too_long (it ended since a prompt
    had no room). Metrics too: first/pass@1 with _se, the means retry/rounds and retry/tokens, the count retry/too_long.

    Raises JudgefreeError for no examples, an example without gold answer, or a prompt that leaves the model no room.
    """
    prompts = prompts_of(tokenizer, examples, suite, prompt, "gold answer")
    golds = [str(example.answer) for example in examples]
    greedy = [group[0] for group in complete(model, tokenizer, prompts, 1, suite, prompt, greedy=True)]
    sampled = complete(model, tokenizer, prompts, suite.samples, suite, prompt, greedy=False) if suite.samples else []
    rows = [(gold, completion) for gold, completion in zip(golds, greedy, strict=True)]
    rows += [(gold, completion) for gold, group in zip(golds, sampled, strict=bool(sampled)) for completion in group]
    judged = _judge(rows, prompt, grader)
    first, rest = judged[: len(golds)], judged[len(golds) :]
    n = suite.samples or 0
    groups = [rest[start : start + n] for start in range(0, len(rest), n)] if n else [[] for _ in golds]
    courses: list[Course] = []
    last = first
    if suite.retry:
        courses = _courses(model, tokenizer, examples, greedy, suite.retry, suite, prompt, grader, texts or {})
        last = _judge([(gold, one.completion) for gold, one in zip(golds, courses, strict=True)], prompt, grader)
    items = pd.DataFrame([_item(*row) for row in zip(examples, last, groups, strict=True)])
    metrics: dict[str, float] = {"items": len(items)}
    metrics |= with_error("pass@1", items["correct"]) | _shape(last)
    if courses:
        added = pd.DataFrame([_ways(*row) for row in zip(first, courses, strict=True)])
        items = pd.concat([items, added], axis="columns")
        metrics |= with_error("first/pass@1", added["first_correct"])
        metrics |= {f"retry/{name}": float(added[name].mean()) for name in ("rounds", "tokens")}
        metrics["retry/too_long"] = float(added["too_long"].sum())
    if n:
        n_correct = items["n_correct"]
        metrics |= with_error("sampled/accuracy", n_correct / n)
        for k in suite.pass_at:
            metrics |= with_error(f"sampled/pass@{k}", [pass_at_k(n, c, k) for c in n_correct])
        metrics |= {f"sampled/{name}": value for name, value in _shape(rest).items()}
    return items, metrics


def _courses(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    firsts: Sequence[Completion],
    retry: Retry,
    suite: Suite,
    prompt: PromptFormat,
    grader: Grader,
    texts: Mapping[str, str],
) -> list[Course]:
    """The items' ways through further attempts (evaluation/retry.py) by this model, decoding greedily, and this grader."""
    room = (max_positions(model) or math.inf) - suite.max_completion_tokens  # all attempts have the same length limit
    longest = min(room, retry.max_prompt_tokens or math.inf)

    def ask(requests: Sequence[Request]) -> list[Completion | None]:
        encoded = [(encode_question if one.framed else encode_message)(tokenizer, prompt, one.text) for one in requests]
        prompts = [Prompt(ids, one.key) for one, ids in zip(requests, encoded, strict=True) if len(ids) <= longest]
        said = iter(complete(model, tokenizer, prompts, 1, suite, prompt, greedy=True))
        return [next(said)[0] if len(ids) <= longest else None for ids in encoded]

    def failed(courses: Sequence[Course]) -> list[bool]:
        judged = _judge([(str(one.example.answer), one.completion) for one in courses], prompt, grader)
        return [not one.correct and one.verdict not in UNGRADED for one in judged]

    return try_again(retry, texts, examples, firsts, ask, failed)


def _judge(rows: Sequence[tuple[str, Completion]], prompt: PromptFormat, grader: Grader) -> list[Judged]:
    """Grade (gold, completion) rows; equal answers to equal golds are graded once."""
    answers = [final_answer(completion, prompt.answer) for _, completion in rows]
    pairs = [(gold, answer) for (gold, _), answer in zip(rows, answers, strict=True)]
    verdicts: dict[tuple[str, str | None], str] = {}
    unique = list(dict.fromkeys(pairs))
    pieces = [unique[start : start + _GRADING_ROWS] for start in range(0, len(unique), _GRADING_ROWS)]
    for piece in progress(pieces, "grading"):
        verdicts.update(zip(piece, grader.grade(piece), strict=True))
    again = [pair for pair, verdict in verdicts.items() if verdict in UNGRADED]
    verdicts.update(zip(again, grader.grade(again), strict=True))
    return [Judged(completion, pair[1], verdicts[pair]) for (_, completion), pair in zip(rows, pairs, strict=True)]


def _item(example: Example, greedy: Judged, sampled: Sequence[Judged]) -> dict[str, Any]:
    return {
        "id": example.id,
        "question": example.question,
        "gold": str(example.answer),
        "text": greedy.completion.text,
        "answer": greedy.answer,
        "verdict": greedy.verdict,
        "correct": greedy.correct,
        "length": len(greedy.completion.ids),
        "finish_reason": greedy.completion.finish_reason,
        "n_samples": len(sampled),
        "n_correct": sum(one.correct for one in sampled),
        "n_ungraded": sum(one.verdict in UNGRADED for one in sampled),
    }


def _ways(first: Judged, course: Course) -> dict[str, Any]:
    return {
        "rounds": course.rounds,
        "tokens": course.tokens,
        "first_correct": first.correct,
        "too_long": course.too_long,
    }


def _shape(judged: Sequence[Judged]) -> dict[str, float]:
    """Shares of what went wrong before correctness came into question, and mean lengths in tokens."""
    shares: dict[str, list[bool] | list[int]] = {
        "unparsed": [one.verdict == "unparsed" for one in judged],
        "truncated": [one.completion.finish_reason == "length" for one in judged],
        "ungraded": [one.verdict in UNGRADED for one in judged],
        "length": [len(one.completion.ids) for one in judged],
        "length_right": [len(one.completion.ids) for one in judged if one.correct],
        "length_wrong": [len(one.completion.ids) for one in judged if not one.correct],
    }
    return {name: float(np.mean(values)) for name, values in shares.items() if values}
