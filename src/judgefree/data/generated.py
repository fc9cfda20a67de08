"""What the generated worlds share: the mark before an answer, and questions that belong to one split each."""

from collections.abc import Callable
from typing import TypeVar

from judgefree.episodes import stream_seed
from judgefree.errors import JudgefreeError

MARKER = "####"
NEAR_MISS = 3  # a slip misses the true value by at most this much
DRAWS_PER_ROW = 1000

T = TypeVar("T")


def home(kind: str, question: str) -> str:
    """The split that a question of this kind of data belongs to, by its hash: 70 % train, 10 % validation, 20 % test."""
    tenth = stream_seed(kind, question) % 10
    return "test" if tenth < 2 else "validation" if tenth < 3 else "train"


def unseen(kind: str, split: str, draw: Callable[[], tuple[str, T]], seen: set[str], fix: str) -> tuple[str, T]:
    """The first drawn (question, meaning) of this split whose question is not in `seen`, where it is added.

    Raises JudgefreeError with this `fix` when DRAWS_PER_ROW draws give none.
    """
    for _ in range(DRAWS_PER_ROW):
        question, meaning = draw()
        if home(kind, question) == split and question not in seen:
            seen.add(question)
            return question, meaning
    raise JudgefreeError(
        f"data of kind {kind}: no new {split} question in {DRAWS_PER_ROW} draws after {len(seen)} different ones", fix
    )
