import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import judgefree
from judgefree.errors import JudgefreeError
from judgefree.evaluation.stage import evaluate, pin
from judgefree.files import listing, read_json, seal


def run(root: Path) -> Path:
    pin(root)
    evaluate("toy-run", root)
    return root / "reports" / "runs" / "toy-run"


def test_report_holds_each_suite_and_the_training(project):
    report = run(project.root)
    metrics = read_json(report / "small" / "metrics.json")
    assert metrics["pass@1"] == pytest.approx(2 / 5)
    items = pd.read_parquet(report / "small" / "items.parquet")
    assert items["id"].tolist() == ["right", "mode", "rare", "mute", "endless"]
    assert items["n_correct"].sum() / 20 == pytest.approx(metrics["sampled/accuracy"])
    assert read_json(report / "small" / "manifest.json")["suite"] == project.suite
    assert read_json(report / "training.json") == {
        "method": "rlvr", "seed": 0, "select": "last", "steps": 4, "selected_step": 4,
    }  # fmt: skip
    assert pd.read_parquet(report / "history.parquet")["step"].tolist() == [0, 2, 4]


def test_a_grader_that_gives_up_is_told(project, capfd):
    data = project.root / "data" / "toy"
    rows = pd.read_parquet(data / "test.parquet")
    rows.loc[len(rows)] = {"id": "tower", "question": "tower", "answer": "7x+y", "demonstration": None}
    rows.to_parquet(data / "test.parquet")
    seal(data, {"key": "one more row"})
    report = run(project.root)
    assert read_json(report / "small" / "metrics.json")["ungraded"] == pytest.approx(1 / 6)
    told = " ".join(capfd.readouterr().err.split())
    assert "toy-run on small: the grader gave up on more than 1% of the completions" in told
    assert "toy-run on small: pass@1 33.3% of 6 items" in told


def test_two_runs_in_two_places_give_the_same_bytes(project, tmp_path, bigram):
    first = listing(run(project.root))
    project.write(tmp_path / "elsewhere", bigram, {"small": project.suite})
    assert listing(run(tmp_path / "elsewhere")) == first
    assert set(first) >= {"small/items.parquet", "small/metrics.json", "small/manifest.json", "history.parquet"}


def test_a_new_suite_is_computed_alone(project):
    before = listing(run(project.root))
    (sealed,) = [path for path in (project.root / ".work" / "evaluate").iterdir() if (path / "manifest.json").is_file()]
    written = sealed.stat().st_mtime_ns, (sealed / "items.parquet").stat().st_mtime_ns
    greedy = {"dataset": "toy", "items": 2, "max_completion_tokens": 4, "batch_rows": 8}
    project.settings(project.root, {"small": project.suite, "greedy": greedy})
    report = run(project.root)
    assert (sealed.stat().st_mtime_ns, (sealed / "items.parquet").stat().st_mtime_ns) == written
    after = listing(report)
    assert {name: after[name] for name in before} == before
    assert read_json(report / "greedy" / "metrics.json")["items"] == 2


def test_what_is_done_needs_neither_weights_nor_torch(project):
    before = listing(run(project.root))
    shutil.rmtree(project.root / "reports")
    (project.root / "models" / "toy-run" / "model.safetensors").unlink()
    code = (
        "import sys; from pathlib import Path; from judgefree.evaluation.stage import evaluate; "
        "evaluate('toy-run', Path(sys.argv[1])); "
        "print(sorted({'torch', 'transformers', 'pandas', 'matplotlib'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(judgefree.__file__).parents[1])}
    result = subprocess.run(
        [sys.executable, "-c", code, str(project.root)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (result.returncode, result.stdout.strip()) == (0, "[]"), result.stderr
    assert listing(project.root / "reports" / "runs" / "toy-run") == before


@pytest.mark.parametrize(
    ("change", "changes_key"),
    [({"seed": 1}, True), ({"max_completion_tokens": 5}, True), ({"pass_at": [1]}, True), ({}, False)],
)
def test_settings_are_part_of_the_key(project, change, changes_key):
    old = read_json(run(project.root) / "small" / "manifest.json")["key"]
    project.settings(project.root, {"small": {**project.suite, **change}})
    new = read_json(run(project.root) / "small" / "manifest.json")["key"]
    assert (old != new) == changes_key


def test_a_training_split_leaves_the_plan_as_it_was_and_a_test_split_does_not(project):
    pin(project.root)
    plan, data = project.root / "plan" / "toy-run.json", project.root / "data" / "toy"
    before = plan.read_bytes()
    rows = pd.read_parquet(data / "train.parquet")
    rows.iloc[:3].to_parquet(data / "train.parquet")
    seal(data, {"key": "other training rows"})
    pin(project.root)
    assert plan.read_bytes() == before
    rows.iloc[:3].to_parquet(data / "test.parquet")
    seal(data, {"key": "other test rows"})
    pin(project.root)
    assert plan.read_bytes() != before


def test_plans_of_models_that_are_gone_go(project):
    pin(project.root)
    (project.root / "plan" / "gone.json").write_text("{}")
    pin(project.root)
    assert [path.name for path in (project.root / "plan").iterdir()] == ["toy-run.json"]


def test_a_damaged_weight_file_is_named(project):
    pin(project.root)
    weights = project.root / "models" / "toy-run" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(JudgefreeError, match=r"model\.safetensors is not what was written"):
        evaluate("toy-run", project.root)
    assert not (project.root / "reports").exists()


def test_weights_that_are_not_safetensors_are_refused(project):
    model = project.root / "models" / "toy-run"
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    seal(model, {"kind": "run"})
    pin(project.root)
    with pytest.raises(JudgefreeError, match="cannot be loaded as a model"):
        evaluate("toy-run", project.root)


def test_missing_parts_are_named(project):
    with pytest.raises(JudgefreeError, match=r"plan/toy-run\.json is missing"):
        evaluate("toy-run", project.root)
    pin(project.root)
    shutil.move(project.root / "models", project.root / "moved")
    with pytest.raises(JudgefreeError, match=r"models/toy-run/manifest\.json is missing"):
        evaluate("toy-run", project.root)
    shutil.move(project.root / "moved", project.root / "models")
    (project.root / "data" / "toy" / "test.parquet").unlink()
    with pytest.raises(JudgefreeError, match=r"test\.parquet is missing"):
        evaluate("toy-run", project.root)
    seal(project.root / "data" / "toy", {"key": "no test split"})
    with pytest.raises(JudgefreeError, match=r"data/toy has no test\.parquet"):
        pin(project.root)


def test_a_test_split_changed_after_the_plan_is_refused(project):
    pin(project.root)
    data = project.root / "data" / "toy"
    pd.read_parquet(data / "test.parquet").iloc[:2].to_parquet(data / "test.parquet")
    seal(data, {"key": "other"})
    with pytest.raises(JudgefreeError, match=r"is not the data set that plan/toy-run\.json names"):
        evaluate("toy-run", project.root)
