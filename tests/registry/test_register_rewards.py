"""Reward models from files to a verdict: what they must have been judged by, and champions that are judged again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from judgefree.bases.build import build_base
from judgefree.check import checked, write_resolved
from judgefree.cli import app
from judgefree.errors import JudgefreeError
from judgefree.files import key_of, read_json, seal, write_atomic
from judgefree.outside import replaced
from judgefree.registry import register, register_rewards, reward_candidates, states
from judgefree.registry.reward_candidates import best_reward_model
from judgefree.registry.store import open_store
from judgefree.registry.versions import CHAMPION, model_folder
from judgefree.reward_benchmarks.stage import reward_bench
from judgefree.reward_model.model import (
    ValueAnchoredRewardModel,
    fresh_value_head,
    load_classifier,
    load_tokenizer,
    save_reward_model,
)
from tests.registry.conftest import BASE

NAME = "arithmetic-reward-model"
SAMPLING = {"temperature": 1.0, "max_completion_tokens": 8}
FIT = {"policy": "tiny", "prompts": 8, "samples": 2, "sampling": SAMPLING, "sampling_batch_rows": 64,
       "max_prompt_tokens": 64, "batch_size": 4, "epochs": 1, "learning_rate": 1e-3}  # fmt: skip
JUDGE = {"start_from": "tiny", "dataset": "arithmetic", "seed": 0, "device": "cpu", "precision": "fp32", "max_tokens": 64,
         "batch_tokens": 2000, "value_fit": FIT}  # fmt: skip
JUDGED = {"max_tokens": 64, "tokens_per_batch": 4096, "device": "cpu", "precision": "fp32", "seed": 0, "partial": True,
          "models": {"judge": {}}, "sets": {"llmbar": {"id": "./llmbar"}}}  # fmt: skip
GATES = {"rank_by": "llmbar", "margin": 0.0, "min_items": 10, "max_fall": 0.02}


def replace_rows(root: Path, label: int) -> None:
    """The benchmark's file; label: which output is the better one, of the same prompts."""
    rows = [{"input": f"{n} + 1 = ?", "output_1": f"#### {n + 1}", "output_2": f"#### {n}", "label": label}
            for n in range(19)]  # fmt: skip
    write_atomic(root / "llmbar" / "Natural" / "dataset.json", json.dumps(rows))


class Rewards:
    """A project with one reward model, `judge`; the methods do what stages would have done."""

    def __init__(self, project: Any, patch: pytest.MonkeyPatch) -> None:
        self.project, self.root = project, project.root
        params = project.settings()
        params["data"]["arithmetic"]["pairs"] = {"train": 8, "validation": 4}
        params |= {"reward_models": {"judge": JUDGE}, "reward_benchmarks": JUDGED, "reward_gates": GATES}
        project.write(params)
        replace_rows(self.root, 1)
        patch.setattr(reward_candidates, "run_keys", lambda root: {})
        patch.setattr(reward_candidates, "reward_model_keys", lambda root: {"judge": self.key})

    def train(self, weights: int) -> None:
        self.key = key_of("judge", weights)
        start = build_base(f"start-{weights}", {"base": {**BASE, "seed": weights}}, self.root / "starts")
        classifier = load_classifier(start, weights)
        model = ValueAnchoredRewardModel(classifier, fresh_value_head(classifier), load_tokenizer(start), 64)
        folder = self.root / "models" / "judge"
        shutil.rmtree(folder, ignore_errors=True)
        save_reward_model(model, folder)
        write_atomic(folder / "pairs.parquet", b"pairs")
        seal(folder, {"kind": "reward_model", "key": self.key, "settings": JUDGE})

    def judge(self) -> Path:
        params = checked(self.root / "params.yaml")
        assert params.reward_benchmarks
        return reward_bench("judge", params.reward_benchmarks, params.threads, self.root)

    def register(self) -> Any:
        return register_rewards.register_reward_model(self.root, "arithmetic")

    def crown(self) -> Path:
        """Make the first version champion, whatever its gate says; returns where it keeps its report."""
        self.train(1)
        self.judge()
        self.register()
        store = open_store(self.root)
        store.client.set_registered_model_alias(NAME, CHAMPION, "1")
        return model_folder(store, store.client.get_model_version(NAME, "1")) / "evaluation" / "reward-bench"


@pytest.fixture
def rewards(project: Any, monkeypatch: pytest.MonkeyPatch) -> Rewards:
    return Rewards(project, monkeypatch)


def test_a_candidate_was_judged_by_the_rows_that_are_there_now(rewards: Rewards) -> None:
    """Prompts are the same, the better answer is another: DVC and the prompts' hashes do not tell."""
    rewards.train(1)
    rewards.judge()
    params = checked(rewards.root / "params.yaml")
    assert best_reward_model(rewards.root, params, "arithmetic")[0].model.name == "judge"
    replace_rows(rewards.root, 2)
    with pytest.raises(JudgefreeError, match="rows of the reward benchmarks have changed") as stale:
        best_reward_model(rewards.root, params, "arithmetic")
    assert "dvc repro --force --single-item reward_bench@judge" in stale.value.problem
    rewards.judge()
    assert best_reward_model(rewards.root, params, "arithmetic")[0].model.name == "judge"


