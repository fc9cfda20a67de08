"""The spy game by hand: who sees what, what is earned, what is learnt."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from pydantic import ValidationError
from spyrl_world import (
    EXAMPLES,
    HYSTERESIS,
    JOINT,
    OPTIONS,
    PERFORMING,
    Scripted,
    ballots,
    of,
    orders,
    played,
    spies,
    spyrl,
)

from judgefree.advantages import EPSILON
from judgefree.episodes import Example
from judgefree.errors import JudgefreeError
from judgefree.methods.spyrl import Options
from judgefree.registry.catalogue import describe, mlflow_name

# ------------------------------------------------------------------------------------------------------------- the game


def test_what_is_asked() -> None:
    rollout, policy, method = played()
    assert policy.calls == [(16, 1), (16, 1)]
    for example in EXAMPLES:
        spy = spies(rollout)[example.id]
        (start, end) = (of(rollout, "performer", example.id)[0][key] for key in ("span_start", "span_end"))
        hidden = example.question[:start] + "* *" + example.question[end:]
        assert len(example.question[start:end].split()) == 2
        for seat in range(4):
            view = hidden if seat == spy else example.question
            task = "write, 50 % hidden" if seat == spy else "write, all of it"
            assert policy.asked[example.id, "performer", seat] == f"{view}\n{task}"
            question = policy.asked[example.id, "detector", seat]
            (game,) = method.environment.inject([example], 0)
            order = method.environment.order(game, seat)
            listed = "\n".join(f"{n}) sees {2 if one == spy else 4}" for n, one in enumerate(order, 1))
            assert question == f"{view}\nwho?\n{listed}"
    assert not any("gold" in text or "shown" in text or "thinking" in text for text in policy.texts)


def test_spies_spans_and_orders_are_drawn_evenly_and_again_the_same() -> None:
    method = spyrl(size=5)
    examples = [Example(f"e{n}", "a b c d e f") for n in range(600)]
    games = method.environment.inject(examples, 7)
    assert games == method.environment.inject(examples, 7) != method.environment.inject(examples, 8)
    assert games[:2] != spyrl(size=5, seed=4).environment.inject(examples[:2], 7)
    assert all(90 < count < 150 for count in Counter(game.spy for game in games).values())  # 120 +- 3 sigma
    assert set(Counter(game.view.start for game in games if game.view)) == {0, 2, 4, 6}
    first = Counter(method.environment.order(game, seat)[0] for game in games for seat in range(5))
    assert all(500 < count < 700 for count in first.values()) and len(first) == 5  # 600 each
    several = [[tuple(method.environment.order(game, seat)) for seat in range(5)] for game in games]
    assert sum(len(set(one)) for one in several) / 600 > 4.8  # 5 of 120 orders, nearly always unequal


def test_votes_are_mapped_back_and_counted() -> None:
    order = orders(spyrl())
    says = ballots(2, 0, 2, "N/A", order=order)
    rollout, _, _ = played(says)
    performers, detectors = of(rollout, "performer", "e0"), of(rollout, "detector", "e0")
    assert [row["vote"] for row in detectors] == [2, 0, 2, None]
    assert [row["vote_kind"] for row in detectors] == ["vote", "vote", "vote", "na"]
    assert [row["votes"] for row in performers] == [1, 0, 2, 0] and {row["votes"] for row in detectors} == {None}
    spy = spies(rollout)["e0"]
    assert [row["reward"] for row in detectors] == [float(vote == spy) for vote in (2, 0, 2, None)]


def test_who_sees_all_outputs_of_whom() -> None:
    """The scripted detectors name the spy; every turn of the games is right, so nothing is left to learn from it."""
    rollout, _, _ = played()
    assert rollout.metrics["detector/accuracy"] == rollout.metrics["detector/accuracy_spy"] == 1.0
    assert rollout.metrics["votes/received_by_spy"] == 4.0
    assert all(turn.dead and turn.advantage == 0 for turn in rollout.turns) and len(rollout.turns) == 16


def test_an_output_without_its_marker() -> None:
    says = {("e0", "performer", 1): "no marker", ("e0", "performer", 2): "Answer:  "}
    rollout, policy, _ = played(says)
    outputs = [row["output"] for row in of(rollout, "performer", "e0")]
    assert [one == "(no answer)" for one in outputs] == [False, True, True, False]
    assert policy.asked["e0", "detector", 0].count("(no answer)") == 2
    assert rollout.metrics["completions/unparsed_ratio"] == 2 / 16
    whole = played({(e.id, "detector", i): "" for e in EXAMPLES for i in range(4)}, answer="whole")[0]
    assert {row["output"] for row in whole.records if row["role"] == "performer"} == {
        f"thinking\nAnswer: sees {words}" for words in (2, 4)
    }


def test_one_overseer() -> None:
    options = {"detectors": "overseer", "overseer_votes": 3}
    rollout, policy, _ = played({("e0", "detector", 1): "\\boxed{N/A}"}, **options)
    assert policy.calls == [(16, 1), (4, 3)]
    assert policy.asked["e0", "detector", 0].startswith("w0 x0 y0 z0\nwho?")
    detectors = of(rollout, "detector", "e0")
    assert [row["vote_kind"] for row in detectors] == ["vote", "na", "vote"] and [r["slot"] for r in detectors] == [
        0,
        1,
        2,
    ]
    assert len({tuple(turn.prompt_ids) for turn in rollout.turns if turn.group == "e0/detector"}) == 1
    assert "detector/accuracy_spy" not in rollout.metrics and rollout.metrics["detector/accuracy"] == 11 / 12
    assert max(row["votes"] for row in of(rollout, "performer", "e0")) == 2


def test_without_a_spy_nothing_is_hidden() -> None:
    rollout, policy, _ = played(spy="none")
    assert not any("*" in text or "hidden" in text for text in policy.texts)
    assert {row["span_start"] for row in rollout.records} == {None} and "information_loss/ratio" not in rollout.metrics
    assert spies(rollout) == spies(played()[0]), "the spy is drawn all the same, as where something is hidden"
    assert rollout.metrics["detector/accuracy"] < 1


# ------------------------------------------------------------------------------------------------------- what is learnt


def test_detectors_learn_within_their_game() -> None:
    order, spy = orders(spyrl()), spies(played()[0])["e0"]
    wrong = (spy + 1) % 4
    says = ballots(spy, wrong, "N/A", "x", order=order)
    rollout, _, _ = played(says)
    turns = [turn for turn in rollout.turns if turn.group == "e0/detector"]
    std = math.sqrt(3 / 16) + EPSILON
    assert [turn.advantage for turn in turns] == pytest.approx([0.75 / std, *[-0.25 / std] * 3])
    assert not any(turn.dead for turn in turns) and {turn.role for turn in rollout.turns} == {"detector"}
    assert {turn.role for turn in rollout.untrained} == {"performer"} and rollout.watched == "performer"
    shaped = played(says, detection_reward="shaped")[0]
    assert [r["reward"] for r in of(shaped, "detector", "e0")] == pytest.approx([1.89, -1.5, -0.9, -1.5])
    thought = {place: "<think>who, who, who</think>" + said for place, said in says.items()}
    shaped = played(thought, detection_reward="shaped")[0]
    assert [r["reward"] for r in of(shaped, "detector", "e0")] == pytest.approx([2.49, -0.9, -0.3, -0.9])


def test_performers_learn_above_their_roles_baselines() -> None:
    """All votes on the spies: -0.4 and 0.4 / 3 in each game. The baselines approach them from 0, game by game."""
    rollout, _, method = played(schedule=PERFORMING)
    baseline = 0.0
    for example in EXAMPLES:
        baseline = 0.9 * baseline + 0.1 * -0.4
        spy, rows = spies(rollout)[example.id], of(rollout, "performer", example.id)
        expected = [(-0.4 if seat == spy else 0.4 / 3) for seat in range(4)]
        assert [row["reward"] for row in rows] == pytest.approx(expected)
        left = [r - (baseline if seat == spy else -baseline / 3) for seat, r in enumerate(expected)]
        assert [row["advantage"] for row in rows] == pytest.approx(left)
    assert method.baselines == {"spy": pytest.approx(baseline), "civilian": pytest.approx(-baseline / 3)}
    assert {turn.role for turn in rollout.turns} == {"performer"} and not any(turn.dead for turn in rollout.turns)
    assert {row["advantage"] for row in rollout.records if row["role"] == "detector"} == {0.0}
    assert rollout.metrics["reward"] == pytest.approx(0) and rollout.metrics["reward/spy"] == pytest.approx(-0.4)


def test_other_advantages_of_performers() -> None:
    raw = played(schedule=PERFORMING, baseline={"rule": "none"})
    assert all(row["advantage"] == row["reward"] for row in raw[0].records if row["role"] == "performer")
    assert raw[2].baselines == {"spy": 0.0, "civilian": 0.0}
    read = played(schedule=PERFORMING, baseline={"rule": "read_first", "decay": 0.9})[0]
    assert [r["advantage"] for r in of(read, "performer", "e0")] == [r["reward"] for r in of(read, "performer", "e0")]
    again = played(schedule=PERFORMING, baseline={"rule": "none"}, normalise_performing=True)[0]
    for row in of(again, "performer", "e0"):  # one at -0.4, three at 0.4 / 3: mean 0, std 0.8 / 3 with ddof = 1
        assert row["advantage"] == pytest.approx(row["reward"] / (0.8 / 3 + 1e-6))


def test_games_without_votes_teach_performers_nothing_at_first() -> None:
    nobody = {(example.id, "detector", i): "\\boxed{N/A}" for example in EXAMPLES for i in range(4)}
    rollout, _, _ = played(nobody, schedule=PERFORMING)
    assert all(turn.dead and turn.advantage == 0 for turn in rollout.turns) and rollout.metrics["votes/na"] == 1.0


def test_both_learn_under_joint() -> None:
    rollout, _, _ = played(schedule=JOINT)
    assert [turn.group for turn in rollout.turns[:9]] == ["e0/performer"] * 4 + ["e0/detector"] * 4 + ["e1/performer"]
    assert len(rollout.turns) == 32 and rollout.untrained == [] and {r["stage"] for r in rollout.records} == {"joint"}
    assert (rollout.metrics["stage/performing"], rollout.metrics["stage/detection"]) == (1.0, 1.0)


def test_stages_alternate_and_go_on_from_a_saved_state() -> None:
    """Detectors are always right: detection hands over after 2 rollouts, performing ends after 3 by patience."""
    method, other = spyrl(schedule=HYSTERESIS), spyrl(schedule=HYSTERESIS)
    stages = []
    for number in range(8):
        rollout = method.play(EXAMPLES, Scripted())
        stages.append(rollout.records[0]["stage"][0])
        if number == 3:  # in the middle of a stage, after baselines have moved
            saved = method.state_dict()
            other.load_state_dict(json.loads(json.dumps(saved)))
            before = json.dumps(saved)
        if number > 3:
            assert rollout == other.play(EXAMPLES, Scripted()) and method.state_dict() == other.state_dict()
    assert "".join(stages) == "ddpppddp" and json.dumps(saved) == before
    assert method.state_dict()["rollouts"] == 8
    fresh = spyrl()
    fresh.load_state_dict({})
    assert fresh.state_dict() == spyrl().state_dict()


# ------------------------------------------------------------------------------------------------------------- too long


def test_a_game_with_a_prompt_that_is_too_long_is_left_out() -> None:
    """e0: an output of 60 characters makes its detectors' prompts too long; e1: its source is too long by itself."""
    long = [EXAMPLES[0], Example("e1", "w " * 40), *EXAMPLES[2:]]
    method, policy = spyrl(), Scripted({("e0", "performer", 0): "Answer: " + "x" * 60}, limit=75)
    rollout = method.play(long, policy)
    assert policy.calls == [(12, 1), (8, 1)] and rollout.metrics["game/too_long"] == 2
    assert {row["prompt_id"] for row in rollout.records} == {"e2", "e3"} and len(rollout.turns) == 8


