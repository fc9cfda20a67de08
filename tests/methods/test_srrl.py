"""SRRL's episodes by hand: a scripted policy says what it is told, and what it is asked is looked at."""

import math
from typing import Any

import pytest
from pydantic import ValidationError
from srrl_world import (
    EXAMPLES,
    OPTIONS,
    SCRIPT,
    Scripted,
    box,
    of,
    played,
    rewards,
    sampled,
    srrl,
)

from judgefree.advantages import EPSILON
from judgefree.episodes import Completion, Rollout, Turn
from judgefree.errors import JudgefreeError, PromptTooLong
from judgefree.methods.srrl import Options
from judgefree.prompting import guidelines

# ------------------------------------------------------------------------------------------------------- gate and rewards


def test_an_episode_by_hand() -> None:
    rollout, policy, _ = played()
    assert policy.calls == [2, 5, 5]
    assert rewards(rollout, "attempt") == {"a0": 1, "a1": 0, "a2": 0, "b0": 0, "b1": 0, "b2": 0}
    assert rewards(rollout, "review") == rewards(rollout, "second") == {"a1": 1, "a2": 0, "b0": 1, "b1": 1, "b2": 0}
    third, half = math.sqrt(1 / 3) + EPSILON, math.sqrt(1 / 2) + EPSILON  # stds of 1, 0, 0 and of 1, 0
    pair, three = [0.5 / half, -0.5 / half], [1 / 3 / third, 1 / 3 / third, -2 / 3 / third]
    expected = [2 / 3 / third, -1 / 3 / third, -1 / 3 / third, *pair, *pair, 0, 0, 0, *three, *three]
    turns = sampled(rollout)
    assert [turn.advantage for turn in turns] == pytest.approx(expected)
    assert [row["advantage"] for row in rollout.records] == [turn.advantage for turn in turns]
    assert [turn.dead for turn in turns] == [False] * 7 + [True] * 3 + [False] * 6
    roles = {turn.group: turn.role for turn in rollout.turns}
    assert roles == {f"{e}/{role}": role for role in ("attempt", "review", "second", "distilled") for e in "ab"}
    assert len({frozenset(row) for row in rollout.records}) == 1  # equal columns


def test_turns_keep_what_the_engine_said() -> None:
    cut = [Completion([5, 6], "no", "length", [-0.1 * n, -0.2]) for n in range(3)]
    script = {**SCRIPT, ("a", "attempt", 1): cut[0], ("a", "review", 1): cut[1], ("a", "second", 1): cut[2]}
    turns = [turn for turn in played(script)[0].turns if turn.finish_reason == "length"]
    assert [turn.role for turn in turns] == ["attempt", "review", "second"]
    assert [turn.sampling_logprobs for turn in turns] == [completion.logprobs for completion in cut]


@pytest.mark.parametrize(
    ("gate", "reviewed"),
    [("per_rollout", "a1 a2 b0 b1 b2"), ("all_failed", "b0 b1 b2"), ("always", "a0 a1 a2 b0 b1 b2")],
)
def test_gates(gate: str, reviewed: str) -> None:
    rollout, policy, _ = played(gate=gate)
    assert list(rewards(rollout, "review")) == list(rewards(rollout, "second")) == reviewed.split()
    assert rollout.metrics["reviews/gated"] == len(reviewed.split()) / 6
    if gate == "always":
        assert policy.asked["a", "review", 0].endswith("\nright") and policy.asked["a", "review", 1].endswith("\nwrong")


def test_nothing_is_reviewed_where_all_is_right() -> None:
    right = {("a", "attempt", i): box(4) for i in range(3)} | {("b", "attempt", i): box(7) for i in range(3)}
    rollout, policy, method = played(right)
    assert policy.calls == [2, 0, 0] and len(rollout.turns) == len(rollout.records) == 6
    assert method.memory == [] and rollout.metrics["reviews/gated"] == 0
    assert not {"reward/second", "reward/review", "reviews/untagged"} & set(rollout.metrics)


def test_what_is_asked() -> None:
    """The attempt's prompt is the task's own, so is the second's around guidelines and question; the review's is not."""
    _, policy, _ = played()
    assert policy.asked["a", "attempt", 0] == "<two plus two>"
    assert policy.asked["a", "review", 1] == f"review\ntwo plus two\n{box(5)}\nwrong"
    assert policy.asked["a", "second", 1] == "<care a1\ntwo plus two>"


