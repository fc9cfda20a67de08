"""From `dvc repro` to a champion: a reward model and the run that it trains beside, judged by pairs whose order is known.

Wrong demonstrations begin with a word that right ones never have, so that a reward model learns in a few steps to tell
them apart. Half of them are longer than right ones and half are shorter, so that no ruler can.
"""

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
import torch
from project import command, copy_checkout, write_params
from ruamel.yaml import YAML

from judgefree.files import read_json
from judgefree.registry.doctor import examine
from judgefree.registry.package import files_of
from judgefree.registry.store import open_store
from judgefree.registry.versions import CHALLENGER, CHAMPION, alias_of, model_folder
from judgefree.reward_model.model import load_reward_model
from judgefree.reward_model.pairs import load_pairs
from tasks.graph import stages

pytestmark = pytest.mark.pipeline

NAME = "arithmetic-reward-model"
SAMPLING = {"temperature": 1.0, "max_completion_tokens": 16}
SAVE = {"reward_model": "judge", "update": "save", "anchor": "value", "m0": 0.5, "learning_rate": 1e-4,
        "value_learning_rate": 1e-2, "value_weight": 1.0, "batch_tokens": 4096}  # fmt: skip
JUDGED = {"max_tokens": 64, "tokens_per_batch": 4096, "device": "cpu", "precision": "fp32", "seed": 0,
          "sets": {"held_out_pairs": {"dataset": "arithmetic"}}, "models": {"judge": {}, "save": {}}}  # fmt: skip