@pytest.mark.parametrize("limit", [10, 45])
def test_a_rollout_of_nothing_but_long_prompts_is_an_error(limit: int) -> None:
    with pytest.raises(JudgefreeError, match=r"every game of a rollout(.|\n)*raise training.max_prompt_tokens"):
        played(limit=limit)


# --------------------------------------------------------------------------------------------------------- two processes


class Shared(Scripted):
    """One of two processes, as threads: `gather` waits for the other and joins what both give, by rank."""

    def __init__(
        self, rank: int, barrier: Barrier, given: dict[int, list[Any]], says: dict[Any, str], limit: int
    ) -> None:
        super().__init__(says, limit)
        self.rank, self.barrier, self.shared = rank, barrier, given

    def gather(self, values: Sequence[Any]) -> list[Any]:
        self.shared[self.rank] = list(values)
        self.barrier.wait(10)
        joined = self.shared[0] + self.shared[1]
        self.barrier.wait(10)
        return joined


@pytest.mark.parametrize("limit", [10**9, 75])
@pytest.mark.parametrize(
    "options", [{"schedule": HYSTERESIS}, {"schedule": JOINT, "baseline": {"rule": "read_first", "decay": 0.5}}]
)
def test_two_processes_learn_and_measure_what_one_does(options: dict[str, Any], limit: int) -> None:
    """Under the limit all games of the first process are left out: it has nothing to sample or to teach."""
    says = {("e0", "detector", i): "\\boxed{1}" for i in range(4)} | {
        ("e3", "detector", i): "\\boxed{N/A}" for i in (1, 2)
    }
    examples = EXAMPLES if limit > 75 else [Example(e.id, "w " * 40) for e in EXAMPLES[:2]] + EXAMPLES[2:]
    alone, barrier, given = spyrl(**options), Barrier(2), {}
    both = [spyrl(**options), spyrl(**options)]
    policies = [Shared(rank, barrier, given, says, limit) for rank in (0, 1)]
    for _ in range(4):
        whole = alone.play(examples, Scripted(says, limit))
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(lambda i: both[i].play(examples[2 * i : 2 * i + 2], policies[i]), (0, 1)))
        assert [part.metrics for part in parts] == [whole.metrics] * 2
        assert [one.state_dict() for one in both] == [alone.state_dict()] * 2
        assert parts[0].records + parts[1].records == whole.records
        for pick in (lambda one: one.turns, lambda one: one.untrained):
            turns = [[replace(turn, prompt_ids=[]) for turn in pick(one)] for one in (whole, *parts)]
            assert turns[1] + turns[2] == turns[0]
    assert len(policies[0].calls) == len(policies[1].calls) == 8


