"""The generated world in which a second look can help: expressions that habit works out from left to right.

A policy warmed up on `lessons` knows the rules of order and does not use them unless it is told to: asked barely it goes
by habit, after a guideline ("multiply first") it does as it says, and asked to review a failed attempt it names a
guideline, often the right one. So a review unlocks what plain sampling seldom finds. No real data is involved.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from judgefree.config_data import Lessons, OrdersData
from judgefree.data.expressions import ALL_RULES, FAMILIES, SIGNS, Expression, Family, draw, slipped, work_out, written
from judgefree.data.generated import MARKER, unseen
from judgefree.episodes import stream_seed

HABIT: frozenset[str] = frozenset()

# How the roles are asked, as in prompts/srrl-tiny.yaml; a test holds the two together.
REVIEW = "review\n{memory}{question}\n{attempt}\n{feedback}"
MEMORY = "{review}\n"
SECOND = "{guidelines}\n{question}"
SOLVED, FAILED = "right", "wrong"
OPEN, CLOSE = "<prompt>", "</prompt>"

BARE = "bare"


@dataclass(frozen=True)
class Task:
    family: Family
    expression: Expression

    @property
    def question(self) -> str:
        return f"{' '.join(map(str, self.expression))} = ?"


def rows(settings: OrdersData) -> dict[str, list[dict[str, Any]]]:
    """Rows of the train, validation and test splits: id, question, answer, solution, demonstration.

    `solution` keeps the right order and `demonstration`, which only training rows have, is what warm-up imitates. An
    expression belongs to one split by its hash, whatever the seed, and no question comes twice. With `lessons` the
    question of a training row is all that the user says in the row's role; `answer` and `solution` are those of its
    expression.

    Raises JudgefreeError when the settings do not allow that many different questions.
    """
    sizes = {"train": settings.train, "validation": settings.validation, "test": settings.test}
    return {split: list(_split(settings, split, size)) for split, size in sizes.items()}


def vocabulary(max_value: int) -> list[str]:
    """Every word, number and sign of this world's texts; line ends are words of their own."""
    texts = [REVIEW.split("{")[0], SOLVED, FAILED, *(family.guideline for family in FAMILIES.values())]
    words = {word for text in texts for word in text.split()}
    numbers = [str(number) for number in range(max_value + 1)]
    return [*numbers, *SIGNS, "(", ")", "=", "?", MARKER, "\n", OPEN, CLOSE, *sorted(words)]


def review_of(family: Family) -> str:
    return f"{OPEN} {family.guideline} {CLOSE}"


def _split(settings: OrdersData, split: str, size: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(stream_seed("orders", settings.seed, split))
    seen: dict[str, set[str]] = {}  # by role: no expression comes twice in one, so no question does at all
    for index in range(size):
        # A stream of its own: what is demonstrated leaves the other rows' expressions as they are.
        lesson = random.Random(stream_seed("orders", settings.seed, split, index))
        roles = settings.lessons if split == "train" else None
        role = _role(roles, lesson) if roles else BARE
        task = _task(settings, split, rng, seen.setdefault(role, set()))
        question, demonstration = task.question, None
        if split == "train":
            question, demonstration = _lesson(settings, roles, role, task, lesson)
        solution = _right(settings, task)
        yield {
            "id": f"{split}-{index:06d}",
            "question": question,
            "answer": solution.rsplit(" ", 1)[1],
            "solution": solution,
            "demonstration": demonstration,
        }


def _task(settings: OrdersData, split: str, rng: random.Random, seen: set[str]) -> Task:
    """A new expression of this split; its family is drawn first, so that small families keep their share."""
    (name,) = rng.choices(list(settings.families), list(settings.families.values()))

    def drawn() -> tuple[str, Task]:
        task = Task(FAMILIES[name], draw(FAMILIES[name], settings.max_value, rng))
        return task.question, task

    fix = f"ask for fewer rows, raise max_value, or lower the share of family {name}"
    return unseen("orders", split, drawn, seen, fix)[1]


def _role(lessons: Lessons, rng: random.Random) -> str:
    shares = {"guided": lessons.guided, "review": lessons.review, "memory": lessons.memory}
    return rng.choices([*shares, BARE], [*shares.values(), max(0.0, 1 - sum(shares.values()))])[0]


def _lesson(
    settings: OrdersData, lessons: Lessons | None, role: str, task: Task, rng: random.Random
) -> tuple[str, str]:
    """What the user says in this role, and what the policy is to say."""
    if role == BARE or lessons is None:
        return task.question, _attempt(settings, task, rng)
    if role == "guided":
        family = _guess(task, lessons.fitting, rng)
        rules = frozenset(family.rules) if rng.random() < lessons.follow else HABIT
        question = SECOND.format(guidelines=family.guideline, question=task.question)
        return question, _demonstration(settings, task, rules, rng)
    past = rng.choice(list(FAMILIES.values())) if role == "memory" else None
    attempt = _attempt(settings, task, rng)
    question = REVIEW.format(
        memory=MEMORY.format(review=past.guideline) if past else "",
        question=task.question,
        attempt=attempt,
        feedback=SOLVED if attempt.split()[-1] == _right(settings, task).split()[-1] else FAILED,
    )
    family = past if past and rng.random() < lessons.copy_memory else _guess(task, lessons.insight, rng)
    return question, review_of(family)


def _guess(task: Task, insight: float, rng: random.Random) -> Family:
    """The family itself with probability `insight`, else another."""
    others = [family for family in FAMILIES.values() if family is not task.family]
    return task.family if rng.random() < insight else rng.choice(others)


def _attempt(settings: OrdersData, task: Task, rng: random.Random) -> str:
    return _demonstration(settings, task, ALL_RULES if rng.random() < settings.ordered else HABIT, rng)


def _demonstration(settings: OrdersData, task: Task, rules: frozenset[str], rng: random.Random) -> str:
    """The steps by these rules, or by habit where they lead out of range; sometimes with a slip."""
    if work_out(task.expression, rules, settings.max_value) is None:
        rules = HABIT
    if rng.random() < settings.slip:
        return written(slipped(task.expression, rules, settings.max_value, rng))
    steps = work_out(task.expression, rules, settings.max_value)
    assert steps, "an expression that is drawn can be worked out by habit"
    return written(steps)


def _right(settings: OrdersData, task: Task) -> str:
    steps = work_out(task.expression, ALL_RULES, settings.max_value)
    assert steps, "an expression that is drawn can be worked out"
    return written(steps)
