"""A project folder for the stage `train`, as other stages would have left it, and an interruption of a run."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from world import TRAINING

from judgefree.data.tables import SCHEMA, write_parquet
from judgefree.files import listing, pretty_json, seal, write_atomic
from judgefree.training.run import train

LIMITS = {
    "window": 1, "entropy_low": 0.0, "length_low": 0.0, "length_high": 100.0, "distinct_low": 0.0, "answers_low": 0.0,
    "grad_norm_high": 1e6, "cluster_entropy_high": 9.0, "repetition_high": 1.0, "clipped_high": 1.0,
    "unparsed_high": 1.0, "kl_high": 1e6, "validation_low": 0.0, "alarms_of_collapse": 1,
}  # fmt: skip
MULTI = {"reward": "multi", "alpha": 0.5, "beta": 0.5, "format_weight": 0.1, "final_batch_norm": True}
COV = {"kl_cov": {"share": 0.05, "weight": 0.05}, "kl_weight": 0.005}


def unlabelled(tiny: Path, root: Path) -> Path:
    """A project with a start model and a data set none of whose rows has a gold answer."""
    shutil.copytree(tiny, root / "models" / "start")
    seal(root / "models" / "start", {"kind": "base"})
    for split in ("train", "validation"):
        rows = [{**dict.fromkeys(SCHEMA.names), "id": f"{split}{i}", "question": f"w{i % 26} w3"} for i in range(40)]
        write_parquet(root / "data" / "d" / f"{split}.parquet", rows, SCHEMA)
    seal(root / "data" / "d", {})
    return root


def resolve(root: Path, options: dict, select: str = "own_signal", monitor: dict | None = None, **changes: Any) -> None:
    training = {
        **TRAINING,
        "steps": 8,
        "save_every": 4,
        "updates_per_rollout": 2,
        "learning_rate": 1e-3,
        **changes,
        "loss": {**TRAINING["loss"], **COV},
        "monitor": {**LIMITS, **(monitor or {})},
    }  # type: ignore[dict-item]
    run = {"method": "rlif", "dataset": "d", "start_from": "start", "seed": 0, "select": select, "options": options}
    write_atomic(root / "resolved" / "train" / "r.json", pretty_json({
        "run": run, "training": training, "prompt": {"template": "{question}", "chat": False, "answer": "marker"},
        "grading": {"workers": 1, "timeout_s": 1.0}, "threads": 1,
    }))  # fmt: skip


class Killed(Exception):
    pass


class Killer:
    """Ends the run after its first checkpoint."""

    def checkpoint(self, history: Any) -> None:
        raise Killed

    def end(self, history: Any, status: str) -> None:
        pass


def same_bytes_when_interrupted(root: Path) -> None:
    """Run r whole, and again from nothing with an end after its first checkpoint: every file of the model is the same."""
    train("r", root)
    whole = listing(root / "models" / "r")
    shutil.rmtree(root / "models" / "r")
    shutil.rmtree(root / ".work")
    with pytest.raises(Killed):
        train("r", root, lambda *_: Killer())
    train("r", root)
    assert listing(root / "models" / "r") == whole
