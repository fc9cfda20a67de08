"""The held-out pairs of a data set of the project, and the settings of the stage that judges reward models."""

import math
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from judgefree.config_rewards import Place, RewardBenchmarks
from judgefree.data.tables import write_parquet
from judgefree.errors import JudgefreeError
from judgefree.files import seal, write_atomic
from judgefree.params import parse_params, resolve
from judgefree.registry.kinds import registered
from judgefree.reward_benchmarks.rulers import length
from judgefree.reward_benchmarks.run import run_benchmarks
from judgefree.reward_benchmarks.table import markdown
from judgefree.reward_model.pairs import PAIRS, SCHEMA

PROJECT = Path(__file__).parents[2]
SECTION = {"max_tokens": 16, "tokens_per_batch": 64, "device": "cpu", "precision": "fp32", "seed": 0,
           "sets": {"held_out_pairs": {"dataset": "pairs"}}}  # fmt: skip


def row(place: int, split: str, chosen: str, rejected: str, prompt: str = "") -> dict[str, Any]:
    said = [{"role": "user", "content": prompt or f"{place}?"}]
    return {"id": f"pair-{place}", "split": split, "prompt": said, "chosen": chosen, "rejected": rejected}


def data_set(root: Path, rows: list[dict[str, Any]]) -> Path:
    """data/pairs as it is prepared; the file of its pairs."""
    path = root / "data" / "pairs" / PAIRS
    write_parquet(path, rows, SCHEMA)
    seal(path.parent, {"kind": "arithmetic"})
    return path


def test_only_held_out_pairs_count_and_a_tie_is_wrong(tmp_path: Path) -> None:
    """By the length ruler: two right, one wrong, one equal; two pairs share a prompt and are one group for the error."""
    rows = [row(0, "train", "a", "bb"), row(1, "validation", "aaa", "b"), row(2, "validation", "a", "bb"),
            row(3, "validation", "a", "b", "same"), row(4, "validation", "aa", "b", "same")]  # fmt: skip
    data_set(tmp_path, rows)
    tables, metrics = run_benchmarks(length, RewardBenchmarks.model_validate(SECTION), tmp_path)
    assert metrics["reward_bench/held_out_pairs/overall"] == 0.5 == metrics["ruler/length/held_out_pairs/overall"]
    # residuals by prompt: +1/8, -1/8, and -1/8 + 1/8
    assert metrics["reward_bench/held_out_pairs/overall_se"] == pytest.approx(math.sqrt(2) / 8)
    assert metrics["ruler/length_short/held_out_pairs/overall"] == 0.25
    assert metrics["reward_bench/held_out_pairs/items"] == 4 and metrics["reward_bench/held_out_pairs/excluded"] == 1
    assert "4 items; 1 pairs to train on left out." in markdown("judge", metrics)
    table = tables["held_out_pairs"]
    assert list(table["outcome"]) == [1, 0, 0, 1] and list(table["id"]) == [f"pair-{i}" for i in range(1, 5)]
    assert table["group"].nunique() == 3


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    settings = RewardBenchmarks.model_validate(SECTION)
    with pytest.raises(JudgefreeError, match="the data set .*pairs is missing") as missing:
        run_benchmarks(length, settings, tmp_path)
    assert "dvc repro prepare@pairs" in missing.value.fix
    pairs = data_set(tmp_path, [row(0, "train", "a", "b")])
    with pytest.raises(JudgefreeError, match="held_out_pairs: no row to score"):
        run_benchmarks(length, settings, tmp_path)
    write_parquet(pairs, [row(0, "validation", "aa", "b")], SCHEMA)
    with pytest.raises(JudgefreeError, match=r"pairs.parquet is not what was written"):
        run_benchmarks(length, settings, tmp_path)
    pairs.unlink()
    write_atomic(pairs.parent / "train.parquet", b"rows")
    seal(pairs.parent, {"kind": "arithmetic"})
    with pytest.raises(JudgefreeError, match=r"the data set .*pairs was made without pairs.parquet") as without:
        run_benchmarks(length, settings, tmp_path)
    assert without.value.fix == "run `dvc repro prepare@pairs`"


# ---------------------------------------------------------------------------------------------------------- settings


