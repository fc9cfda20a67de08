"""Rejection sampling as an option of RLVR: which completions are imitated, and that nothing else is learnt."""

import pytest
from harness import PLAIN
from pydantic import ValidationError
from world import training

from judgefree.episodes import Completion, Example, Prompt
from judgefree.methods import Setting
from judgefree.methods.rlvr import Options, Rlvr

RIGHT, WRONG, CUT, LOST = "\\boxed{4}", "\\boxed{5}", "\\boxed{4} and", "\\boxed{99}"


class Policy:
    def encode(self, question: str) -> list[int]:
        return [7]

    def sample(self, prompts: list[Prompt], n: int) -> list[list[Completion]]:
        texts = [RIGHT, WRONG, CUT, LOST]
        return [[Completion([i, 1], text, "length" if text == CUT else "stop") for i, text in enumerate(texts)]] * len(
            prompts
        )

    def gather(self, values: list) -> list:
        return list(values)


class Grader:
    """By hand: the last one is given up on."""

    def grade(self, rows: list) -> list[str]:
        return ["correct" if answer == "4" else "timeout" if answer == "99" else "wrong" for _, answer in rows]


def test_right_completions_are_imitated_and_nothing_else() -> None:
    setting = Setting(training(), PLAIN, Grader(), 0)  # type: ignore[arg-type]
    rollout = Rlvr(Options(imitation_weight=0.5), setting).play(
        [Example("a", "q", "4"), Example("b", "q", "4")], Policy()
    )  # type: ignore
    imitated = [turn for turn in rollout.turns if turn.imitation_weight]
    assert [(turn.prompt_ids, turn.completion_ids, turn.imitation_weight) for turn in imitated] == [
        ([7], [0, 1], 0.5)
    ] * 2
    assert [turn.role for turn in rollout.turns] == ["attempt", "imitated", *["attempt"] * 3] * 2  # by example
    assert all(turn.dead and turn.advantage == 0 for turn in rollout.turns if turn.role == "attempt")
    assert len(rollout.records) == 8 and rollout.metrics["reward"] == pytest.approx(2 / 3)
    plain = Rlvr(Options(), setting).play([Example("a", "q", "4")], Policy())  # type: ignore[arg-type]
    assert len(plain.turns) == 4 and plain.turns[0].advantage > 0 > plain.turns[1].advantage


def test_a_weight_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError):
        Options(imitation_weight=0.0)