def test_slots_that_a_completion_plants_stay_text() -> None:
    planted = "{question} {feedback} {memory} {attempt} \\1"
    script = {**SCRIPT, ("a", "attempt", 1): planted, ("a", "review", 1): "<prompt>{question}{guidelines}</prompt>"}
    _, policy, method = played(script)
    assert policy.asked["a", "review", 1] == f"review\ntwo plus two\n{planted}\nwrong"
    assert policy.asked["a", "second", 1] == "<{question}{guidelines}\ntwo plus two>"
    again = Scripted({**SCRIPT})
    method.memory = method.memory[:1]
    method.play(EXAMPLES, again)
    assert again.asked["b", "review", 0] == f"review\n{{question}}{{guidelines}}\nthree plus four\n{box(1)}\nwrong"


def test_what_the_grader_gave_up_on_is_no_reward() -> None:
    """An attempt is then not reviewed, whatever the gate; a second attempt leaves its review without a reward."""
    script = {**SCRIPT, ("a", "attempt", 1): box(99), ("b", "second", 1): box(99)}
    for gate in ("per_rollout", "always"):
        rollout, _, method = played(script, gate=gate)
        assert ("a", 1) not in of(rollout, "review") and math.isnan(of(rollout, "attempt")["a", 1]["reward"])
        assert math.isnan(of(rollout, "review")["b", 1]["reward"])
        lost = [turn for turn, row in zip(sampled(rollout), rollout.records, strict=True) if math.isnan(row["reward"])]
        assert len(lost) == 3 and all(turn.dead and turn.advantage == 0 for turn in lost)
        assert [past["review"] for past in method.memory] == ["care b0"]
        assert rollout.metrics["reward"] == pytest.approx(1 / 5) and rollout.metrics["reward/missing"] == 1 - 5 / 6
    unknown = {**SCRIPT, **{("b", "attempt", i): box(99) for i in range(3)}, ("a", "attempt", 0): box(99)}
    rollout, _, _ = played(unknown, gate="all_failed")
    assert list(rewards(rollout, "review")) == ["a1", "a2"]  # as far as is known all failed


# ------------------------------------------------------------------------------------------------------------ guidelines


@pytest.mark.parametrize(
    ("review", "found"),
    [
        ("I see. <prompt> count </prompt> bye", "count"),
        ("<prompt>one</prompt><prompt>two\nlines</prompt>", "two\nlines"),
        ("<prompt>closed</prompt> and <prompt>never closed", "closed"),
        ("<prompt>never <prompt>inner</prompt>", "inner"),
        ("<prompt>one</prompt> <prompt> </prompt>", "one"),
        ("no tag", None), ("<prompt>", None), ("</prompt>x<prompt>", None), ("<PROMPT>x</PROMPT>", None), ("", None),
    ],
)  # fmt: skip
def test_guidelines(review: str, found: str | None) -> None:
    assert guidelines(review) == found


def test_reviews_without_a_tag() -> None:
    script = {**SCRIPT, ("a", "review", 1): "just care", ("b", "review", 2): "   "}
    rollout, policy, method = played(script)
    assert policy.asked["a", "second", 1] == "<just care\ntwo plus two>"
    assert ("b", 2) not in of(rollout, "second") and of(rollout, "review")["b", 2]["reward"] == 0
    assert [past["review"] for past in method.memory] == ["just care", "care b0", "care b1"]
    assert rollout.metrics["reviews/untagged"] == 2 / 5
    dropped, _, method = played(script, untagged="drop")
    assert list(rewards(dropped, "second")) == ["a2", "b0", "b1"]
    assert rewards(dropped, "review") == {"a1": 0, "a2": 0, "b0": 1, "b1": 1, "b2": 0}
    assert [past["review"] for past in method.memory] == ["care b0", "care b1"]
    assert dropped.metrics["reviews/untagged"] == 2 / 5 and dropped.metrics["rollout/too_long"] == 0


def test_prompts_that_are_too_long_are_not_played() -> None:
    """A limit of 60 characters: one review's prompt is longer, and another's second."""
    script = {**SCRIPT, ("a", "attempt", 1): "x" * 60, ("b", "review", 0): f"<prompt>{'y' * 60}</prompt>"}
    rollout, policy, _ = played(script, limit=60)
    assert policy.calls == [2, 4, 3]
    assert list(rewards(rollout, "review")) == ["a2", "b0", "b1", "b2"]
    assert math.isnan(of(rollout, "review")["b", 0]["reward"])  # nobody tried its guidelines
    assert list(rewards(rollout, "second")) == ["a2", "b1", "b2"]
    assert rollout.metrics["rollout/too_long"] == 2 and rollout.metrics["rollout/completions"] == 6 + 4 + 3
    with pytest.raises(PromptTooLong):  # a question of the data set is not left out in silence
        played(limit=5)


