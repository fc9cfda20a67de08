"""RLIF's rewards by hand, against a plain oracle, without gold, and what policies that make no sense earn by them."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from harness import PLAIN
from pydantic import ValidationError
from world import training

from judgefree.advantages import EPSILON
from judgefree.config import PromptFormat
from judgefree.episodes import Completion, Example, Prompt, Turn
from judgefree.errors import JudgefreeError
from judgefree.methods import Setting
from judgefree.methods.rlif import (
    Options,
    Rlif,
    cluster_shares,
    majority,
    majority_votes,
    vote_key,
    vote_metrics,
)
from judgefree.scoring.answers import extract
from judgefree.scoring.grader import Grader

MULTI = {"reward": "multi", "alpha": 0.5, "beta": 0.5, "format_weight": 0.1, "final_batch_norm": False}
CLUSTER = {"reward": "cluster", "format_weight": 0.1, "final_batch_norm": False}
ALL = [MULTI, {**MULTI, "final_batch_norm": True}, {**MULTI, "combine_then_normalise": True}, CLUSTER,
       *({"reward": reward, "final_batch_norm": False} for reward in ("certainty", "majority", "random"))]  # fmt: skip


class Scripted:
    """A policy that says what it is told, and is as sure of it as the text is long."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self.texts = texts

    def encode(self, question: str) -> list[int]:
        return [1]

    def encode_chat(self, messages: Any) -> list[int]:
        raise NotImplementedError

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        return [[Completion([len(text) % 97 + 2, 1], text, "stop") for text in group] for group in self.texts]

    def score(self, turns: Sequence[Turn]) -> list[list[float]]:
        raise NotImplementedError

    def self_certainty(self, turns: Sequence[Turn]) -> list[float]:
        return [turn.completion_ids[0] / 10 for turn in turns]

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(values)


def play(
    options: dict, texts: Sequence[Sequence[str]], golds: Sequence[str | None] = (), grader: Any = None
) -> tuple[Any, Rlif]:
    size = len(texts[0])
    method = Rlif(
        Options(**options), Setting(training(group_size=size, rollout_size=size * len(texts)), PLAIN, grader, 3)
    )
    golds = golds or [None] * len(texts)
    return method.play([Example(f"e{i}", "q", gold) for i, gold in enumerate(golds)], Scripted(texts)), method


def box(answer: str) -> str:
    return f"so it is \\boxed{{{answer}}}"


# ------------------------------------------------------------------------------------------------------------ clusters


def test_shares_by_hand() -> None:
    """Faults B14: 8 completions, 5 unreadable; the share is of the 3 that are readable, and None is no cluster."""
    keys = [None, "4", None, "5", None, "4", None, None]
    assert cluster_shares(keys) == [0, 2 / 3, 0, 1 / 3, 0, 2 / 3, 0, 0]
    assert cluster_shares(["7"] * 4) == [1, 1, 1, 1]
    assert cluster_shares([None, None]) == [0, 0]


def test_votes_by_hand() -> None:
    assert majority(["5", "4", "4", None]) == "4" and majority_votes(["5", "4", "4", None]) == [0, 1, 1, 0]
    assert majority(["5", "4", "4", "5"]) == "5"  # a tie goes to the first
    assert majority([None, None]) is None and majority_votes([None, None]) == [0, 0]


def test_ten_thousand_groups_against_the_slow_count() -> None:
    draw = random.Random(2)
    for _ in range(10_000):
        keys = [draw.choice([None, "1", "2", "3"]) for _ in range(draw.randrange(1, 10))]
        readable = sum(key is not None for key in keys)
        slow = [0.0 if a is None else sum(a == b for b in keys) / readable for a in keys]
        assert cluster_shares(keys) == pytest.approx(slow)
        best = [k for k in dict.fromkeys(keys) if k is not None]
        best = [k for k in best if keys.count(k) == max(keys.count(other) for other in best)]
        assert majority(keys) == (best[0] if best else None)


@pytest.mark.parametrize(
    ("answer", "key"),
    [("42", "42"), ("42.0", "42"), ("\\frac{1}{2}", "1/2"), ("0.5", "1/2"), ("2k+1", "1+2*k"), ("(1, 2)", "(1,2)"),
     ("\\text{Evelyn}", '"evelyn"'), ("52_8", "~52_8"),
     ("no", None), ("?!", None), ("", None), ("x_1 \\to", None), ("7" * 2000, None)],
)  # fmt: skip
def test_which_answers_form_clusters(answer: str, key: str | None) -> None:
    assert vote_key(answer) == key


