"""Further attempts at inference time: Reflexion and Self-Refine, the baselines that learn nothing and pay in tokens.

Reflexion (Shinn et al. 2023): an attempt that failed is reflected on in words, the last `buffer` reflections are put
before the question, and the question is tried again. *Whether an attempt failed is asked of the gold answer, at test
time*: its score is that of a policy with an oracle and up to `rounds` more tries, no pass@1 of a policy.

Self-Refine (Madaan et al. 2023): the model gives feedback on its own attempt and refines it, until a sentence or line of
the feedback is the text `stop`, or after `rounds`. Gold answers are never looked at, so a right attempt can be refined
into a wrong one.

Both decode greedily, and every text of theirs has the suite's length limit and the data set's stop strings. What is said
about an attempt is read as SRRL reads its reviews: the last closed <prompt> tag that holds any text, else the whole. An
item whose review says nothing, or whose next prompt would be too long, keeps its last attempt. What the grader gave up
on is not known to have failed, and is not tried again.

Where ours differs: Reflexion's reflections and retries see the buffer and not the earlier attempts, a reflection sees the
last attempt; Self-Refine's prompts hold the last attempt and its feedback, not the whole history.
"""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from judgefree.config import Retry
from judgefree.episodes import Completion, Example
from judgefree.prompting import fill, guidelines

_MARKS = string.punctuation + string.whitespace


@dataclass(frozen=True)
class Request:
    """A text put to the model. framed: as a question in the data set's prompt, else as a message of its own."""

    key: tuple[str, str, int]  # example id, role, round
    text: str
    framed: bool


@dataclass
class Course:
    """One item's way. completion: its last attempt; rounds: attempts made after the first; tokens: of all that was
    sampled for it; too_long: it ended since the next prompt had no room."""

    example: Example
    completion: Completion
    tokens: int
    rounds: int = 0
    too_long: bool = False
    reflections: list[str] = field(default_factory=list)


Ask = Callable[[Sequence[Request]], list[Completion | None]]  # None where the prompt would be too long
Failed = Callable[[Sequence[Course]], list[bool]]  # by the gold answer: did the last attempt fail?


def try_again(
    settings: Retry,
    texts: Mapping[str, str],
    examples: Sequence[Example],
    firsts: Sequence[Completion],
    ask: Ask,
    failed: Failed,
) -> list[Course]:
    """The way of every item from its first attempt on, in the examples' order; items that go on share one call of `ask`
    for their reviews and one for their attempts in each round. Only Reflexion calls `failed`."""
    courses = [Course(example, first, len(first.ids)) for example, first in zip(examples, firsts, strict=True)]
    going = courses
    for number in range(1, settings.rounds + 1):
        if settings.procedure == "reflexion":
            assert settings.buffer
            going = [one for one, wrong in zip(going, failed(going), strict=True) if wrong]
            going = _reflexion(going, number, settings.buffer, texts, ask)
        else:
            going = _self_refine(going, number, texts, ask)
        if not going:
            break
    return courses


def _reflexion(courses: Sequence[Course], number: int, buffer: int, texts: Mapping[str, str], ask: Ask) -> list[Course]:
    """A reflection on each failed attempt, and the next one with the last reflections, the oldest first."""

    def slots(one: Course) -> dict[str, str]:
        kept = "".join(fill(texts["reflection"], reflection=text) for text in one.reflections)
        return {"question": one.example.question, "attempt": one.completion.text, "reflections": kept}

    reflected = _reviews(courses, ask, "reflection", number, lambda one: fill(texts["reflect"], **slots(one)))
    for one, text in reflected:
        one.reflections = [*one.reflections, text][-buffer:]
    again = [(one, fill(texts["retry"], **slots(one))) for one, _ in reflected]
    return _attempts(again, ask, number)


def _self_refine(courses: Sequence[Course], number: int, texts: Mapping[str, str], ask: Ask) -> list[Course]:
    """Feedback on each attempt and, where it does not say stop, the attempt refined."""

    def slots(one: Course) -> dict[str, str]:
        return {"question": one.example.question, "attempt": one.completion.text}

    said = _reviews(courses, ask, "feedback", number, lambda one: fill(texts["feedback"], **slots(one)))
    on = [(one, text) for one, text in said if not says(text, texts["stop"])]
    again = [(one, fill(texts["refine"], **slots(one), feedback=text)) for one, text in on]
    return _attempts(again, ask, number)


def says(text: str, stop: str) -> bool:
    """Whether the sentences of `stop` are sentences or lines of the text, apart from case and the marks around them. A
    part of a sentence is not enough: "left to right" does not say "right"."""
    return _sentences(stop) <= _sentences(text)


def _sentences(text: str) -> set[str]:
    return {plain for one in re.split(r"[.!?\n]", text) if (plain := one.strip(_MARKS).casefold())}


def _reviews(
    courses: Sequence[Course], ask: Ask, role: str, number: int, text: Callable[[Course], str]
) -> list[tuple[Course, str]]:
    """What the model says about each item's attempt, without the items that end here."""
    answers = _asked([(one, text(one)) for one in courses], ask, role, number, framed=False)
    read = [(one, guidelines(answer.text) or answer.text.strip()) for one, answer in answers]
    return [(one, review) for one, review in read if review]


def _attempts(texts: Sequence[tuple[Course, str]], ask: Ask, number: int) -> list[Course]:
    """Another attempt at each item; the items that made one."""
    answers = _asked(texts, ask, "attempt", number, framed=True)
    for one, answer in answers:
        one.completion = answer
        one.rounds = number
    return [one for one, _ in answers]


def _asked(
    texts: Sequence[tuple[Course, str]], ask: Ask, role: str, number: int, framed: bool
) -> list[tuple[Course, Completion]]:
    """Answers to the texts that there is room for; their tokens are counted."""
    if not texts:
        return []
    answers = ask([Request((one.example.id, role, number), text, framed) for one, text in texts])
    answered = []
    for (one, _), answer in zip(texts, answers, strict=True):
        if answer is None:
            one.too_long = True
        else:
            one.tokens += len(answer.ids)
            answered.append((one, answer))
    return answered