def test_memory_that_does_not_fit_is_left_out_so_that_it_can_be_renewed() -> None:
    method, policy = srrl(), Scripted({**SCRIPT, ("a", "attempt", 1): box(5) + "!" * 30}, limit=70)
    method.memory = [{"example": "m", "question": "q", "review": "z" * 25}]
    shown = {f"{e}{s}": row["memory"] for (e, s), row in of(method.play(EXAMPLES, policy), "review").items()}
    assert shown == {"a1": None, **dict.fromkeys(("a2", "b0", "b1", "b2"), "z" * 25)}
    assert policy.asked["a", "review", 1] == f"review\ntwo plus two\n{box(5)}{'!' * 30}\nwrong"
    assert [past["review"] for past in method.memory[1:]] == ["care a1", "care b0", "care b1"]


# ------------------------------------------------------------------------------------------------------------- imitation


def imitated(rollout: Rollout) -> list[Turn]:
    return [turn for turn in rollout.turns if turn.imitation_weight > 0]


def test_right_second_attempts_are_imitated_on_the_bare_question() -> None:
    long = Completion([3, 4, 5, 6, 1], box(4), "stop")
    cut = Completion([3] * 12, box(7), "length")
    script = {**SCRIPT, ("a", "second", 1): long, ("b", "second", 1): cut}
    rollout, policy, method = played(script, distillation_weight=0.5)
    turns = imitated(rollout)
    assert [(policy.texts[turn.prompt_ids[0]], turn.completion_ids) for turn in turns] == [
        ("<two plus two>", [3, 4, 5, 6, 1]), ("<three plus four>", [3, 4, 1]),
    ]  # fmt: skip
    assert {turn.imitation_weight for turn in turns} == {0.5} and {turn.role for turn in turns} == {"distilled"}
    assert [f"{e}{s}" for (e, s), row in of(rollout, "second").items() if row["distilled"]] == ["a1", "b0"]
    assert of(rollout, "second")["b", 1]["reward"] == 1 and len(method.memory) == 3  # right all the same
    assert rollout.metrics["rollout/distilled"] == 2
    assert sum(row["distilled"] for row in rollout.records) == 2


def test_every_imitated_completion_weighs_alike_under_sequence() -> None:
    """Lengths 5 and 3 under lambda 0.5: 0.5 * 4 / 5 and 0.5 * 4 / 3 per token, 2 each and 4 = 0.5 * 8 together."""
    script = {**SCRIPT, ("a", "second", 1): Completion([3, 4, 5, 6, 1], box(4), "stop"), ("b", "second", 1): box(0)}
    turns = imitated(played(script, distillation_weight=0.5, distillation="sequence")[0])
    assert [turn.imitation_weight for turn in turns] == pytest.approx([0.4, 2 / 3])
    with pytest.raises(JudgefreeError, match="use distillation: token"):
        srrl(loss={"aggregation": "grpo"}, distillation="sequence")


def test_without_distillation() -> None:
    rollout, _, method = played(distillation_weight=0.0, distillation=None)
    assert imitated(rollout) == [] and len(rollout.turns) == 16 and len(method.memory) == 3
    assert rollout.metrics["rollout/distilled"] == 0


# --------------------------------------------------------------------------------------------------- metrics and options


def test_metrics_by_hand() -> None:
    """Attempts and seconds say two words and the end token; the reviews "<prompt>care a1</prompt>" too."""
    metrics = played({**SCRIPT, ("b", "attempt", 2): "no answer"})[0].metrics
    assert metrics == {
        "reward": pytest.approx(1 / 6), "reward_std": pytest.approx(math.sqrt(1 / 3) / 2), "reward/missing": 0,
        "completions/unparsed_ratio": pytest.approx(1 / 6), "reward/second": pytest.approx(3 / 5),
        "reward/review": pytest.approx(3 / 5), "reviews/gated": pytest.approx(5 / 6), "reviews/untagged": 0,
        "rollout/completions": 16, "rollout/completions/attempt": 6, "rollout/completions/review": 5,
        "rollout/completions/second": 5, "rollout/tokens": 48, "rollout/tokens/attempt": 18,
        "rollout/tokens/review": 15, "rollout/tokens/second": 15, "rollout/too_long": 0, "rollout/distilled": 3,
        "memory/size": 3,
    }  # fmt: skip


def test_the_monitor_watches_the_attempts() -> None:
    assert played()[0].watched == "attempt"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": "never"}, "gate"), ({"untagged": "keep"}, "untagged"), ({"distillation_weight": -1}, "greater than"),
        ({"distillation": None}, "distillation is given exactly when"),
        ({"distillation_weight": 0}, "distillation is given exactly when"),
        ({"memory": {"rule": "best", "size": 1}}, "rule"), ({"memory": {"rule": "latest", "size": 0}}, "size"),
        ({"memory": {"rule": "latest"}}, "size"), ({"tau": 1}, "tau"),
    ],
)  # fmt: skip
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Options.model_validate({**OPTIONS, **options})
