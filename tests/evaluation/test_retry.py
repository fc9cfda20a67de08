"""Reflexion and Self-Refine by hand: a scripted model says what it is told, and what it is asked is looked at."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from judgefree.bases.scratch import build
from judgefree.config import PromptFormat, Retry, Suite
from judgefree.config_data import ScratchBase
from judgefree.episodes import Completion, Example
from judgefree.evaluation.compare import compare
from judgefree.evaluation.loading import load_model
from judgefree.evaluation.retry import Course, Request, says, try_again
from judgefree.evaluation.stage import evaluate, pin
from judgefree.evaluation.suites import run_suite
from judgefree.files import pretty_json, read_json, write_atomic
from judgefree.prompting import fill
from judgefree.scoring.grader import Grader
from judgefree.texts import read_texts

REFLEXION = {
    "reflect": "why? {reflections}{question} / {attempt}", "reflection": "[{reflection}] ",
    "retry": "{reflections}{question}",
}  # fmt: skip
REFINE = {
    "feedback": "good? {question} / {attempt}",
    "refine": "{feedback}: {question} / {attempt}",
    "stop": "Fine as it is",
}


def settings(procedure: str = "reflexion", rounds: int = 3, **options: Any) -> Retry:
    buffer = {"buffer": 2} if procedure == "reflexion" else {}
    return Retry(**{"procedure": procedure, "rounds": rounds, "prompts": "prompts/x.yaml", **buffer, **options})


def said(text: str) -> Completion:
    """A token a word, and the end token."""
    return Completion([*range(3, 3 + len(text.split())), 1], text, "stop")


class Scripted:
    """Says what the script has for item, role and round, and keeps what it was asked, call by call; None: too long."""

    def __init__(self, script: dict[tuple[str, str, int], str | None]) -> None:
        self.script = script
        self.calls: list[list[tuple[str, str, int]]] = []
        self.asked: dict[tuple[str, str, int], Request] = {}

    def __call__(self, requests: Sequence[Request]) -> list[Completion | None]:
        self.calls.append([one.key for one in requests])
        self.asked |= {one.key: one for one in requests}
        texts = [self.script[one.key] for one in requests]
        return [None if text is None else said(text) for text in texts]


def by_gold(courses: Sequence[Course]) -> list[bool]:
    return [one.completion.text != one.example.answer for one in courses]


def no_gold(courses: Sequence[Course]) -> list[bool]:
    raise AssertionError("the gold answer is not to be asked")


EXAMPLES = [Example("a", "one", "1"), Example("b", "two", "2"), Example("c", "three", "3")]


def play(
    script: dict[tuple[str, str, int], str | None],
    retry: Retry,
    firsts: Sequence[str],
    failed: Callable[[Sequence[Course]], list[bool]] = by_gold,
) -> tuple[list[Course], Scripted]:
    model = Scripted(script)
    texts = REFLEXION if retry.procedure == "reflexion" else REFINE
    return try_again(retry, texts, EXAMPLES[: len(firsts)], [said(one) for one in firsts], model, failed), model


def facts(courses: Sequence[Course]) -> list[tuple[str, int, int, bool]]:
    return [(one.completion.text, one.rounds, one.tokens, one.too_long) for one in courses]


# -------------------------------------------------------------------------------------------------------------- reflexion

# a is right at once, b on its second further attempt, c never
REFLECTED: dict[tuple[str, str, int], str | None] = {
    ("b", "reflection", 1): "well <prompt> count </prompt>", ("b", "attempt", 1): "7 7",
    ("c", "reflection", 1): "add", ("c", "attempt", 1): "8",
    ("b", "reflection", 2): "look", ("b", "attempt", 2): "2",
    ("c", "reflection", 2): "sum up", ("c", "attempt", 2): "9",
    ("c", "reflection", 3): "think", ("c", "attempt", 3): "10",
}  # fmt: skip


def test_reflexion_goes_on_where_the_answer_failed() -> None:
    courses, model = play(REFLECTED, settings(), ["1", "5", "6"])
    assert model.calls == [
        [("b", "reflection", 1), ("c", "reflection", 1)],
        [("b", "attempt", 1), ("c", "attempt", 1)],
        [("b", "reflection", 2), ("c", "reflection", 2)],
        [("b", "attempt", 2), ("c", "attempt", 2)],
        [("c", "reflection", 3)],
        [("c", "attempt", 3)],
    ]
    # tokens: words and an end token of each text: a 2; b 2 + 5 + 3 + 2 + 2; c 2 + (2 + 2) + (3 + 2) + (2 + 2)
    assert facts(courses) == [("1", 0, 2, False), ("2", 2, 14, False), ("10", 3, 15, False)]


def test_the_last_reflections_stand_before_the_question_the_oldest_first() -> None:
    _, model = play(REFLECTED, settings(), ["1", "5", "6"])
    texts = {key: one.text for key, one in model.asked.items()}
    assert texts["b", "reflection", 1] == "why? two / 5"
    assert texts["b", "attempt", 1] == "[count] two"  # what stands in the tag
    assert texts["b", "reflection", 2] == "why? [count] two / 7 7"
    assert texts["b", "attempt", 2] == "[count] [look] two"
    assert texts["c", "reflection", 3] == "why? [add] [sum up] three / 9"
    assert texts["c", "attempt", 3] == "[sum up] [think] three"  # buffer: 2
    assert all(one.framed == (role == "attempt") for (_, role, _), one in model.asked.items())
    _, model = play(REFLECTED, settings(buffer=1), ["1", "5", "6"])
    assert model.asked["c", "attempt", 3].text == "[think] three"


def test_rounds_bound_reflexion_and_the_end_is_early_when_all_are_right() -> None:
    courses, model = play(REFLECTED, settings(rounds=1), ["1", "5", "6"])
    assert [one.rounds for one in courses] == [0, 1, 1] and len(model.calls) == 2
    courses, model = play({}, settings(), ["1", "2", "3"])
    assert model.calls == [] and facts(courses) == [("1", 0, 2, False), ("2", 0, 2, False), ("3", 0, 2, False)]


@pytest.mark.parametrize(("role", "tokens"), [("reflection", 2), ("attempt", 7)])
def test_an_item_keeps_its_attempt_where_a_prompt_has_no_room(role: str, tokens: int) -> None:
    courses, model = play({**REFLECTED, ("b", role, 1): None}, settings(), ["1", "5", "6"])
    assert facts(courses)[1] == ("5", 0, tokens, True)  # 2 of the attempt, 5 of the reflection
    assert not any(item == "b" and number == 2 for item, _, number in model.asked)
    assert facts(courses)[2] == ("10", 3, 15, False)  # the others go on


def test_an_empty_reflection_ends_an_item() -> None:
    courses, _ = play({**REFLECTED, ("b", "reflection", 1): "  "}, settings(), ["1", "5", "6"])
    assert facts(courses)[1] == ("5", 0, 3, False)


def test_braces_in_what_the_model_says_are_text() -> None:
    script = {("a", "reflection", 1): "{question}", ("a", "attempt", 1): "1"}
    _, model = play(script, settings(), ["{reflections}"])
    assert model.asked["a", "reflection", 1].text == "why? one / {reflections}"
    assert model.asked["a", "attempt", 1].text == "[{question}] one"


# ------------------------------------------------------------------------------------------------------------ self-refine


def test_self_refine_stops_when_its_feedback_says_so_and_never_asks_the_gold() -> None:
    script: dict[tuple[str, str, int], str | None] = {
        ("a", "feedback", 1): "<prompt>no, it is 4</prompt>", ("a", "attempt", 1): "4",
        ("b", "feedback", 1): "hm <prompt>fine AS it is.</prompt>",
        ("c", "feedback", 1): "too small", ("c", "attempt", 1): "3",
        ("a", "feedback", 2): "Fine as it is", ("c", "feedback", 2): "too big", ("c", "attempt", 2): "2",
    }  # fmt: skip
    courses, model = play(script, settings("self_refine", rounds=2), ["1", "5", "6"], no_gold)
    assert model.calls == [
        [("a", "feedback", 1), ("b", "feedback", 1), ("c", "feedback", 1)],
        [("a", "attempt", 1), ("c", "attempt", 1)],
        [("a", "feedback", 2), ("c", "feedback", 2)],
        [("c", "attempt", 2)],
    ]
    # a right answer is made wrong; b's wrong one stands; c was right on the way
    # tokens: a 2 + (5 + 2) + 5; b 2 + 6; c 2 + (3 + 2) + (3 + 2)
    assert facts(courses) == [("4", 1, 14, False), ("5", 0, 8, False), ("2", 2, 12, False)]
    texts = {key: one.text for key, one in model.asked.items()}
    assert texts["a", "feedback", 1] == "good? one / 1" and texts["a", "attempt", 1] == "no, it is 4: one / 1"
    assert texts["c", "feedback", 2] == "good? three / 3" and texts["c", "attempt", 2] == "too big: three / 3"
    assert all(one.framed == (role == "attempt") for (_, role, _), one in model.asked.items())


@pytest.mark.parametrize(
    ("text", "stop", "stops"),
    [
        ("right", "right", True), ("RIGHT!", "right", True), ("All steps hold. **Right.**\nBye", "right", True),
        ("- right\nall of it", "Right.", True), ("left to right", "right", False), ("right, but slow", "right", False),
        ("this is not right", "right", False), ("Done. Bye. Stop", "done. stop", True), ("Done", "done. stop", False),
        ("", "right", False), ("...", "right", False),
    ],
)  # fmt: skip
def test_what_says_stop(text: str, stop: str, stops: bool) -> None:
    assert says(text, stop) == stops


def test_self_refine_keeps_what_has_no_room_or_no_feedback() -> None:
    script = {
        ("a", "feedback", 1): None,
        ("b", "feedback", 1): "",
        ("c", "feedback", 1): "x",
        ("c", "attempt", 1): None,
    }
    courses, model = play(script, settings("self_refine"), ["1", "5", "6"], no_gold)
    assert facts(courses) == [("1", 0, 2, True), ("5", 0, 3, False), ("6", 0, 4, True)]
    assert len(model.calls) == 2


# ------------------------------------------------------------------------------------------ a suite, by a model that runs

SLOTS = {
    "question": "1 + 2 = ?",
    "attempt": "#### 3",
    "feedback": "multiply first",
    "reflections": "",
    "reflection": "",
}
PROMPT = PromptFormat(template="hm {question}", chat=False, answer="marker")
# What the bigram model says depends on a prompt's last word: `two` is answered by 2, `one` by 1, `none` by hm.
GOLDS = [
    Example("right", "one", "1"),
    Example("saved", "two", "1"),
    Example("lost", "none", "1"),
    Example("long", "round", "1"),
]
ONE = {
    "reflect": "{reflections} {question} {attempt} none",
    "reflection": "{reflection} ",
    "retry": "{reflections}{question} one",
}


@pytest.fixture(scope="module")
def grader():
    with Grader(workers=1, timeout_s=2.0) as pool:
        yield pool


def suite_of(retry: Retry, **changes: Any) -> Suite:
    return Suite(dataset="toy", max_completion_tokens=6, batch_rows=8, retry=retry, **changes)


def test_reflexion_of_a_suite_by_hand(bigram: Any, grader: Grader) -> None:
    suite = suite_of(settings(max_prompt_tokens=7))
    items, metrics = run_suite(bigram.model, bigram.tokenizer, GOLDS, suite, PROMPT, grader, ONE)
    assert items["text"].tolist() == ["####1", "####1", "####1", "round round round round round round"]
    assert items["correct"].tolist() == [True, True, True, False]
    assert items["first_correct"].tolist() == [True, False, False, False]
    assert items["rounds"].tolist() == [0, 1, 1, 0]
    # an answer and <eos>; these, hm and <eos>, an answer and <eos>; six words, and no room to ask about them in 7 tokens
    assert items["tokens"].tolist() == [2, 6, 6, 6]
    assert items["too_long"].tolist() == [False, False, False, True]
    assert items["length"].tolist() == [2, 2, 2, 6]
    assert (metrics["pass@1"], metrics["first/pass@1"]) == (0.75, 0.25)
    assert metrics["first/pass@1_se"] == pytest.approx(math.sqrt((0.75**2 + 3 * 0.25**2) / 3 / 4))
    assert (metrics["retry/rounds"], metrics["retry/tokens"], metrics["retry/too_long"]) == (0.5, 5.0, 1.0)
    assert metrics["length"] == 3.0
    roomy, _ = run_suite(bigram.model, bigram.tokenizer, GOLDS, suite_of(settings()), PROMPT, grader, ONE)
    assert roomy["tokens"].tolist() == [2, 6, 6, 6 + 2 + 2] and roomy["correct"].all()


def test_the_model_s_window_bounds_prompts_with_room_for_a_whole_answer(bigram: Any, grader: Grader) -> None:
    """The window is 64 tokens, an answer has up to 6: a prompt of 58 is put and one of 59 is not."""
    for words, too_long in ((55, False), (56, True)):  # beside the question and the attempt, and `none` at the end
        texts = {**ONE, "reflect": "{reflections} {question} {attempt}" + " hm" * words + " none"}
        items, _ = run_suite(bigram.model, bigram.tokenizer, GOLDS[1:2], suite_of(settings()), PROMPT, grader, texts)
        assert (items["too_long"].item(), items["correct"].item()) == (too_long, not too_long)


def test_what_the_grader_gave_up_on_is_not_known_to_have_failed(bigram: Any, grader: Grader) -> None:
    example = [Example("tower", "tower", "7x+y")]
    items, metrics = run_suite(bigram.model, bigram.tokenizer, example, suite_of(settings()), PROMPT, grader, ONE)
    assert items["rounds"].item() == 0 and metrics["ungraded"] == 1.0


def test_self_refine_of_a_suite_looks_at_no_gold(bigram: Any, grader: Grader) -> None:
    """The same attempts, whatever the gold answers are; here feedback is always hm, and every item is refined to 1."""
    texts = {"feedback": "{question} {attempt} none", "refine": "{question} {feedback} one", "stop": "never"}
    suite = suite_of(settings("self_refine", rounds=2))
    items, metrics = run_suite(bigram.model, bigram.tokenizer, GOLDS, suite, PROMPT, grader, texts)
    others = [Example(one.id, one.question, "3") for one in GOLDS]
    again, _ = run_suite(bigram.model, bigram.tokenizer, others, suite, PROMPT, grader, texts)
    assert items["text"].tolist() == again["text"].tolist() == ["####1"] * 4
    assert items["tokens"].tolist() == again["tokens"].tolist() == [10, 10, 10, 14]
    assert (metrics["retry/rounds"], metrics["first/pass@1"], metrics["pass@1"]) == (2.0, 0.25, 1.0)
    stopped, _ = run_suite(bigram.model, bigram.tokenizer, GOLDS, suite, PROMPT, grader, {**texts, "stop": "HM"})
    assert stopped["rounds"].tolist() == [0] * 4 and stopped["tokens"].tolist() == [4, 4, 4, 8]


@pytest.mark.parametrize(("file", "procedure"), [("reflexion-tiny", "reflexion"), ("self-refine-tiny", "self_refine")])
def test_the_tiny_world_s_files_on_a_base_of_it(file: str, procedure: str, grader: Grader, tmp_path: Path) -> None:
    """An untrained base of the world of orders babbles and is never right; all prompts are in its words. An item ends before
    its second round only where what is said about it holds special tokens alone."""
    base = ScratchBase(
        kind="scratch", vocabulary="orders", seed=0, hidden_size=16, intermediate_size=16, layers=1, heads=2, max_length=64,
        max_value=20, suites=[],
    )  # fmt: skip
    build(base, tmp_path)
    model, tokenizer = load_model(tmp_path, "cpu", "fp32", "suites.s.device")
    texts = read_texts(Path(__file__).parents[2], f"prompts/{file}.yaml", "k")
    examples = [Example(str(n), f"{n} + 2 * 3 = ?", str(n + 6)) for n in range(6)]
    format = PromptFormat(template="{question}", chat=True, answer="marker")
    buffer = {"buffer": 1} if procedure == "reflexion" else {}
    suite = Suite(dataset="orders", max_completion_tokens=4, batch_rows=4, retry=settings(procedure, 2, **buffer))
    items, metrics = run_suite(model, tokenizer, examples, suite, format, grader, texts)
    assert not any("<unk>" in tokenizer.decode(tokenizer(fill(text, **SLOTS))["input_ids"]) for text in texts.values())
    said = 1 + 2 * items["rounds"] + (items["rounds"] < 2)  # completions, the empty review that ends an item among them
    assert items["rounds"].max() == 2 and metrics["retry/too_long"] == 0 and not items["correct"].any()
    assert items["tokens"].between(said, 4 * said).all()
    narrow = suite.model_copy(update={"retry": settings(procedure, 2, max_prompt_tokens=9, **buffer)})
    items, metrics = run_suite(model, tokenizer, examples, narrow, format, grader, texts)
    assert items["tokens"].equals(items["length"]) and metrics["retry/too_long"] == 6


# --------------------------------------------------------------------------------------------------- stage and comparison


def test_a_stage_s_suites_with_and_without_retry_stand_side_by_side(project: Any) -> None:
    """One model, from its plan to the table: the plain suite's key stays, another text is another result."""
    pin(project.root)
    evaluate("toy-run", project.root)
    report = project.root / "reports" / "runs" / "toy-run"
    plain = read_json(report / "small" / "manifest.json")
    retry = settings(rounds=1).model_dump(exclude_none=True)
    again = {"dataset": "toy", "max_completion_tokens": 6, "batch_rows": 8, "retry": retry}
    write_plan(project, {"small": project.suite, "again": again}, ONE)
    made = read_json(report / "again" / "manifest.json")
    assert read_json(report / "small" / "manifest.json") == plain and "texts" not in plain
    assert made["texts"] == ONE and made["suite"] == again
    # golds are 1, 2, 3, 1, 1 and the retry always says 1
    assert pd.read_parquet(report / "again" / "items.parquet")["correct"].tolist() == [True, True, False, True, True]
    assert read_json(report / "again" / "metrics.json")["first/pass@1"] == pytest.approx(2 / 5)

    models = {
        "toy-run": {"arm": "toy-run", "start_from": None, "suites": ["small", "again"], "method": "rlvr", "seed": 0}
    }
    content = {"compare": {"resamples": 50, "seed": 0, "confidence": 0.95}, "models": models,
               "suites": {"small": project.suite, "again": again}}  # fmt: skip
    write_atomic(project.root / "resolved" / "compare.json", pretty_json(content))
    compare(project.root)
    parts = (project.root / "reports" / "compare" / "table.md").read_text().split("## ")
    small, tried = (next(part for part in parts if part.startswith(name)) for name in ("small", "again"))
    assert "tokens |" not in small and "oracle" not in small and "gold" not in small
    assert "asks the gold answers which attempts failed, so this is no pass@1 of a policy" in tried
    header, row = (
        [cell.strip() for cell in line.split("|")] for line in tried.splitlines() if line.startswith(("| arm", "| toy"))
    )
    cells = dict(zip(header, row, strict=True))
    # tokens: 2; 2; three times an answer, hm and an answer, the endless one with six words at first
    assert (cells["first/pass@1"], cells["rounds"], cells["tokens"]) == (
        "40.0",
        "0.6",
        f"{(2 + 2 + 6 + 6 + 10) / 5:.1f}",
    )

    write_plan(project, {"small": project.suite, "again": again}, {**ONE, "reflect": "{question} none"})
    assert read_json(report / "again" / "manifest.json")["key"] != made["key"]


def write_plan(project: Any, suites: dict[str, Any], texts: dict[str, str]) -> None:
    """Resolved settings with the texts of `again`, and the evaluation by them."""
    project.settings(project.root, suites)
    path = project.root / "resolved" / "evaluate" / "toy-run.json"
    write_atomic(path, pretty_json({**read_json(path), "texts": {"again": texts}}))
    pin(project.root)
    evaluate("toy-run", project.root)
