"""The build graph on a copy of this checkout: what runs again after which change, and that nothing is lost on the way."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from project import copy_checkout, environment, write_params

from judgefree.files import seal

pytestmark = pytest.mark.pipeline

RUN = {"method": "rlvr", "dataset": "arithmetic", "start_from": "warmup", "seed": 1, "select": "last", "suites": []}


def run(root: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    env = {**environment(), "PYTHONPATH": str(root / "src")}
    result = subprocess.run(words, cwd=root, env=env, text=True, capture_output=True)
    if check and result.returncode:
        raise AssertionError(f"{' '.join(words)} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_checkout(tmp_path_factory.mktemp("built"))
    run(root, "dvc", "repro")
    return root


@pytest.fixture
def project(built: Path) -> Iterator[Path]:
    """`built`; sources and parameters are put back after the test."""
    yield built
    subprocess.run(["git", "checkout", "-q", "."], cwd=built, check=True)
    write_params(built)


def stale(root: Path) -> set[str]:
    """Names of the stages that `dvc repro` would run, seen from their own inputs."""
    text = run(root, "dvc", "status").stdout
    return set(re.findall(r"^(\S+):$", text, re.MULTILINE))


def append(path: Path, text: str = "# changed\n") -> None:
    path.write_text(path.read_text() + text)


def test_everything_is_there_and_a_second_time_nothing_runs(project: Path) -> None:
    assert (project / "reports/compare/plots/curves.png").is_file()
    again = run(project, "dvc", "repro").stdout
    assert "Data and pipelines are up to date." in again and "Running stage" not in again
    assert "arithmetic.rlvr.pass@1" in run(project, "dvc", "metrics", "show").stdout
    run(project, "dvc", "plots", "show")
    page = (project / "dvc_plots" / "index.html").read_text()
    assert "curves.png" in page and "bars-arithmetic.png" in page


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/judgefree/methods/rlvr.py", {"train@rlvr"}),
        ("src/judgefree/methods/sft.py", {"train@warmup"}),
        ("src/judgefree/evaluation/suites.py", {"evaluate_base@tiny", "evaluate@warmup", "evaluate@rlvr", "compare"}),
        ("src/judgefree/training/loss.py", {"train@warmup", "train@rlvr"}),
        ("src/judgefree/bases/scratch.py", {"base@tiny"}),
        ("src/judgefree/data/gsm8k.py", {"prepare@arithmetic"}),
        ("src/judgefree/cli.py", set()),
        ("prompts/srrl.yaml", {"resolve"}),
    ],
)
def test_a_change_in_code_touches_its_own_stages(project: Path, file: str, expected: set[str]) -> None:
    append(project / file)
    assert stale(project) == expected


@pytest.mark.parametrize(
    ("sections", "trained"),
    [
        ({"runs": {"other": RUN}}, set()),
        ({"suites.arithmetic": {"samples": 4}}, set()),
        ({"compare": {"confidence": 0.9}}, set()),
        ({"runs.rlvr": {"training": {"learning_rate": 1e-5}}}, {"train@rlvr"}),
        ({"training": {"max_grad_norm": 0.5}}, {"train@warmup", "train@rlvr"}),
    ],
    ids=["a run is added", "evaluation", "comparison", "one run", "all runs"],
)  # fmt: skip
def test_a_change_in_settings_retrains_what_it_touches(project: Path, sections: dict, trained: set[str]) -> None:
    write_params(project, **sections)
    run(project, "dvc", "repro", "resolve")
    found = stale(project)
    write_params(project)
    run(project, "dvc", "repro", "resolve")
    assert {stage for stage in found if stage.startswith("train@")} - {"train@other"} == trained


def test_a_changed_test_split_retrains_nothing(project: Path) -> None:
    folder = project / "data" / "arithmetic"
    kept = project / ".work" / "kept"
    shutil.copytree(folder, kept)
    pq.write_table(pq.read_table(folder / "test.parquet").slice(1), folder / "test.parquet")
    seal(folder, {})
    found = stale(project)
    shutil.rmtree(folder)
    kept.rename(folder)
    assert {stage for stage in found if stage.startswith("train@")} == set()
    assert "pin" in found


def test_pull_on_another_clone_brings_everything_back(project: Path, tmp_path: Path) -> None:
    remote, clone = tmp_path / "remote", copy_checkout(tmp_path / "clone")
    for root in (project, clone):
        run(root, "dvc", "remote", "add", "-q", "-f", "-d", "store", str(remote))
    run(project, "dvc", "push", "-q")
    shutil.copy2(project / "dvc.lock", clone / "dvc.lock")
    run(clone, "dvc", "pull", "-q", "--allow-missing")
    assert (clone / "models/rlvr/model.safetensors").read_bytes() == (
        project / "models/rlvr/model.safetensors"
    ).read_bytes()
    output = run(clone, "dvc", "repro").stdout
    assert not re.search(r"Running stage '(train|base|prepare|evaluate)", output), output
    assert (clone / "dvc.lock").read_text() == (project / "dvc.lock").read_text()


def test_two_at_once(project: Path) -> None:
    """The second says that the first is at work; neither loses anything."""
    append(project / "src/judgefree/evaluation/plots.py")
    env = {**environment(), "PYTHONPATH": str(project / "src")}
    one, two = (
        subprocess.Popen(
            ["dvc", "repro"], cwd=project, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(2)
    )
    outputs = [process.communicate()[0] for process in (one, two)]
    codes = sorted(process.returncode for process in (one, two))
    assert codes[0] == 0, outputs
    if codes[1]:
        loser = outputs[0] if one.returncode else outputs[1]
        assert "busy" in loser or "lock" in loser.lower(), loser
    assert "up to date" in run(project, "dvc", "repro").stdout


def test_flipped_byte_in_an_input_is_refused_by_name(project: Path) -> None:
    weights = project / "models" / "warmup" / "model.safetensors"
    content = weights.read_bytes()
    os.chmod(weights, 0o644)
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused = run(project, "judgefree", "train", "rlvr", check=False)
    weights.write_bytes(content)
    assert refused.returncode == 2 and "models/warmup/model.safetensors is not what was written" in refused.stderr