def test_replaced_rows_are_seen_before_anything_is_registered(rewards: Rewards) -> None:
    rewards.train(1)
    rewards.judge()
    write_resolved(rewards.root)
    params = checked(rewards.root / "params.yaml")
    assert list(replaced(params, rewards.root)) == []
    replace_rows(rewards.root, 2)
    file = rewards.root / "llmbar" / "Natural" / "dataset.json"
    assert list(replaced(params, rewards.root)) == [("reward_bench@judge", file)]
    replace_rows(rewards.root, 1)
    assert list(replaced(params, rewards.root)) == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_a_damaged_report_is_a_reason_and_no_traceback(rewards: Rewards, damage: Any) -> None:
    rewards.train(1)
    damage(rewards.judge() / "llmbar.parquet")
    with pytest.raises(JudgefreeError, match=r"judge: .*llmbar.parquet is (missing|not what was written)"):
        best_reward_model(rewards.root, checked(rewards.root / "params.yaml"), "arithmetic")


def test_a_champion_is_judged_again_by_other_rows_or_where_its_report_is_damaged(rewards: Rewards) -> None:
    """Nothing of that stays in .work but the scores of each benchmark."""
    kept = rewards.crown()
    first = read_json(kept / "manifest.json")
    replace_rows(rewards.root, 2)
    rewards.train(2)
    rewards.judge()
    assert rewards.register().against == "champion version 1"
    again = read_json(kept / "manifest.json")
    assert again["sources"] != first["sources"] and again["model_sha256"] == first["model_sha256"]
    (kept / "llmbar.parquet").write_bytes(b"PAR1")
    assert rewards.register().against == "champion version 1"
    assert read_json(kept / "manifest.json") == again and (kept / "llmbar.parquet").stat().st_size > 4
    assert not list((rewards.root / ".work" / "reward-bench").glob("report-*"))


def test_rows_that_change_while_a_champion_is_judged_again_are_named(
    rewards: Rewards, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, judge = rewards.crown(), register_rewards.judge
    shutil.rmtree(kept)
    rewards.train(2)
    rewards.judge()

    def judge_others(*arguments: Any) -> Path:
        replace_rows(rewards.root, 2)
        return judge(*arguments)

    monkeypatch.setattr(register_rewards, "judge", judge_others)
    with pytest.raises(JudgefreeError, match="champion version 1 was judged again, and sources differ"):
        rewards.register()


def test_a_refused_policy_does_not_hide_the_reward_model(rewards: Rewards) -> None:
    """No run is trained; with both refused, both are told."""
    rewards.train(1)
    rewards.judge()
    verdicts = register.register_task(rewards.root, "arithmetic")
    assert next(verdicts).task == NAME
    with pytest.raises(JudgefreeError, match="no model of arithmetic can be registered .rlvr: not trained yet"):
        next(verdicts)
    replace_rows(rewards.root, 2)
    with pytest.raises(JudgefreeError, match="rlvr: not trained yet.*judge: rows of the reward benchmarks"):
        list(register.register_task(rewards.root, "arithmetic"))


def test_policies_that_no_suite_tests_are_told(rewards: Rewards, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict on the reward model alone would say that there is nothing else."""
    params = rewards.project.settings()
    params["bases"]["tiny"]["suites"], params["runs"]["rlvr"]["suites"], params["suites"] = [], [], {}
    rewards.project.write(params)
    rewards.train(1)
    rewards.judge()
    monkeypatch.chdir(rewards.root)
    told = "policies: no suite tests arithmetic, so none is registered (rlvr)"
    assert CliRunner().invoke(app, ["register", "arithmetic"]).output.endswith(f"\n\n{told}\n")
    assert told not in CliRunner().invoke(app, ["register", "arithmetic", "--only", "reward-models"]).output


def test_reward_models_are_listed_with_their_state(rewards: Rewards, monkeypatch: pytest.MonkeyPatch) -> None:
    params = rewards.project.settings()
    options = {"reward_model": "judge", "update": "frozen", "batch_tokens": 2000}
    params["save_runs"] = {"save": {**params["runs"]["rlvr"], "method": "save", "options": options}}
    rewards.project.write(params)

    def state(name: str) -> tuple[str, str]:
        (one,) = [one for one in states.run_states(rewards.root) if one.name == name]
        return one.state, one.detail

    assert state("save") == ("not started", "waits for models/judge")
    assert state("judge")[0] == "not started" and "no preference pairs" in state("judge")[1]
    (rewards.root / "models" / "tiny").rename(rewards.root / "models" / "gone")
    assert state("judge") == ("not started", "waits for models/tiny")
    (rewards.root / "models" / "gone").rename(rewards.root / "models" / "tiny")
    rewards.train(1)
    monkeypatch.setattr(states, "reward_model_keys", lambda root: {"judge": rewards.key})
    unjudged = ("trained", "not judged by the reward benchmarks as they are now")
    assert state("judge") == unjudged
    rewards.judge()
    assert state("judge") == ("evaluated", "")
    params["reward_benchmarks"]["seed"] += 1
    rewards.project.write(params)
    assert state("judge") == unjudged
    params["reward_benchmarks"]["seed"] -= 1
    rewards.project.write(params)
    assert state("judge") == ("evaluated", "")
    rewards.key = "another"
    assert state("judge")[0] == "stale"
    (rewards.root / ".work" / "reward_model" / "another").mkdir(parents=True)
    assert state("judge") == ("in progress", "replaces a stale model")


def test_reports_of_one_name_and_other_content_are_made_in_folders_of_their_own(rewards: Rewards) -> None:
    rewards.train(1)
    params = checked(rewards.root / "params.yaml")
    assert params.reward_benchmarks
    made = [
        register_rewards.judge(
            "judge", rewards.root / "models" / "judge", content, params.reward_benchmarks, 1, rewards.root
        )
        for content in ("a", "b")
    ]
    assert made[0] != made[1] and all((folder / "manifest.json").is_file() for folder in made)
