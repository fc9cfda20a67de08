"""Reward models in MLflow: what they were made from, and how they were judged."""

from typing import Any

from judgefree.bases.build import build_base
from judgefree.files import key_of, pretty_json, read_json, seal, write_atomic
from judgefree.registry.catalogue import describe
from judgefree.registry.store import open_store
from judgefree.registry.sync import sync
from judgefree.reward_benchmarks.stage import judged_sha256
from tests.registry.conftest import BASE

SETTINGS = {"start_from": "tiny", "dataset": "arithmetic", "seed": 3, "max_tokens": 96,
            "training": {"steps": 2, "learning_rate": 1e-3}, "value_fit": {"policy": "tiny", "prompts": 8}}  # fmt: skip
MADE = {"pairs": 24, "cut_share": 0.0, "pair_accuracy": 0.75, "value_error": 0.5, "value_error_of_mean": 0.625,
        "reward_mean": -0.25, "reward_std": 0.5}  # fmt: skip
SETS = {"held_out_pairs": {"held_out_pairs": {"kind": "data set", "dataset": "pairs", "files": {"pairs.parquet": "c" * 64}}},
        "llmbar": {"llmbar": {"kind": "folder", "id": "./llmbar", "files": {"dataset.json": "d" * 64}}}}  # fmt: skip


def reward_model(project: Any, name: str, weights: int) -> None:
    build_base(name, {"base": {**BASE, "seed": weights}}, project.root)
    folder = project.root / "models" / name
    write_atomic(folder / "pairs.parquet", b"pairs")
    seal(folder, {"kind": "reward_model", "key": key_of(name, weights), "settings": SETTINGS, **MADE})


def judged(project: Any, name: str, overall: float) -> None:
    folder = project.root / "reports" / "reward-bench" / name
    metrics = {
        "reward_bench/llmbar/overall": overall, "reward_bench/llmbar/overall_se": 0.05, "reward_bench/llmbar/items": 4,
        "ruler/length/llmbar/overall": 0.25, "reward_bench/llmbar/section/llmbar-natural": 1.0,
        "reward_bench/of_another_version": 0.125,
        "reward_bench/held_out_pairs/overall": 0.5, "ruler/random/held_out_pairs/overall": 0.5,
    }  # fmt: skip
    write_atomic(folder / "metrics.json", pretty_json(metrics))
    write_atomic(folder / "table.md", "a table")
    write_atomic(folder / "llmbar.parquet", b"rows")
    content = judged_sha256(read_json(project.root / "models" / name / "manifest.json")["files"])
    seal(folder, {"model": name, "model_sha256": content, "sources": SETS})


def shown(project: Any, name: str) -> Any:
    store = open_store(project.root)
    runs = [run for run in store.client.search_runs([store.experiment_id]) if run.info.run_name == name]
    return max(runs, key=lambda run: run.info.start_time)


def test_a_reward_model_is_a_run_with_its_facts_and_its_benchmarks(project: Any) -> None:
    reward_model(project, "judge", 1)
    sync(project.root)
    run = shown(project, "judge")
    assert run.data.params == {
        "method": "reward_model", "dataset": "arithmetic", "seed": "3", "base": "tiny", "start_from": "tiny", "steps": "2",
        "learning_rate": "0.001", "value_fit.policy": "tiny", "value_fit.prompts": "8",
    }  # fmt: skip
    assert run.data.metrics == {f"reward_training/{name}": value for name, value in MADE.items()}
    assert run.data.tags["judgefree.kind"] == "reward_model"

    judged(project, "judge", 0.75)
    assert sync(project.root) == {"judge": "logged", "tiny": "unchanged"}
    assert sync(project.root) == {"judge": "unchanged", "tiny": "unchanged"}
    run = shown(project, "judge")
    assert run.data.metrics["reward_bench/llmbar/overall"] == 0.75
    assert run.data.metrics["reward_bench/llmbar/overall_se"] == 0.05
    assert run.data.metrics["ruler/length/llmbar/overall"] == 0.25
    assert not [name for name in run.data.metrics if describe(name) is None]
    files = open_store(project.root).client.list_artifacts(run.info.run_id, "reward_bench")
    assert {file.path for file in files} == {f"reward_bench/{n}" for n in ("metrics.json", "table.md", "manifest.json")}
    inputs = {(entry.dataset.name, entry.tags[0].value) for entry in run.inputs.dataset_inputs}
    assert inputs == {("arithmetic", "training"), ("pairs", "evaluation"), ("llmbar", "evaluation")}

    judged(project, "judge", 0.5)
    assert sync(project.root)["judge"] == "logged"
    assert shown(project, "judge").data.metrics["reward_bench/llmbar/overall"] == 0.5


def test_a_report_on_an_earlier_model_is_passed_over(project: Any) -> None:
    reward_model(project, "judge", 1)
    judged(project, "judge", 0.75)
    reward_model(project, "judge", 2)
    sync(project.root)
    assert not [name for name in shown(project, "judge").data.metrics if name.startswith("reward_bench/")]


def test_a_run_shows_how_the_reward_model_inside_of_it_was_judged(project: Any) -> None:
    """Its content is that of the folder, wherever it lies."""
    files = {"reward_model/model.safetensors": {"sha256": "a"}, "model.safetensors": {"sha256": "b"}}
    assert judged_sha256(files) == key_of({"model.safetensors": {"sha256": "a"}})
    assert judged_sha256({"model.safetensors": {"sha256": "a"}}) == key_of({"model.safetensors": {"sha256": "a"}})
    project.run("rlvr", weights=1)
    folder = project.root / "models" / "rlvr"
    write_atomic(folder / "reward_model" / "model.safetensors", b"weights")
    seal(folder, {k: v for k, v in read_json(folder / "manifest.json").items() if k != "files"})
    judged(project, "rlvr", 0.75)
    sync(project.root)
    assert shown(project, "rlvr").data.metrics["reward_bench/llmbar/overall"] == 0.75