# ---------------------------------------------------------------------------------------------------- metrics and options


def test_metrics_by_hand() -> None:
    """e0's detectors: right, wrong, out of range, invalid. Performers say four words and the end, the others one."""
    order, spy = orders(spyrl()), spies(played()[0])["e0"]
    says = ballots(spy, (spy + 1) % 4, "9", "me", order=order)
    rollout, _, _ = played(says, schedule=HYSTERESIS)
    at_spy = float(spy == 0)
    assert rollout.metrics == {
        "reward": 13 / 16, "reward_std": pytest.approx(math.sqrt(1 / 4) / 4), "reward/detector": 13 / 16,
        # e0: m_u = 1, mbar_c = 1/3; the others -0.4
        "reward/spy": pytest.approx((-0.1 * 2 / 3 - 3 * 0.4) / 4), "completions/unparsed_ratio": 0,
        "detector/accuracy": 13 / 16, "detector/accuracy_spy": (3 + at_spy) / 4, "votes/na": 0, "votes/missing": 0,
        "votes/invalid": 1 / 16, "votes/out_of_range": 1 / 16, "votes/unreadable": 1 / 8,
        "votes/received_by_spy": 13 / 4, "information_loss/ratio": 0.5, "information_loss/far": 0, "game/too_long": 0,
        "game/switched": 0,
        "stage/performing": 0, "stage/detection": 1, "stage/accuracy_mean": 13 / 16, "stage/na_mean": 0,
        "baseline/spy": 0, "baseline/civilian": 0, "rollout/completions": 32, "rollout/completions/performer": 16,
        "rollout/completions/detector": 16, "rollout/tokens": 16 * 5 + 16 * 2, "rollout/tokens/performer": 80,
        "rollout/tokens/detector": 32,
    }  # fmt: skip
    assert all(describe(mlflow_name(name)) for name in rollout.metrics)


