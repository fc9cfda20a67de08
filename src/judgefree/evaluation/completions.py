"""What every kind of suite does alike: prompts of the test examples, completions of them, means with their errors."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from judgefree.config import PromptFormat, Sampling, Suite
from judgefree.episodes import Completion, Example, Prompt
from judgefree.errors import JudgefreeError
from judgefree.evaluation.statistics import mean_and_error
from judgefree.prompting import encode_question
from judgefree.sampling.rules import end_ids
from judgefree.sampling.transformers_engine import sample


def prompts_of(
    tokenizer: Any, examples: Sequence[Example], suite: Suite, prompt: PromptFormat, needed: str | None
) -> list[Prompt]:
    """A prompt of every example. needed: what an example's `answer` is, for the message where one has none; None where an
    example may be without.

    Raises JudgefreeError for no examples and for an example without what it needs.
    """
    if not examples:
        raise JudgefreeError("the test split has no rows to evaluate on", f"look at data/{suite.dataset}/quality.json")
    for example in examples:
        if needed and not (example.answer or "").strip():
            raise JudgefreeError(
                f"test item {example.id} of {suite.dataset} has no {needed}", "remove the suite or mend the data set"
            )
    return [Prompt(encode_question(tokenizer, prompt, one.question), (one.id, "evaluate", 0)) for one in examples]


def complete(
    model: Any, tokenizer: Any, prompts: Sequence[Prompt], n: int, suite: Suite, prompt: PromptFormat, greedy: bool
) -> list[list[Completion]]:
    """`n` completions of each prompt, in order; prompts of about the same length share a batch, the longest first."""
    order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row].ids))
    size = max(1, suite.batch_rows // n)
    results: list[list[Completion]] = [[] for _ in prompts]
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    for batch in progress(batches, "greedy completions" if greedy else f"{n} samples an item"):
        completions = sample(
            model,
            tokenizer,
            [prompts[row] for row in batch],
            n,
            seed=suite.seed or 0,
            step=0,
            settings=Sampling(temperature=suite.temperature or 1.0, max_completion_tokens=suite.max_completion_tokens),
            eos_ids=end_ids(model, tokenizer),
            batch_rows=suite.batch_rows,
            greedy=greedy,
            stop=prompt.stop,
        )
        for row, group in zip(batch, completions, strict=True):
            results[row] = group
    return results


def with_error(name: str, values: Iterable[float]) -> dict[str, float]:
    """The mean under its name and its standard error under `<name>_se`, which a single value has not."""
    mean, error = mean_and_error(np.asarray(list(values), dtype=np.float64))
    return {name: mean} if np.isnan(error) else {name: mean, f"{name}_se": error}


def progress(pieces: Sequence[Any], label: str) -> Iterable[Any]:
    """The pieces, with a bar on a terminal."""
    console = Console(stderr=True)
    return track(pieces, description=label, console=console, transient=True, disable=not console.is_terminal)
