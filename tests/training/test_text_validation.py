"""Validation of a task whose answers are texts: by ROUGE-L on real training, and what follows from it."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from stage_project import LIMITS
from world import TRAINING

from judgefree.config import Monitor
from judgefree.data.tables import SCHEMA, write_parquet
from judgefree.errors import JudgefreeError
from judgefree.files import pretty_json, read_json, seal, write_atomic
from judgefree.registry.catalogue import describe, mlflow_name
from judgefree.training.history import VALIDATION_TEXT, History, selected_step, signal_of
from judgefree.training.monitor import alarms, collapse_facts
from judgefree.training.run import train

TEXT = "w5 w6 w7"


def project(tiny: Path, root: Path, reference: str | None) -> Path:
    """A warm-up on one text that is said to every question; the validation rows have this reference."""
    shutil.copytree(tiny, root / "models" / "start")
    seal(root / "models" / "start", {"kind": "base"})
    for split, answer in (("train", None), ("validation", reference)):
        rows: list[dict[str, Any]] = [
            {**dict.fromkeys(SCHEMA.names), "id": f"{split}{i}", "question": f"w{i % 26} w3", "answer": answer,
             "demonstration": TEXT} for i in range(16)
        ]  # fmt: skip
        write_parquet(root / "data" / "memo" / f"{split}.parquet", rows, SCHEMA)
    seal(root / "data" / "memo", {})
    training = {**TRAINING, "steps": 12, "save_every": 4, "learning_rate": 0.02}
    write_atomic(root / "resolved" / "train" / "r.json", pretty_json({
        "run": {"method": "sft", "dataset": "memo", "start_from": "start", "seed": 0, "select": "validation",
                "options": {"batch_size": 16}},
        "training": training, "grading": {"workers": 1, "timeout_s": 1.0}, "threads": 1,
        "prompt": {"template": "{question}", "chat": False, "answer": "whole", "measure": "rouge"},
    }))  # fmt: skip
    return root


def test_a_run_validates_and_selects_by_rouge(tiny: Path, tmp_path: Path) -> None:
    """The reference has one word more than the text that is learnt: of 3 words 3, of 4 words 3, so F = 6/7 at best."""
    train("r", project(tiny, tmp_path, f"{TEXT} w8"))
    history = pd.read_parquet(tmp_path / "models" / "r" / "history.parquet").set_index("step")
    scores = history["validation/rouge_l"].dropna()
    assert list(scores.index) == [0, 4, 8, 12] and "validation/pass@1" not in history
    assert scores[0] < 0.3 and scores.iloc[1:].max() == pytest.approx(6 / 7, abs=1e-7)
    best = scores.iloc[1:].idxmax()
    facts = read_json(tmp_path / "models" / "r" / "manifest.json")
    assert (facts["selected_step"], facts["collapse"]["peak_step"]) == (best, best)
    assert (
        history["validation/words"][best] >= 3 and history["validation/empty"][best] == 0
    )  # a word twice costs nothing
    assert not [name for name in history if describe(mlflow_name(name)) is None]


def test_without_references_nothing_is_selected_by_validation(tiny: Path, tmp_path: Path) -> None:
    root = project(tiny, tmp_path, None)
    with pytest.raises(
        JudgefreeError, match=r"runs\.r\.select is validation, and no validation row of memo has a reference"
    ):
        train("r", root)


def test_what_is_taken_from_validation_is_taken_from_rouge() -> None:
    rows = {0: {VALIDATION_TEXT: 0.9}, 4: {VALIDATION_TEXT: 0.4}, 8: {VALIDATION_TEXT: 0.5}, 12: {VALIDATION_TEXT: 0.1}}
    history = History(rows)
    assert signal_of(history, "validation") == signal_of(history, "last") == VALIDATION_TEXT
    assert selected_step(history, "validation", 12) == 8 and selected_step(history, "last", 12) == 12
    assert collapse_facts(rows) == {"peak": 0.5, "peak_step": 8, "collapse_step": 12, "retention": pytest.approx(0.2)}
    limits = Monitor.model_validate({**LIMITS, "validation_low": 0.5})
    assert alarms(rows, limits) == ["validation_low"] and not alarms({4: rows[4], 8: rows[8]}, limits)
