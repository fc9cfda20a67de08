"""Sources outside the project that were replaced after they were read."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from judgefree.bases.build import build_base
from judgefree.check import check_params, write_resolved
from judgefree.data.prepare import prepare
from judgefree.errors import JudgefreeError
from judgefree.files import read_json

TINY = Path(__file__).parents[1] / "profiles" / "tiny.yaml"
SCRATCH = {
    "kind": "scratch", "vocabulary": "arithmetic", "seed": 0, "hidden_size": 16, "intermediate_size": 16, "layers": 1,
    "heads": 2, "max_length": 64, "max_value": 5,
}  # fmt: skip


def problems(number: int, count: int) -> str:
    rows = (
        {"question": f"Number {number + i} comes before which number?", "answer": f"One more.\n#### {number + i + 1}"}
        for i in range(count)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project, a model that its base copies, and a mirror, and one data set from each kind of place."""
    place = tmp_path_factory.mktemp("place")
    shutil.copytree(build_base("made", {"base": SCRATCH}, place / "maker"), place / "model")
    for folder in (place / "mirror" / "gsm8k", place / "own"):
        folder.mkdir(parents=True)
        (folder / "train.jsonl").write_text(problems(100, 40))
        (folder / "test.jsonl").write_text(problems(500, 5))
    root = place / "project"
    root.mkdir()
    params: dict[str, Any] = YAML(typ="safe", pure=True).load(TINY.read_text())
    gsm8k = {"kind": "gsm8k", "revision": "0" * 40, "seed": 0, "validation": 5,
             "quality": params["data"]["arithmetic"]["quality"]}  # fmt: skip
    params["bases"]["theirs"] = {"kind": "folder", "path": "../model", "suites": []}
    params["data"] |= {"mirrored": {**gsm8k, "id": "openai/gsm8k"}, "own": {**gsm8k, "id": "../own"}}
    with (root / "params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(params, file)
    write_resolved(root)
    build_base("theirs", read_json(root / "resolved/base/theirs.json"), root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUDGEFREE_MIRROR", str(place / "mirror"))
        for name in ("mirrored", "own"):
            prepare(name, read_json(root / f"resolved/data/{name}.json"), root)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.setenv("JUDGEFREE_MIRROR", str(tmp_path / "place" / "mirror"))
    return tmp_path / "place"


def append_to_new(path: Path) -> None:
    path.write_bytes(b"new\n")


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        ("model/config.json", "base@theirs"),
        ("mirror/gsm8k/test.jsonl", "prepare@mirrored"),
        ("own/train.jsonl", "prepare@own"),
    ],
)
def test_a_replaced_file_is_named_with_the_stage_that_read_it(place: Path, file: str, stage: str) -> None:
    check_params(place / "project" / "params.yaml", quiet=True)
    append(place / file)
    with pytest.raises(JudgefreeError) as caught:
        check_params(place / "project" / "params.yaml", quiet=True)
    assert Path(file).name in caught.value.problem and f"is not what {stage} read" in caught.value.problem
    assert f"dvc repro --force --single-item {stage}`" in caught.value.fix


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        ("model/added_tokens.json", "base@theirs"),
        ("mirror/gsm8k/train-2.jsonl", None),
        ("own/main/train-00000.parquet", "prepare@own"),
    ],
)
def test_a_further_file_that_would_be_read_counts(place: Path, file: str, stage: str | None) -> None:
    (place / file).parent.mkdir(exist_ok=True)
    append_to_new(place / file)
    with pytest.raises(JudgefreeError, match=f"is not what {stage} read") if stage else nullcontext():
        check_params(place / "project" / "params.yaml", quiet=True)


def test_a_replaced_configuration_of_accelerate_is_resolved_again(place: Path) -> None:
    root = place / "project"
    params = YAML(typ="safe", pure=True).load((root / "params.yaml").read_text())
    params["runs"]["rlvr"]["training"] = {"accelerate_config": "../fsdp.yaml"}
    with (root / "params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(params, file)
    (place / "fsdp.yaml").write_text("distributed_type: FSDP\n")
    check_params(root / "params.yaml", quiet=True)  # the settings changed, which DVC sees
    write_resolved(root)
    check_params(root / "params.yaml", quiet=True)
    (place / "fsdp.yaml").write_text("distributed_type: NO\n")
    with pytest.raises(JudgefreeError, match="fsdp.yaml is not what resolve read") as caught:
        check_params(root / "params.yaml", quiet=True)
    assert "dvc repro --force --single-item resolve`" in caught.value.fix
    write_resolved(root)
    check_params(root / "params.yaml", quiet=True)


def test_a_file_that_is_gone_counts_as_replaced_and_a_place_that_is_gone_does_not(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results pulled from elsewhere are good without their sources."""
    (place / "own" / "train.jsonl").unlink()
    with pytest.raises(JudgefreeError, match="prepare@own"):
        check_params(place / "project" / "params.yaml", quiet=True)
    for folder in ("own", "model"):
        shutil.rmtree(place / folder)
    monkeypatch.delenv("JUDGEFREE_MIRROR")
    check_params(place / "project" / "params.yaml", quiet=True)


def test_what_dvc_makes_again_anyway_is_left_to_it(place: Path) -> None:
    append(place / "own" / "train.jsonl")
    params = place / "project" / "params.yaml"
    params.write_text(params.read_text().replace("validation: 5", "validation: 6"))
    check_params(params, quiet=True)
    shutil.rmtree(place / "project" / "models" / "theirs")
    check_params(params, quiet=True)