def test_equal_answers_share_a_cluster_whatever_their_spelling_and_order() -> None:
    """Faults B5: a pairwise check would depend on the order of the two."""
    texts = [box("0.5"), box("\\frac12"), box("(0,12.5)"), box("[0,12.5)")]
    rollout, _ = play(CLUSTER, [texts])
    assert [record["cluster"] for record in rollout.records] == [0.5, 0.5, 0.25, 0.25]
    back, _ = play(CLUSTER, [texts[::-1]])
    assert [record["cluster"] for record in back.records] == [0.25, 0.25, 0.5, 0.5]


# ------------------------------------------------------------------------------------------------------------- channels

GROUP = [box("4"), box("4"), "no idea", box("5") + "!!", box("?")]


def test_rewards_of_each_kind_by_hand() -> None:
    """Readable: 4, 4, 5. Shares 2/3, 2/3, 0, 1/3, 0; an answer stands in the box in all but the third."""
    shares, formats = [2 / 3, 2 / 3, 0, 1 / 3, 0], [1, 1, 0, 1, 1]
    channel = [s + 0.1 * f for s, f in zip(shares, formats, strict=True)]
    certainty = [(len(text) % 97 + 2) / 10 for text in GROUP]
    expected = {"cluster": channel, "majority": [1, 1, 0, 0, 0], "certainty": certainty,
                "multi": [0.5 * a + 0.5 * b for a, b in zip(channel, certainty, strict=True)]}  # fmt: skip
    for options in (MULTI, CLUSTER, {"reward": "majority", "final_batch_norm": False},
                    {"reward": "certainty", "final_batch_norm": False}):  # fmt: skip
        rollout, _ = play(options, [GROUP])
        assert [r["reward"] for r in rollout.records] == pytest.approx(expected[options["reward"]])  # type: ignore[index]
        assert [r["cluster"] for r in rollout.records] == pytest.approx(shares)
        assert [r["format"] for r in rollout.records] == formats


