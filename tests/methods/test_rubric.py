"""Rubric-as-reward against a real server: rewards, advantages and money by hand; what fails; an interrupted run."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from judge_server import JudgeServer, endpoint, said, serving
from stage_project import same_bytes_when_interrupted, unlabelled
from world import TRAINING, training

from judgefree.config import PromptFormat
from judgefree.episodes import Completion, Example, Prompt, Rollout
from judgefree.errors import MayPass
from judgefree.files import pretty_json, write_atomic
from judgefree.methods import Setting
from judgefree.methods.rubric import Options, Rubric
from judgefree.registry.catalogue import describe, mlflow_name

TEXTS = {"criteria": "kindness", "compare": "", "rate": "{criteria}|{instruction}|{text}"}
WHOLE = PromptFormat(template="{question}", chat=False, answer="whole")
COST = 0.0004  # of a reply, judge_server.USED at the settings' price


class Policy:
    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def encode(self, question: str) -> list[int]:
        return [7]

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        group = [Completion([place + 2, 1], text, "stop") for place, text in enumerate(self.texts)]
        return [group for _ in prompts]

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(values)


def play(
    server: JudgeServer, root: Path, texts: Sequence[str], questions: Sequence[str] = ("q0",), **judge: Any
) -> Rollout:
    options = Options.model_validate({"judge": endpoint(server.url, **judge), "prompts": "prompts/judge-stories.yaml"})
    setting = Setting(training(group_size=len(texts), rollout_size=4 * len(texts)), WHOLE, None, 0, TEXTS, root)  # type: ignore[arg-type]
    policy: Any = Policy(*texts)
    return Rubric(options, setting).play([Example(one, one) for one in questions], policy)


def grade(prompt: str, times: int) -> tuple:
    """The score is the number that the text itself says."""
    return said(f"I read it. [[{prompt.rsplit('|', 1)[1]}]]")


def test_rewards_are_the_judge_s_scores(tmp_path: Path) -> None:
    with serving(grade) as server:
        rollout = play(server, tmp_path, ["2", "4", "9"], ["q0", "q1"])
    assert {body["messages"][0]["content"] for body in server.bodies} == {
        f"kindness|{question}|{text}" for question in ("q0", "q1") for text in "249"
    }
    assert [row["reward"] for row in rollout.records] == [2, 4, 9] * 2
    std = math.sqrt((9 + 1 + 16) / 2)
    expected = [(reward - 5) / (std + 1e-4) for reward in (2, 4, 9)]
    assert [turn.advantage for turn in rollout.turns] == pytest.approx(expected * 2)
    assert rollout.records[0]["said"] == "I read it. [[2]]" and "gold" not in rollout.records[0]
    assert rollout.metrics == {
        "reward": 5.0, "reward_std": pytest.approx(std), "reward/missing": 0.0, "completions/unparsed_ratio": 0.0,
        "judge/cost": pytest.approx(6 * COST), "judge/tokens": 720.0, "judge/failed": 0.0,
    }  # fmt: skip


def test_a_failed_rating_is_no_reward(tmp_path: Path) -> None:
    with serving(lambda prompt, times: (400, "no") if prompt.endswith("|4") else grade(prompt, times)) as server:
        rollout = play(server, tmp_path, ["2", "4", "6"])
    rewards = [row["reward"] for row in rollout.records]
    assert rewards[::2] == [2, 6] and math.isnan(rewards[1]) and rollout.records[1]["said"] == "status 400: 'no'"
    assert [turn.dead for turn in rollout.turns] == [False, True, False] and rollout.turns[1].advantage == 0
    assert [rollout.turns[n].advantage for n in (0, 2)] == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], abs=1e-4)
    assert rollout.metrics["judge/failed"] == 1 and rollout.metrics["reward/missing"] == pytest.approx(1 / 3)
    assert rollout.metrics["reward"] == 4.0 and rollout.metrics["judge/tokens"] == 240.0


def test_nothing_to_read_is_the_lowest_score_and_costs_nothing(tmp_path: Path) -> None:
    with serving(grade) as server:
        rollout = play(server, tmp_path, ["", " \n", "5"])
        assert [row["reward"] for row in rollout.records] == [1, 1, 5] and server.asked.total() == 1
        assert rollout.metrics["completions/unparsed_ratio"] == pytest.approx(2 / 3)
        nothing = play(server, tmp_path, ["", ""])
    assert nothing.metrics["judge/cost"] == 0 and all(turn.dead for turn in nothing.turns)


def test_equal_completions_are_paid_for_once_and_a_second_rollout_tells_the_same(tmp_path: Path) -> None:
    with serving(grade) as server:
        first, again = (play(server, tmp_path, ["3", "3", "8"]) for _ in range(2))
    assert server.asked.total() == 2 and first.metrics == again.metrics and first.records == again.records
    assert first.metrics["judge/cost"] == pytest.approx(2 * COST)


def test_a_judge_that_is_away_ends_the_training(tmp_path: Path) -> None:
    with (
        serving(lambda prompt, times: (503, "away")) as server,
        pytest.raises(MayPass, match="2 questions: status 503"),
    ):
        play(server, tmp_path, ["3", "8"], attempts=1)


@pytest.mark.parametrize("text", ["the the the the", "", "ab " * 33_334, "[[10]] says the judge"])
def test_among_its_own_kind_nothing_is_learnt_from_a_degenerate_text(text: str, tmp_path: Path) -> None:
    with serving(lambda prompt, times: said("poor: [[2]]")) as server:
        rollout = play(server, tmp_path, [text] * 4, ["q0", "q1"])
    assert all(turn.dead and turn.advantage == 0 for turn in rollout.turns)
    assert rollout.metrics["reward"] == (2 if text else 1) and server.asked.total() == (2 if text else 0)


@pytest.fixture
def project(tiny: Path, tmp_path: Path) -> Path:
    return unlabelled(tiny, tmp_path)


def words(prompt: str, times: int) -> tuple:
    """From 1 to 10 by how many different words a text has."""
    return said(f"[[{min(10, max(1, len(set(prompt.rsplit('|', 1)[1].split()))))}]]")


def test_a_run_without_labels_goes_on_where_it_was_stopped(project: Path) -> None:
    changed = {"steps": 4, "save_every": 2, "learning_rate": 1e-3}
    with serving(words) as server:
        options = {"judge": endpoint(server.url), "prompts": "prompts/judge-stories.yaml"}
        run = {
            "method": "rubric",
            "dataset": "d",
            "start_from": "start",
            "seed": 0,
            "select": "last",
            "options": options,
        }
        write_atomic(project / "resolved" / "train" / "r.json", pretty_json({
            "run": run, "training": {**TRAINING, **changed}, "prompt": WHOLE.model_dump(exclude_none=True),
            "grading": {"workers": 1, "timeout_s": 1.0}, "threads": 1, "texts": TEXTS,
        }))  # fmt: skip
        same_bytes_when_interrupted(project)
    assert set(server.asked.values()) == {2} and len(server.asked) > 20, "once in each of two ways: never after a stop"
    history = pq.read_table(project / "models" / "r" / "history.parquet").to_pylist()
    assert {row["judge/failed"] for row in history[1:]} == {0.0} and all(row["judge/cost"] > 0 for row in history[1:])
    assert not [name for name in history[-1].keys() - {"step"} if describe(mlflow_name(name)) is None]
