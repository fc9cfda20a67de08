"""What a judge is asked and what it answers, whoever it is: an endpoint, a reward model or a policy.

Judges answer in lists, so that a served one is asked many things at a time and a local one in batches. An answer that did
not come or cannot be read is no verdict and says why; `require_coverage` refuses to make a score of too many of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from judgefree.errors import JudgefreeError

COVERAGE = 0.99  # a score of fewer of its rows is no score of them
_SHOWN = 5  # rows that a message names


class Verdict(StrEnum):
    """The five grades of a comparison, as Arena-Hard writes them; A is the text shown first."""

    FIRST_MUCH = "A>>B"
    FIRST = "A>B"
    TIE = "A=B"
    SECOND = "B>A"
    SECOND_MUCH = "B>>A"

    @property
    def preference(self) -> float:
        """1 where the second text is better, 0 where the first is, 0.5 for a tie."""
        return {"A": 0.0, "B": 1.0}[self.value[0]] if self is not Verdict.TIE else 0.5

    @property
    def much(self) -> bool:
        return ">>" in self.value


@dataclass(frozen=True)
class Bill:
    """What an answer took: tokens read and written, and their price in the currency of the settings (0 for local judges).

    cached: nothing was paid for it this time; tokens and price are still those of the time when it was bought, so that a
    second run tells the same. An answer that serves several equal questions of one call is billed to the first of them.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    cached: bool = False


@dataclass(frozen=True)
class Contest:
    """Two answers to one instruction, in the order in which the judge sees them."""

    instruction: str
    first: str
    second: str


@dataclass(frozen=True)
class Work:
    """One answer to an instruction, to be rated."""

    instruction: str
    text: str


@dataclass(frozen=True)
class Judgement:
    """verdict: None where there is none. preference: that for the second text, in [0, 1]; NaN without a verdict. A reward
    model knows it by degrees, other judges as their verdict has it. said: what the judge wrote, or why there is none."""

    verdict: Verdict | None
    preference: float = math.nan
    said: str = ""
    bill: Bill = Bill()


@dataclass(frozen=True)
class Rating:
    """score: higher is better, NaN where there is none; from 1 to 10 of a judge that reads a rubric, unbounded of a reward
    model. said: as in a Judgement."""

    score: float = math.nan
    said: str = ""
    bill: Bill = Bill()


class Judge(Protocol):
    """Made by `judging.opening.open_judge` with the texts of a prompt file, which hold the criteria (the rubric)."""

    def compare(self, contests: Sequence[Contest]) -> list[Judgement]:
        """A verdict on every contest, in their order. Nothing is asked in the other order: that is the caller's."""
        ...

    def rate(self, works: Sequence[Work]) -> list[Rating]:
        """A score for every text, in their order."""
        ...


def total(bills: Sequence[Bill]) -> Bill:
    """Sums; cached where all of them were."""
    return Bill(
        sum(bill.prompt_tokens for bill in bills),
        sum(bill.completion_tokens for bill in bills),
        math.fsum(bill.cost for bill in bills),
        all(bill.cached for bill in bills),
    )


def require_coverage(missing: Sequence[tuple[str, str]], rows: int, judge: str) -> None:
    """Refuses a score when more than 1 % of `rows` have no verdict.

    missing: id of each such row and why. Raises JudgefreeError naming the judge and rows.
    """
    if len(missing) <= (1 - COVERAGE) * rows:
        return
    named = "; ".join(f"{row} ({why})" for row, why in missing[:_SHOWN])
    rest = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    raise JudgefreeError(
        f"judge {judge} gave no verdict on {len(missing)} of {rows} rows, and a score needs {COVERAGE:.0%} of them: "
        f"{named}{rest}",
        "repeat the command: what was judged is kept and only the rest is asked again",
    )
