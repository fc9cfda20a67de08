"""A reward model made from pairs, and SAVE with it, through both stages on a tiny random policy."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from judgefree.config_data import ArithmeticData
from judgefree.data.arithmetic import preference_pairs
from judgefree.data.tables import SCHEMA, write_parquet
from judgefree.files import listing, pretty_json, seal, write_atomic
from judgefree.registry.catalogue import describe, mlflow_name
from judgefree.reward_model.pairs import PAIRS
from judgefree.reward_model.pairs import SCHEMA as PAIR_SCHEMA
from judgefree.reward_training import build, callback
from judgefree.reward_training.build import build_reward_model, read_job
from judgefree.scoring.grader import Grader
from judgefree.training.progress import Progress
from judgefree.training.run import train

PROMPT = {"template": "{question}", "chat": True, "answer": "marker"}
SAMPLING = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "max_completion_tokens": 12}
DATA = ArithmeticData.model_validate({
    "kind": "arithmetic", "seed": 0, "train": 20, "validation": 4, "test": 4, "min_steps": 1, "max_steps": 2,
    "max_value": 12, "templates": ["chain"], "demonstrations": {"right": 0.5, "slip": 0.2, "skip": 0.1},
    "flattery": {"word": "sure", "right": 0.9, "wrong": 0.1, "most": 2}, "pairs": {"train": 24, "validation": 8},
    "quality": {"max_quarantined_share": 0.0, "min_gold_parse_share": 1.0, "max_question_chars": 99, "max_answer_chars": 9,
                "near_overlap_ngram": 13, "near_overlap_share": 0.5},
})  # fmt: skip
JUDGE = {
    "start_from": "start", "dataset": "d", "seed": 0, "device": "cpu", "precision": "fp32", "max_tokens": 96,
    "batch_tokens": 2000,
    "training": {"steps": 2, "batch_size": 8, "micro_batches": 1, "learning_rate": 1e-3, "schedule": "constant",
                 "warmup_share": 0.0, "weight_decay": 0.0, "max_grad_norm": 1.0},
    "value_fit": {"policy": "start", "prompts": 8, "samples": 2, "sampling": SAMPLING, "sampling_batch_rows": 64,
                  "max_prompt_tokens": 64, "batch_size": 4, "epochs": 1, "learning_rate": 1e-3},
}  # fmt: skip
SAVE = {"reward_model": "judge", "update": "save", "anchor": "value", "m0": 0.01, "learning_rate": 1e-3,
        "value_learning_rate": 1e-2, "value_weight": 1.0, "batch_tokens": 2000}  # fmt: skip
TRAINING = {
    "engine": "transformers", "device": "cpu", "precision": "fp32", "processes": 1, "steps": 4, "save_every": 2,
    "rollout_size": 16, "group_size": 4, "updates_per_rollout": 1, "micro_batches": 1, "sampling_batch_rows": 64,
    "advantage": "grpo", "truncated": "keep", "max_prompt_tokens": 64, "sampling": SAMPLING,
    "loss": {"aggregation": "dapo", "ratio": "token", "clip_low": 0.2, "clip_high": 0.2, "kl_weight": 0.0},
    "learning_rate": 1e-3, "schedule": "constant", "warmup_share": 0.0, "weight_decay": 0.0, "max_grad_norm": 1.0,
    "max_bad_steps": 3, "validation_items": 2,
}  # fmt: skip


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def made(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(policy, root / "models" / "start")
    seal(root / "models" / "start", {"kind": "base"})
    pairs = preference_pairs(DATA)
    write_parquet(root / "data" / "d" / PAIRS, pairs, PAIR_SCHEMA)
    for split in ("train", "validation"):
        rows = [
            dict.fromkeys(SCHEMA.names)
            | {"id": f"{split}{i}", "question": f"{i % 9} + 2 = ?", "answer": str(i % 9 + 2)}
            for i in range(12)
        ]
        write_parquet(root / "data" / "d" / f"{split}.parquet", rows, SCHEMA)
    seal(root / "data" / "d", {})
    write_atomic(root / "resolved" / "reward_model" / "judge.json",
                 pretty_json({"threads": 1, "reward_model": JUDGE, "prompt": PROMPT}))  # fmt: skip
    build_reward_model("judge", root)
    return root


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    for folder in ("models", "data"):
        shutil.copytree(made / folder, tmp_path / folder)
    return tmp_path


def resolve(root: Path, options: dict[str, Any], **changes: Any) -> None:
    run = {"method": "save", "dataset": "d", "start_from": "start", "seed": 0, "select": "last", "options": options}
    write_atomic(root / "resolved" / "train" / "r.json", pretty_json({
        "run": run, "training": {**TRAINING, **changes}, "prompt": PROMPT, "threads": 1,
        "grading": {"workers": 1, "timeout_s": 1.0},
    }))  # fmt: skip


def test_pairs_are_of_a_right_and_a_wrong_answer() -> None:
    pairs = preference_pairs(DATA)
    assert [pair["split"] for pair in pairs] == ["train"] * 24 + ["validation"] * 8
    for pair in pairs:
        start, *rest = pair["prompt"][0]["content"].removesuffix(" = ?").split()
        answer = int(start) + sum(int(n) if s == "+" else -int(n) for s, n in zip(rest[::2], rest[1::2], strict=True))
        assert int(pair["chosen"].split()[-1]) == answer != int(pair["rejected"].split()[-1])


def test_a_reward_model_is_made_and_made_the_same_again(made: Path) -> None:
    before = listing(made / "models" / "judge")
    shutil.rmtree(made / ".work")
    build_reward_model("judge", made)
    assert listing(made / "models" / "judge") == before and {"value_head.safetensors", PAIRS} <= before.keys()


def longer(root: Path, monkeypatch: pytest.MonkeyPatch, parts: int = 1, step: int = 0,
           end: Callable[[], None] | None = None) -> Path:  # fmt: skip
    """Seven steps of stage 1 in so many `parts` each, in which `end` is called after `step`, with a checkpoint after each
    one then; the folder of checkpoints."""
    settings = JUDGE | {"training": {**JUDGE["training"], "steps": 7, "schedule": "cosine", "micro_batches": parts}}
    write_atomic(root / "resolved" / "reward_model" / "judge.json",
                 pretty_json({"threads": 1, "reward_model": settings, "prompt": PROMPT}))  # fmt: skip
    monkeypatch.setattr(callback, "SECONDS_BETWEEN_CHECKPOINTS", 0.0 if end else 300.0)
    monkeypatch.setattr(Progress, "update", lambda self, now, row: end() if end and now == step else None)
    return read_job("judge", root).work / "trainer"


def as_if_left_alone(project: Path) -> bool:
    resumed = listing(project / "models" / "judge")
    shutil.rmtree(project / ".work")
    build_reward_model("judge", project)
    return listing(project / "models" / "judge") == resumed


@pytest.mark.parametrize(("number", "parts"), [(signal.SIGTERM, 1), (signal.SIGINT, 2)])
def test_a_stop_of_stage_1_saves_first_and_changes_no_byte(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: signal.Signals, parts: int
) -> None:
    before = signal.getsignal(number)
    steps = longer(project, monkeypatch, parts, 3, lambda: os.kill(os.getpid(), number))
    with pytest.raises(SystemExit) as stopped:
        build_reward_model("judge", project)
    assert stopped.value.code == 128 + signal.SIGTERM and signal.getsignal(number) is before
    assert [folder.name for folder in steps.iterdir() if folder.is_dir()] == ["checkpoint-3"]  # the older ones went
    longer(project, monkeypatch, parts)
    build_reward_model("judge", project)
    assert "judge: pairs: going on from step 3 of 7" in caplog.text and not steps.exists()
    assert as_if_left_alone(project)


def test_a_stop_in_the_last_step_of_stage_1_ends_before_stage_2(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = longer(project, monkeypatch, 1, 7, lambda: os.kill(os.getpid(), signal.SIGTERM))
    before = listing(project / "models" / "judge")
    with pytest.raises(SystemExit):
        build_reward_model("judge", project)
    assert not steps.exists() and listing(project / "models" / "judge") == before
    with monkeypatch.context() as patch:
        patch.setattr(build, "RewardTrainer", None)  # stage 1 is done
        build_reward_model("judge", project)
    longer(project, monkeypatch)
    assert as_if_left_alone(project)


def test_a_killed_stage_1_goes_on_from_the_last_whole_checkpoint(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def kill() -> None:
        raise Killed

    before, steps = signal.getsignal(signal.SIGINT), longer(project, monkeypatch, 1, 5, kill)
    wanted: list[int] = []
    monkeypatch.setattr(build, "require_space", lambda folder, needed: wanted.append(needed))
    with pytest.raises(Killed):
        build_reward_model("judge", project)
    assert signal.getsignal(signal.SIGINT) is before
    (steps / "checkpoint-5").mkdir()  # the kill fell into its writing
    held = sum(file.stat().st_size for file in (steps / "checkpoint-4").iterdir())
    longer(project, monkeypatch)
    build_reward_model("judge", project)
    assert "checkpoint-5 was not finished" in caplog.text and "judge: pairs: going on from step 4 of 7" in caplog.text
    assert wanted[0] - wanted[1] == held > 0
    assert as_if_left_alone(project)


def test_save_moves_the_reward_model_and_hands_it_on(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = {"length_correlation": 1.0, "prompt_correlation": 1.0, "anchor_gap": 1e-9, "drift": 2.0}
    resolve(project, SAVE | {"watch_drift": True, "alarms": limits})
    train("r", project)
    assert [text for record in caplog.records if "limit" in (text := record.getMessage())] == [
        f"update {step}: reward model: above its limit: anchor_gap" for step in range(1, 5)
    ]
    out = project / "models" / "r" / "reward_model"
    plain, loading = AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert plain.config.num_labels == 1 and not loading["missing_keys"]
    old, new = (load_file(folder / "value_head.safetensors") for folder in (project / "models" / "judge", out))
    assert not torch.equal(old["weight"], new["weight"])
    before = load_file(project / "models" / "judge" / "model.safetensors")
    assert any(not value.equal(load_file(out / "model.safetensors")[name]) for name, value in before.items())
    rows = {row["step"]: row for row in pq.read_table(project / "models" / "r" / "history.parquet").to_pylist()}
    assert [rows[step]["reward_model/alarms"] for step in range(1, 5)] == [1.0] * 4
    names = [name for name, value in rows[4].items() if value is not None and name != "step"]
    assert {"reward_model/loss_v", "reward_model/kept", "reward/true", "reward_model/drift"} <= set(names)
    assert not [name for name in names if describe(mlflow_name(name)) is None]


def test_true_quality_is_watched_by_both_reward_models(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen reward model is its own first one. Every second response is taken for right."""
    monkeypatch.setattr(Grader, "grade", lambda _, pairs: ["correct", "wrong"] * (len(pairs) // 2))
    resolve(project, {"reward_model": "judge", "update": "frozen", "batch_tokens": 2000, "watch_drift": True})
    train("r", project)
    rows = {row["step"]: row for row in pq.read_table(project / "models" / "r" / "history.parquet").to_pylist()}
    for step in range(1, 5):
        row = rows[step]
        assert row["reward/true"] == 0.5 and row["reward_model/pairs"] == 4 * 2 * 2, "of 4 groups of 4"
        assert row["reward_model/pair_accuracy"] == row["reward_model/first_pair_accuracy"]


def test_an_interrupted_run_has_the_same_bytes(project: Path) -> None:
    class Killer:
        def checkpoint(self, history: Any) -> None:
            raise Killed

        def end(self, history: Any, status: str) -> None:
            pass

    resolve(project, SAVE)
    train("r", project)
    whole = listing(project / "models" / "r")
    shutil.rmtree(project / "models" / "r")
    shutil.rmtree(project / ".work")
    with pytest.raises(Killed):
        train("r", project, lambda *_: Killer())
    train("r", project)
    assert listing(project / "models" / "r") == whole


@pytest.mark.parametrize("options", [
    {"update": "frozen"},
    {"update": "hl_bt", "learning_rate": 1e-3},
    {"update": "bt_offline", "learning_rate": 1e-3, "pairs_per_step": 4},
    {**SAVE, "anchor": "mean_reward", "value_learning_rate": None, "value_weight": None},
    {**SAVE, "policy": "frozen"},
    {**SAVE, "m0": 0.99},
], ids=["frozen", "hl_bt", "bt_offline", "mean_reward", "policy", "nothing_kept"])  # fmt: skip
def test_the_baselines_train(project: Path, options: dict[str, Any]) -> None:
    given = {"reward_model": "judge", "batch_tokens": 2000, **options}
    resolve(project, {k: v for k, v in given.items() if v is not None}, steps=2)
    train("r", project)
    models = project / "models"
    same = {name: torch.equal(value, load_file(models / "r" / "reward_model" / "model.safetensors")[name])
            for name, value in load_file(models / "judge" / "model.safetensors").items()}  # fmt: skip
    start, end = (load_file(models / name / "model.safetensors") for name in ("start", "r"))
    assert all(same.values()) == (options["update"] == "frozen" or options.get("m0") == 0.99)
    still = all(torch.equal(value, end[name]) for name, value in start.items())
    assert still == (options.get("policy") == "frozen" or options.get("m0") == 0.99)
