"""SRRL's memory by hand: what is recalled, what is remembered, and that several processes remember what one does."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from srrl_world import EXAMPLES, SCRIPT, Scripted, box, of, srrl

from judgefree.episodes import Completion, Example
from judgefree.methods.srrl import nearest

# ---------------------------------------------------------------------------------------------------------------- memory


def test_memory_is_read_as_it_stood_and_appended_in_row_order() -> None:
    method, first, second = srrl(), Scripted(SCRIPT), Scripted(SCRIPT)
    rollout = method.play(EXAMPLES, first)
    assert all(row["memory"] is None for row in rollout.records)
    assert method.memory == [
        {"example": "a", "question": "two plus two", "review": "care a1"},
        {"example": "b", "question": "three plus four", "review": "care b0"},
        {"example": "b", "question": "three plus four", "review": "care b1"},
    ]
    rollout = method.play(EXAMPLES, second)
    assert {row["memory"] for row in of(rollout, "review").values()} == {"care b1"}
    assert second.asked["a", "review", 1] == f"review\ncare b1\ntwo plus two\n{box(5)}\nwrong"
    assert "care b1" not in second.asked["a", "second", 1]  # a second attempt sees its own review only
    assert len(method.memory) == 6 and rollout.metrics["memory/size"] == 6
    assert method.state_dict() == {"memory": method.memory, "rollouts": 2}


def test_the_oldest_leave_first() -> None:
    method = srrl(memory={"rule": "latest", "size": 4})
    for letter in "xy":
        method.play(EXAMPLES, Scripted({**SCRIPT, ("a", "review", 1): f"<prompt>{letter}</prompt>"}))
    assert [past["review"] for past in method.memory] == ["care b1", "y", "care b0", "care b1"]


def test_without_memory() -> None:
    method = srrl(memory=None)
    for _ in range(2):
        rollout = method.play(EXAMPLES, Scripted(SCRIPT))
    assert method.memory == [] and all(row["memory"] is None for row in rollout.records)
    assert rollout.metrics["memory/size"] == 0


STORED = [("3 + 4 = ?", "add"), ("9 - 2 = ?", "take"), ("3 + 4 = ?", "add again"), ("how many cows", "count")]


@pytest.mark.parametrize(
    ("question", "review"),
    [("3 + 4 = ?", "add again"), ("8 - 1 = ?", "take"), ("how many pigs", "count"), ("how MANY", "count"),
     ("none of these", "count")],
)  # fmt: skip
def test_the_nearest_question_counts_operators_and_ties_go_to_the_newest(question: str, review: str) -> None:
    assert STORED[nearest([asked for asked, _ in STORED], [question])[0]][1] == review
    method, policy = srrl(memory={"rule": "nearest", "size": 9}), Scripted(SCRIPT)
    method.memory = [{"example": "m", "question": asked, "review": said} for asked, said in STORED]
    method.play([Example("a", question, "4"), EXAMPLES[1]], policy)
    assert policy.asked["a", "review", 1].startswith(f"review\n{review}\n{question}")


def test_nearest_by_hand() -> None:
    """Document frequencies of a, b, c among three texts: 2, 2, 1; idf = ln(4 / (1 + df)) + 1."""
    assert nearest(["a b", "b c", "a"], ["c", "a", "b a"]) == [1, 2, 0]
    assert nearest(["a"], []) == []


def test_random_memory_is_repeatable_and_differs_by_place_and_rollout() -> None:
    def shown(seed: int, rollouts: int) -> list[str]:
        method = srrl(seed=seed, memory={"rule": "random", "size": 50})
        method.memory = [{"example": "m", "question": "q", "review": f"r{i}"} for i in range(50)]
        method.rollouts = rollouts
        return [row["memory"] for row in of(method.play(EXAMPLES, Scripted(SCRIPT)), "review").values()]

    assert shown(3, 0) == shown(3, 0)
    assert len(set(shown(3, 0))) > 1
    assert shown(3, 0) != shown(3, 1) and shown(3, 0) != shown(4, 0)


@pytest.mark.parametrize("rule", ["latest", "random", "nearest"])
def test_a_saved_state_goes_on_as_if_it_had_not_been_saved(rule: str) -> None:
    whole, half = (srrl(memory={"rule": rule, "size": 4}) for _ in range(2))
    whole.play(EXAMPLES, Scripted(SCRIPT))
    half.load_state_dict(whole.state_dict())
    saved = half.state_dict()
    went_on = [method.play(EXAMPLES, Scripted(SCRIPT)) for method in (whole, half)]
    assert went_on[0] == went_on[1] and whole.state_dict() == half.state_dict()
    assert len(saved["memory"]) == 3  # what was saved is not written to afterwards


# ------------------------------------------------------------------------------------------------------- two processes


RAGGED = {**SCRIPT, ("a", "second", 1): Completion([3, 4, 5, 6, 1], box(4), "stop")}


class Shared(Scripted):
    """One of two processes, as threads: `gather` waits for the other and joins what both give, by rank."""

    def __init__(self, rank: int, barrier: Barrier, given: dict[int, list[Any]]) -> None:
        super().__init__(RAGGED)
        self.rank, self.barrier, self.given = rank, barrier, given

    def gather(self, values: Sequence[Any]) -> list[Any]:
        self.given[self.rank] = list(values)
        self.barrier.wait(10)
        joined = self.given[0] + self.given[1]
        self.barrier.wait(10)
        return joined


@pytest.mark.parametrize("options", [{}, {"distillation": "sequence", "memory": {"rule": "nearest", "size": 4}}])
def test_two_processes_remember_and_measure_what_one_does(options: dict[str, Any]) -> None:
    alone, barrier = srrl(**options), Barrier(2)
    given: dict[int, list[Any]] = {}
    both, policies = [srrl(**options), srrl(**options)], [Shared(rank, barrier, given) for rank in (0, 1)]
    for _ in range(2):
        whole = alone.play(EXAMPLES, Scripted(RAGGED))
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(lambda i: both[i].play(EXAMPLES[i : i + 1], policies[i]), (0, 1)))
        assert [part.metrics for part in parts] == [whole.metrics] * 2
        assert [one.memory for one in both] == [alone.memory] * 2
        assert [row for part in parts for row in part.records] == whole.records
        turns = [[replace(turn, prompt_ids=[]) for turn in one.turns] for one in (whole, *parts)]
        assert turns[1] + turns[2] == turns[0]  # the same rows in the same order: they are shared out among updates
    assert len(alone.memory) == (6 if not options else 4)
