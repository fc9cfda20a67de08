"""What all reward benchmarks have in common: a prompt, responses to it, and which of them ought to score higher."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Message = dict[str, str]  # role and content
Conversation = Sequence[Message]
Scorer = Callable[[Sequence[Conversation]], Sequence[float]]


@runtime_checkable
class Counting(Protocol):
    """What a scorer that reads tokens counts; `reward_model.scoring.RewardModelScorer` says what."""

    truncated: int
    unknown: int
    tokens: int


@dataclass(frozen=True)
class Item:
    """One row of a benchmark.

    right: which of the responses are correct (or preferred). pairs: places of responses that are compared, the right one
    first. group: rows of one group are no independent evidence (they share a prompt), and count as one for errors.
    """

    id: str
    subset: str
    messages: tuple[Message, ...]
    responses: tuple[str, ...]
    right: tuple[bool, ...]
    pairs: tuple[tuple[int, int], ...]
    group: str

    def conversations(self) -> list[Conversation]:
        return [[*self.messages, {"role": "assistant", "content": response}] for response in self.responses]


def versus(right: int, wrong: int) -> tuple[tuple[bool, ...], tuple[tuple[int, int], ...]]:
    """`right` and `pairs` of an item whose first `right` responses are each compared with the `wrong` that follow."""
    pairs = tuple((i, right + j) for i in range(right) for j in range(wrong))
    return (True,) * right + (False,) * wrong, pairs
