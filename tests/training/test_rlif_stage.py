"""RLIF through the whole stage `train`: data without gold, KL-Cov, a collapse that ends the run, an interruption."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from stage_project import MULTI, resolve, same_bytes_when_interrupted, unlabelled

from judgefree.files import read_json
from judgefree.registry.catalogue import describe, mlflow_name
from judgefree.training.run import train


@pytest.fixture
def project(tiny: Path, tmp_path: Path) -> Path:
    return unlabelled(tiny, tmp_path)


def history(root: Path) -> list[dict]:
    return pq.read_table(root / "models" / "r" / "history.parquet").to_pylist()


def test_it_trains_without_gold_and_selects_by_its_own_signal(project: Path) -> None:
    resolve(project, MULTI)
    train("r", project)
    manifest = read_json(project / "models" / "r" / "manifest.json")
    rows = {row["step"]: row for row in history(project)}
    signals = {step: rows[step]["own_signal"] for step in (4, 8)}
    for step, value in signals.items():
        assert value == pytest.approx((rows[step - 3]["own_signal/rollout"] + rows[step - 1]["own_signal/rollout"]) / 2)
    assert manifest["selected_step"] == (8 if signals[8] > signals[4] else 4)
    assert manifest["status"] == "finished"
    assert manifest["collapse"] is None and manifest["alarms"] == {}  # no gold: validation was never measured
    assert "vote/accuracy" not in rows[1] and "validation/pass@1" not in rows[4]
    assert [row["cov/abs_log_ratio"] == 0 for row in (rows[1], rows[2], rows[7], rows[8])] == [True, False, True, False]
    metrics = rows[8].keys() - {"step"}
    assert "kl/clamped" in metrics and not [name for name in metrics if describe(mlflow_name(name)) is None]
    (first, _) = sorted((project / "models" / "r" / "records").iterdir())
    record = pq.read_table(first).to_pylist()[0]
    assert record["gold"] is None and record["certainty"] > 0 and 0 <= record["cluster"] <= 1


def test_a_collapse_ends_the_run_and_the_best_checkpoint_is_published(project: Path) -> None:
    """Certainty alone at a large learning rate: entropy falls below half of where it began. `last` is not kept to then."""
    resolve(project, {"reward": "certainty", "final_batch_norm": False}, "last", {"entropy_low": 0.5, "stop": True},
            steps=64, save_every=2, learning_rate=0.02, updates_per_rollout=2)  # fmt: skip
    train("r", project)
    manifest = read_json(project / "models" / "r" / "manifest.json")
    rows = history(project)
    fallen = next(row for row in rows if row["monitor/collapsed"])
    assert fallen["entropy"] < 0.5 * rows[0]["entropy"] and fallen["monitor/entropy_low"] == 1
    assert manifest["status"] == "collapsed" and manifest["steps"] == fallen["step"] + 1 < 64
    assert manifest["alarms"] == {"entropy_low": 1}
    signals = {row["step"]: row["own_signal"] for row in rows if row.get("own_signal") is not None}
    assert signals[manifest["selected_step"]] == max(signals.values())
    weights = project / "models" / "r" / "model.safetensors"
    (work,) = (project / ".work" / "train").glob("*/")
    chosen = work / f"checkpoint-{manifest['selected_step']}" / "model.safetensors"
    assert weights.read_bytes() == chosen.read_bytes()
    shutil.rmtree(project / "models" / "r")  # killed before it was published: made again from what is there
    train("r", project)
    assert read_json(project / "models" / "r" / "manifest.json") == manifest


@pytest.mark.parametrize("options", [MULTI, {"reward": "random", "final_batch_norm": False}], ids=["multi", "random"])
def test_an_interrupted_run_has_the_same_bytes(project: Path, options: dict) -> None:
    resolve(project, options, select="last")
    same_bytes_when_interrupted(project)
    assert read_json(project / "models" / "r" / "method_state.json")["method"] == {"rollouts": 4}
