"""Transcript pages of runs: trained ones, one that is being trained, and what MLflow shows of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from judgefree.check import write_resolved
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, pretty_json, read_json, sha256_file, write_atomic
from judgefree.registry.store import find_run, open_store
from judgefree.registry.sync import sync
from judgefree.registry.transcript import write_transcript
from judgefree.training.run import read_job

ATTEMPT = {"role": "attempt", "answer": "3", "gold": "3", "verdict": "correct", "reward": 1.0, "advantage": 0.5,
           "finish_reason": "stop", "tokens": 3}  # fmt: skip


def records(folder: Path, steps: int, text: str) -> None:
    rows = [
        {"step": step, "prompt_id": f"train-{step:06d}", "text": f"{text} {step}", **ATTEMPT} for step in range(steps)
    ]
    shutil.rmtree(folder / "records", ignore_errors=True)
    (folder / "records").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "records" / "steps-0000000.parquet")


def method(folder: Path, name: str) -> None:
    write_atomic(folder / MANIFEST, pretty_json({**read_json(folder / MANIFEST), "method": name}))


def test_a_trained_run(project: Any) -> None:
    project.run("rlvr", weights=1)
    records(project.root / "models" / "rlvr", 60, "step")
    target = write_transcript(project.root, "rlvr", games=5)
    page = target.read_text()
    assert target == project.root / "reports" / "transcripts" / "rlvr.html"
    assert page.count("<article") == 5 and "55 are left out" in page and "seed</dt> <dd>0" in page
    assert "step 0<" in page and "step 59<" in page and "0 + 0 = ?" in page and "5 + 3 = ?" in page, (
        "questions of data/"
    )
    some = write_transcript(project.root, "rlvr", steps="7-8,20", target=project.root / "some.html").read_text()
    assert some.count("<article") == 3 and "step 8<" in some and "step 20<" in some
    with pytest.raises(JudgefreeError, match="no records of these steps"):
        write_transcript(project.root, "rlvr", steps="99")


def test_a_run_that_is_being_trained(project: Any) -> None:
    validation = project.root / "data" / "arithmetic" / "validation.parquet"
    shutil.copy(validation.with_name("test.parquet"), validation)
    facts = read_json(validation.with_name(MANIFEST))
    facts["files"][validation.name] = {"size": validation.stat().st_size, "sha256": sha256_file(validation)}
    write_atomic(validation.with_name(MANIFEST), pretty_json(facts))
    with pytest.raises(JudgefreeError, match="neither a model in models/ nor records"):
        write_transcript(project.root, "rlvr")
    project.run("rlvr", weights=1, key="of other settings")
    records(project.root / "models" / "rlvr", 1, "old")
    write_resolved(project.root)
    key = read_job("rlvr", project.root).key
    (project.root / ".work" / "train" / key).mkdir(parents=True)
    assert "old 0<" in write_transcript(project.root, "rlvr").read_text(), "the new training has written nothing yet"
    records(project.root / ".work" / "train" / key, 2, "new")
    page = write_transcript(project.root, "rlvr").read_text()
    assert "new 1<" in page and "old 0<" not in page and "training</dd>" in page
    shutil.rmtree(validation.parent)
    assert "old 0<" in write_transcript(project.root, "rlvr").read_text(), "without its data it has no key"


def test_no_records(project: Any) -> None:
    with pytest.raises(JudgefreeError, match="models/tiny has no records"):
        write_transcript(project.root, "tiny")


def test_mlflow_shows_the_transcripts_of_games_and_reviews(project: Any) -> None:
    for place, name in enumerate(("srrl", "spyrl", "rlvr", "sft")):
        project.run(name, weights=place)
        method(project.root / "models" / name, name)
    shutil.rmtree(project.root / "models" / "sft" / "records")
    sync(project.root)
    store = open_store(project.root)

    def page(name: str) -> Path:
        run = find_run(store, json.loads((project.root / "models" / name / MANIFEST).read_text())["key"], name)
        assert run
        return project.root / "mlruns" / "artifacts" / run.info.run_id / "artifacts" / "transcript.html"

    assert "#### 3</div>" in page("srrl").read_text() and page("spyrl").is_file(), "records that lack columns are shown"
    assert not page("rlvr").exists() and not page("sft").exists()