def zscore(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return [(v - mean) / (std + EPSILON) for v in values]


def test_multi_normalises_each_channel_then_whitens() -> None:
    rollout, _ = play(MULTI, [GROUP])
    channel, certainty = (
        [r["cluster"] + 0.1 * r["format"] for r in rollout.records], [r["certainty"] for r in rollout.records]
    )  # fmt: skip
    by_hand = [0.5 * a + 0.5 * b for a, b in zip(zscore(channel), zscore(certainty), strict=True)]
    assert [turn.advantage for turn in rollout.turns] == pytest.approx(by_hand)
    white, _ = play({**MULTI, "final_batch_norm": True}, [GROUP])
    assert [turn.advantage for turn in white.turns] == pytest.approx(zscore(by_hand))
    combined, _ = play({**MULTI, "combine_then_normalise": True}, [GROUP])
    assert [turn.advantage for turn in combined.turns] == pytest.approx(zscore([r["reward"] for r in rollout.records]))
    assert [record["advantage"] for record in white.records] == [turn.advantage for turn in white.turns]


def test_dead_only_where_both_channels_are_constant() -> None:
    alive = [box("1"), box("1") + " "]  # equal answers, unequal certainty
    rollout, _ = play({**MULTI, "final_batch_norm": True}, [[box("1")] * 2, alive])
    assert [turn.dead for turn in rollout.turns] == [True, True, False, False]
    assert [turn.advantage for turn in rollout.turns[:2]] == [0.0, 0.0]


def test_the_coin_is_fair_repeatable_and_fresh_in_every_rollout() -> None:
    options = {"reward": "random", "final_batch_norm": False}
    texts = [[box("1")] * 50] * 20
    rollout, method = play(options, texts)
    again, _ = play(options, texts)
    rewards = [record["reward"] for record in rollout.records]
    assert rewards == [record["reward"] for record in again.records] and set(rewards) == {0.0, 1.0}
    assert abs(sum(rewards) / 1000 - 0.5) < 0.06
    other = Rlif(Options(**options), method.setting)
    other.load_state_dict(method.state_dict())
    examples = [Example(f"e{i}", "q") for i in range(20)]
    second = [record["reward"] for record in method.play(examples, Scripted(texts)).records]
    assert second == [record["reward"] for record in other.play(examples, Scripted(texts)).records] != rewards


# ---------------------------------------------------------------------------------------------------------------- gold


@pytest.mark.parametrize("options", ALL, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_no_gold_answer_reaches_the_reward(options: dict) -> None:
    """With right gold, wrong gold and none at all (and then no grader either) the turns are the same."""
    texts = [GROUP, [box("1"), box("2"), box("2"), "x", box("3")]]
    with Grader(1, 2.0) as grader:
        played = [play(options, texts, golds, grader)[0] for golds in (["4", "2"], ["77", "\\frac{1}{3}"])]
    without, _ = play(options, texts)
    assert played[0].turns == played[1].turns == without.turns
    rewards = [[record["reward"] for record in rollout.records] for rollout in (*played, without)]
    assert rewards[0] == rewards[1] == rewards[2]
    assert "vote/accuracy" not in without.metrics and without.records[0]["gold"] is None
    own = [rollout.metrics["own_signal/rollout"] for rollout in (*played, without)]
    assert own[0] == own[1] == own[2]


def test_vote_accuracy_is_logged_where_gold_exists() -> None:
    """Votes 4, 2 and none: one of the two that have gold is right; the third has no vote and is wrong; the last no gold."""
    texts = [[box("4"), box("4.0"), box("5")], [box("2"), box("1"), box("2")], ["", "", ""], [box("9")] * 3]
    with Grader(1, 2.0) as grader:
        rollout, _ = play(CLUSTER, texts, ["4", "1", "3", None], grader)
    assert rollout.metrics["vote/accuracy"] == pytest.approx(1 / 3)


# ---------------------------------------------------------------------------------------------------------- own signal


def test_own_signal_by_hand() -> None:
    """Four questions, each sure of another answer: 1. The same answer everywhere, or no agreement at all: 0."""
    assert vote_metrics([["1"] * 4, ["2"] * 4, ["3"] * 4, ["4"] * 4])["own_signal/rollout"] == pytest.approx(1.0)
    assert vote_metrics([["1"] * 4] * 4)["own_signal/rollout"] == 0.0
    assert vote_metrics([["1", "2", "3", "4"]] * 4)["own_signal/rollout"] == pytest.approx(0.0)
    half = vote_metrics([["1", None], ["2", None]])
    assert half["own_signal/rollout"] == pytest.approx(0.5) and half["completions/unparsed_ratio"] == 0.5
    mixed = vote_metrics([["1", "1", "2", "2"], ["3"] * 4])
    assert mixed["cluster/entropy"] == pytest.approx(math.log(2) / 2)
    assert mixed["answers/entropy"] == pytest.approx(1.5 * math.log(2))  # of 1/4, 1/4, 1/2
    assert mixed["own_signal/rollout"] == pytest.approx(1.0)  # every answer tells its question
    assert vote_metrics([[None, None]] * 2)["own_signal/rollout"] == 0.0
    assert vote_metrics([["1", "1"]])["own_signal/rollout"] == 0.0


def test_a_marker_that_is_repeated_is_read_once() -> None:
    assert extract("#### 4\n" * 10_000, "marker") == "4"


# ------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [({**MULTI, "alpha": None}, "wants alpha; add it"),
     ({"reward": "certainty", "final_batch_norm": False, "beta": 1.0}, "has no beta; remove it"),
     ({"reward": "cluster", "final_batch_norm": False}, "wants format_weight"),
     ({**CLUSTER, "combine_then_normalise": True}, "nothing to combine"),
     ({**MULTI, "gamma": 1}, "gamma"), ({"reward": "gold", "final_batch_norm": True}, "reward")],
)  # fmt: skip
def test_options_that_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Options.model_validate(options)


def test_another_estimator_is_refused() -> None:
    prompt = PromptFormat(template="{question}", chat=False, answer="boxed")
    with pytest.raises(JudgefreeError, match="set advantage: grpo"):
        Rlif(Options(**CLUSTER), Setting(training(advantage="rloo"), prompt, None, 0))  # type: ignore[arg-type]