def test_records_have_one_set_of_columns() -> None:
    rollout, _, _ = played()
    assert {tuple(row) for row in rollout.records} == {(
        "prompt_id", "role", "slot", "stage", "spy", "text", "output", "source", "span_start", "span_end", "vote",
        "vote_kind", "votes", "reward", "advantage", "finish_reason", "tokens",
    )}  # fmt: skip
    shown = [(row["role"], row["slot"]) for row in rollout.records if row["source"] is not None]
    assert shown == [("performer", 0)] * 4
    assert "gold" not in json.dumps(rollout.records)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"detectors": "judge"}, "detectors"), ({"detectors": "overseer"}, "overseer_votes is given exactly when"),
        ({"overseer_votes": 8}, "overseer_votes is given exactly when"), ({"beta": 0}, "beta"), ({"lam": -0.1}, "lam"),
        ({"baseline": {"rule": "none", "decay": 0.9}}, "decay is given exactly when"),
        ({"baseline": {"rule": "read_first"}}, "decay is given exactly when"), ({"baseline": {"rule": "x"}}, "rule"),
        ({"information_loss": {"unit": "words", "share": 0}}, "share"), ({"schedule": {"rule": "x"}}, "rule"),
        ({"information_loss": {"unit": "lines", "share": 0.2}}, "unit"), ({"spy": "two"}, "spy"), ({"alpha": 1}, "alpha"),
    ],
)  # fmt: skip
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Options.model_validate({**OPTIONS, **options})