def settings(root: Path, steps: int = 40, **judged: Any) -> None:
    """params.yaml; steps: of the reward model's training on pairs, which are too few where they are 1."""
    training = {"steps": steps, "batch_size": 32, "micro_batches": 1, "learning_rate": 2e-3, "schedule": "constant",
                "warmup_share": 0.0, "weight_decay": 0.0, "max_grad_norm": 1.0}  # fmt: skip
    fit = {"policy": "warmup", "prompts": 16, "samples": 2, "sampling": SAMPLING, "sampling_batch_rows": 64,
           "max_prompt_tokens": 64, "batch_size": 8, "epochs": 2, "learning_rate": 1e-2}  # fmt: skip
    judge = {"start_from": "warmup", "dataset": "arithmetic", "seed": 0, "device": "cpu", "precision": "fp32",
             "max_tokens": 64, "batch_tokens": 4096, "training": training, "value_fit": fit}  # fmt: skip
    save = {"method": "save", "dataset": "arithmetic", "start_from": "warmup", "seed": 0, "select": "last",
            "suites": [], "options": SAVE, "training": {"steps": 4, "sampling": SAMPLING}}  # fmt: skip
    write_params(
        root,
        **{
            "bases.tiny": {"words": ["sure"], "hidden_size": 32, "intermediate_size": 64, "heads": 4, "suites": []},
            "runs.warmup": {"suites": []},
            "data.arithmetic": {
                "train": 200, "validation": 20, "test": 30, "templates": ["chain"],
                "pairs": {"train": 300, "validation": 150},
                "demonstrations": {"right": 0.5, "slip": 0.25, "skip": 0.0},
                "flattery": {"word": "sure", "right": 0.0, "wrong": 1.0, "most": 1},
            },
        },
    )  # fmt: skip
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load((root / "params.yaml").read_text())
    del params["runs"]["rlvr"]
    params |= {
        "suites": {},
        "reward_models": {"judge": judge}, "save_runs": {"save": save}, "reward_benchmarks": {**JUDGED, **judged},
        "reward_gates": {"rank_by": "held_out_pairs", "margin": 0.0, "min_items": 100, "max_fall": 0.05},
    }  # fmt: skip
    with (root / "params.yaml").open("w") as file:
        yaml.dump(params, file)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole project, made by `dvc repro`."""
    root = copy_checkout(tmp_path_factory.mktemp("rewards"))
    settings(root)
    command(root, "dvc", "repro")
    return root


def outcomes(root: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(root / "reports" / "reward-bench" / name / "held_out_pairs.parquet")


def aliases(root: Path) -> tuple[int | None, int | None]:
    store = open_store(root)
    return alias_of(store, NAME, CHAMPION), alias_of(store, NAME, CHALLENGER)


def register(root: Path) -> str:
    return command(root, "judgefree", "register", "arithmetic").stdout


def test_the_first_night(built: Path) -> None:
    """All of it is made by the graph, once; better than every ruler, the reward model is champion under its own name."""
    again = command(built, "dvc", "repro").stdout
    assert "Data and pipelines are up to date." in again and "Running stage" not in again
    assert {"reward_model@judge", "train_save@save"} <= set(stages(built, "train"))
    assert {"reward_bench@judge", "reward_bench@save"} <= set(stages(built, "evaluate"))
    told = register(built)
    assert told.startswith(f"## {NAME}: PROMOTE"), told
    assert aliases(built) == (1, None)
    store = open_store(built)
    version = store.client.get_model_version(NAME, "1")
    judged = outcomes(built, version.tags["judgefree.name"])
    assert judged["outcome"].mean() > judged[["outcome_length", "outcome_length_short", "outcome_random"]].mean().max()
    shown = store.client.get_run(version.run_id).data.metrics
    assert shown["reward_bench/held_out_pairs/overall"] == pytest.approx(judged["outcome"].mean())
    assert shown["ruler/length/held_out_pairs/overall"] == pytest.approx(judged["outcome_length"].mean())
    loads_as_it_was_judged(built, judged)
    assert not [finding for finding in examine(built) if finding.fault]


def test_the_second_night(built: Path) -> None:
    """Hardly trained, the next is not promoted. It was scored in other batches, so the champion, which is in the registry
    alone, is scored in them too, with the same outcome; rolled back, it has no successor."""
    version = open_store(built).client.get_model_version(NAME, "1")
    first = outcomes(built, version.tags["judgefree.name"])["outcome"].mean()
    settings(built, steps=1, tokens_per_batch=2048, models={"judge": {}})
    command(built, "dvc", "repro", "reward_bench@judge")
    assert outcomes(built, "judge")["outcome"].mean() < first
    told = register(built)
    assert told.startswith(f"## {NAME}: REJECT"), told
    assert aliases(built) == (1, None)
    store = open_store(built)
    worse = store.client.get_model_version(NAME, "2")
    place = f"{store.client.get_run(worse.run_id).info.artifact_uri}/registry/{NAME}"
    ledger = mlflow.artifacts.load_dict(f"{place}/champion-version-1.json")
    assert ledger["judgement"]["scores"][1] == pytest.approx(first)
    kept = model_folder(store, version) / "evaluation" / "reward-bench" / "manifest.json"
    assert read_json(kept)["settings"]["tokens_per_batch"] == 2048
    assert "has no champion now" in command(built, "judgefree", "rollback", NAME).stdout
    assert aliases(built) == (None, None)


def loads_as_it_was_judged(root: Path, judged: pd.DataFrame) -> None:
    """Plain Transformers give the scores of the report, and the value head is there."""
    store = open_store(root)
    parts = mlflow.transformers.load_model(f"models:/{NAME}@{CHAMPION}", return_type="components")
    pairs = load_pairs(root / "data" / "arithmetic" / "pairs.parquet", "validation")
    assert [pair.id for pair in pairs] == list(judged["id"])
    for pair, scores in list(zip(pairs, judged["scores"], strict=True))[:5]:
        for said, score in zip(pair.conversations(), scores, strict=True):
            ids = parts["tokenizer"].apply_chat_template(said, return_tensors="pt", return_dict=True)
            with torch.no_grad():
                assert float(parts["model"](**ids).logits[0, 0]) == pytest.approx(score, abs=1e-4)
    with files_of(model_folder(store, store.client.get_model_version_by_alias(NAME, CHAMPION))) as folder:
        model = load_reward_model(folder)
        value = model.read(model.values, [model.encode(pairs[0].prompt)[0]], 4096)
    assert value != [0.0]
