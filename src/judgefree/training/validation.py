"""The policy on held-out training rows, greedily: pass@1, or ROUGE-L where the task's answers are texts."""

from collections.abc import Sequence

from judgefree.config import PromptFormat
from judgefree.episodes import Completion, Example, Prompt
from judgefree.errors import JudgefreeError
from judgefree.scoring.answers import final_answer
from judgefree.scoring.grader import Grader
from judgefree.scoring.rouge import rouge_of
from judgefree.training.history import VALIDATION, VALIDATION_TEXT
from judgefree.training.policy import TrainedPolicy


def require_answers(key: str, dataset: str, examples: Sequence[Example], prompt: PromptFormat) -> None:
    """key: where the run stands in params.yaml. Raises JudgefreeError where no validation row has an answer, so that weights
    cannot be selected by them."""
    if not any(example.answer is not None for example in examples):
        needed = "reference text" if prompt.measure else "gold answer"
        raise JudgefreeError(
            f"{key}.select is validation, and no validation row of {dataset} has a {needed}",
            "use select: last, or own_signal where the method has one",
        )


def validation_scores(
    policy: TrainedPolicy, examples: Sequence[Example], prompt: PromptFormat, grader: Grader
) -> dict[str, float]:
    """The task's measure and the mean length in tokens over the rows that have an answer; empty where there are none."""
    gold = [example for example in examples if example.answer is not None]
    if not gold:
        return {}
    completions: list[Completion] = policy.greedy(
        [Prompt(policy.encode(example.question), (example.id, "validation", 0)) for example in gold]
    )
    answers = [final_answer(completion, prompt.answer) for completion in completions]
    pairs = [(str(example.answer), answer) for example, answer in zip(gold, answers, strict=True)]
    length = sum(len(completion.ids) for completion in completions) / len(gold)
    scores = _rouge(pairs, grader.workers) if prompt.measure == "rouge" else _accuracy(pairs, grader)
    return {**scores, "validation/mean_length": length}


def _accuracy(pairs: Sequence[tuple[str, str | None]], grader: Grader) -> dict[str, float]:
    """pass@1 of (gold, answer). Rows on which the grader gives up twice are left out and their share is told."""
    verdicts = grader.grade(pairs)
    again = [row for row, verdict in enumerate(verdicts) if verdict in ("timeout", "error")]
    for row, verdict in zip(again, grader.grade([pairs[row] for row in again]), strict=True):
        verdicts[row] = verdict
    judged = [verdict for verdict in verdicts if verdict not in ("timeout", "error")]
    return {
        VALIDATION: judged.count("correct") / len(judged) if judged else 0.0,
        "validation/ungraded": 1 - len(judged) / len(pairs),
    }


def _rouge(pairs: Sequence[tuple[str, str | None]], workers: int) -> dict[str, float]:
    """ROUGE-L as LongBench has it, of (reference, answer), the mean words of an answer and the share that is no answer,
    which scores 0."""
    scores = rouge_of([(answer, [reference]) for reference, answer in pairs], workers)
    return {
        VALIDATION_TEXT: sum(one["rouge_l"] for one in scores) / len(pairs),
        "validation/empty": sum(answer is None for _, answer in pairs) / len(pairs),
        "validation/words": sum(len((answer or "").split()) for _, answer in pairs) / len(pairs),
    }