def settings(**changes: Any) -> dict[str, Any]:
    """The tiny profile with a reward model, a run of SAVE, and both judged by the pairs that the one was trained on."""
    raw = dict(YAML(typ="safe", pure=True).load((PROJECT / "profiles" / "tiny.yaml").read_text()))
    raw["data"]["pairs"] = raw["data"]["arithmetic"] | {"pairs": {"train": 8, "validation": 4}}
    raw["prompts"]["pairs"] = raw["prompts"]["arithmetic"]
    sampling = {"temperature": 1.0, "max_completion_tokens": 8}
    fit = {"policy": "warmup", "prompts": 8, "samples": 2, "sampling": sampling, "sampling_batch_rows": 64,
           "max_prompt_tokens": 64, "batch_size": 4, "epochs": 1, "learning_rate": 1e-3}  # fmt: skip
    judge = {"start_from": "warmup", "dataset": "pairs", "seed": 0, "device": "cpu", "precision": "fp32", "max_tokens": 96,
             "batch_tokens": 2000, "value_fit": fit}  # fmt: skip
    save = {"method": "save", "dataset": "pairs", "start_from": "warmup", "seed": 0, "select": "last", "suites": [],
            "options": {"reward_model": "judge", "update": "frozen", "batch_tokens": 2000}}  # fmt: skip
    judged = {**SECTION, "models": {"judge": {}, "save": {}}} | changes
    return raw | {"reward_models": {"judge": judge}, "save_runs": {"save": save}, "reward_benchmarks": judged}


def test_reward_models_are_registered_where_there_are_gates_for_them() -> None:
    assert registered(parse_params(settings(), "params.yaml")) == [("policies", "arithmetic")]
    gates = {"rank_by": "held_out_pairs", "margin": 0.0, "min_items": 1, "max_fall": 0.0}
    gated = parse_params(settings() | {"reward_gates": gates}, "params.yaml")
    assert registered(gated) == [("policies", "arithmetic"), ("reward-models", "pairs")]
    with pytest.raises(JudgefreeError, match="reward_gates.rank_by: unknown name 'llmbar'; known: held_out_pairs"):
        parse_params(settings() | {"reward_gates": {**gates, "rank_by": "llmbar"}}, "params.yaml")
    with pytest.raises(
        JudgefreeError, match="min_items: 5, and held_out_pairs are 4 pairs.*data.pairs.pairs.validation"
    ):
        parse_params(settings() | {"reward_gates": {**gates, "min_items": 5}}, "params.yaml")
    with pytest.raises(JudgefreeError, match="reward_gates: no model is judged.*reward_benchmarks.models"):
        parse_params(settings(models={}) | {"reward_gates": gates}, "params.yaml")
    without = {name: section for name, section in settings().items() if name != "reward_benchmarks"}
    with pytest.raises(JudgefreeError, match="reward_gates: .*add the section reward_benchmarks"):
        parse_params(without | {"reward_gates": gates}, "params.yaml")


def test_no_data_set_is_called_as_reward_models_are_registered() -> None:
    gates = {"rank_by": "held_out_pairs", "margin": 0.0, "min_items": 1, "max_fall": 0.0}
    raw = settings() | {"reward_gates": gates}
    raw["data"]["pairs-reward-model"] = raw["data"]["arithmetic"]
    with pytest.raises(JudgefreeError, match="data.pairs-reward-model: is what the reward models of pairs are"):
        parse_params(raw, "params.yaml")


def test_each_judged_model_has_settings_of_its_own() -> None:
    files = resolve(parse_params(settings(), "params.yaml"), PROJECT)
    wanted = {"reward_benchmarks": SECTION, "threads": 1}
    assert files["reward_bench/judge.json"] == wanted == files["reward_bench/save.json"]
    assert RewardBenchmarks.model_validate(wanted["reward_benchmarks"]).sets["held_out_pairs"] == Place(dataset="pairs")


@pytest.mark.parametrize(("changes", "said"), [
    ({"models": {"jugde": {}}}, "reward_benchmarks.models: unknown name 'jugde'; did you mean 'judge'"),
    ({"models": {"rlvr": {}}}, "reward_benchmarks.models: unknown name 'rlvr'; known: judge, save"),
    ({"sets": {"held_out_pairs": {"dataset": "arithmetic"}}},
     "reward_benchmarks.sets.held_out_pairs.dataset: arithmetic has no preference pairs"),
    ({"sets": {"held_out_pairs": {"dataset": "nothing"}}}, "sets.held_out_pairs.dataset: unknown name 'nothing'"),
    ({"sets": {"held_out_pair": {"dataset": "pairs"}}},
     "reward_benchmarks.sets.held_out_pair: unknown key; did you mean 'held_out_pairs'?"),
    ({"sets": {"nothing": {}}}, "reward_benchmarks.sets.nothing: unknown key; known: held_out_pairs, reward_bench, "),
    ({"max_tokens": 161}, "reward_benchmarks.max_tokens: 161, and bases.tiny, which the reward model comes from, takes 160"),
    ({"sets": {"held_out_pairs": {}}}, "sets.held_out_pairs: dataset is given exactly for held_out_pairs"),
    ({"sets": {"xstest": {"dataset": "pairs"}}}, "sets.xstest: dataset is given exactly for held_out_pairs"),
    ({"sets": {"held_out_pairs": {"dataset": "pairs", "id": "./pairs"}}}, "remove id and revision"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(JudgefreeError, match=said):
        parse_params(settings(**changes), "params.yaml")
