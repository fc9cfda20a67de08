"""Prompt files: what is read, what is refused by file and key, and how slots are filled."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from judgefree.check import checked
from judgefree.errors import JudgefreeError
from judgefree.methods import TEXTS
from judgefree.params import load_params, resolve
from judgefree.prompting import fill
from judgefree.texts import check_texts, read_texts

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "prompts").glob("*.yaml"))
TINY = {
    "feedback": "wrong", "feedback_solved": "right", "memory": "{review}\n",
    "review": "review\n{memory}{question}\n{attempt}\n{feedback}", "second": "{guidelines}\n{question}",
}  # fmt: skip
SRRL = {
    "method": "srrl", "dataset": "arithmetic", "start_from": "warmup", "seed": 0, "select": "last", "suites": [],
    "options": {"gate": "per_rollout", "untagged": "whole", "prompts": "prompts/mine.yaml", "distillation_weight": 0.0},
}  # fmt: skip


def written(root: Path, texts: dict[str, Any], run: dict[str, Any] = SRRL) -> Path:
    """A project with the tiny profile, a run of SRRL, and these texts in prompts/mine.yaml."""
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load((ROOT / "profiles" / "tiny.yaml").read_text())
    params["runs"]["srrl"] = run
    (root / "prompts").mkdir(exist_ok=True)
    for path, content in (("params.yaml", params), ("prompts/mine.yaml", texts)):
        with (root / path).open("w") as file:
            yaml.dump(content, file)
    return root / "params.yaml"


# ---------------------------------------------------------------------------------------------------------------- slots


def test_slots_are_filled_literally_and_once() -> None:
    assert fill("{a} and {b}, {a}", a="{b}", b="{a}{c}\\1") == "{b} and {a}{c}\\1, {b}"
    assert fill("\\boxed{a} {} { a } {other}", a="7") == "\\boxed7 {} { a } {other}"
    assert fill("nothing", a="7") == "nothing"
    assert fill("{a}{ab}", a="1", ab="2") == "12"


# ----------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_files_that_come_with_it_hold_what_their_method_wants(file: Path) -> None:
    method = file.stem.split("-")[0]
    check_texts(read_texts(ROOT, f"prompts/{file.name}", "k"), TEXTS[method], str(file))


def test_the_tiny_world_is_asked_in_its_own_words() -> None:
    assert read_texts(ROOT, "prompts/srrl-tiny.yaml", "k") == TINY


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"review": "{question} {attempt} {memory}"},
            r"mine\.yaml is refused:\n  - review: has no \{feedback\}; add it",
        ),
        ({"second": "{question}"}, r"second: has no \{guidelines\}"),
        ({"memory": "past"}, r"memory: has no \{review\}"),
        ({"sceond": "x"}, r"sceond: unknown text; remove it\n  fix: known texts: feedback, feedback_solved, memory"),
        ({"feedback": None}, r"mine\.yaml: feedback: None is no text\n  fix: put it into quotes"),
        ({"feedback": 0.0}, r"feedback: 0\.0 is no text"),
        ({"feedback_solved": ...}, r"feedback_solved: missing; add it"),
    ],
)
def test_texts_that_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    texts = {name: text for name, text in {**TINY, **changes}.items() if text is not ...}
    with pytest.raises(JudgefreeError, match=message):
        checked(written(tmp_path, texts))
    checked(written(tmp_path, TINY))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("prompts/other.yaml", r"runs\.srrl\.options\.prompts: .*other\.yaml does not exist\n.*: prompts/mine\.yaml"),
        ("mine.yaml", r"mine\.yaml is not below prompts/\n.*DVC watches prompts/"),
        ("prompts/../mine.yaml", "is not below prompts/"),
        ("/prompts/mine.yaml", "is not below prompts/"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, file: str, message: str) -> None:
    path = written(tmp_path, TINY, {**SRRL, "options": {**SRRL["options"], "prompts": file}})  # type: ignore[dict-item]
    with pytest.raises(JudgefreeError, match=message):
        checked(path)
    with pytest.raises(JudgefreeError, match=message):
        resolve(load_params(path), tmp_path)


def test_a_file_that_is_no_yaml_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, TINY)
    (tmp_path / "prompts" / "mine.yaml").write_text("feedback: [")
    with pytest.raises(JudgefreeError, match=r"mine\.yaml is not readable as YAML"):
        checked(path)
    (tmp_path / "prompts" / "mine.yaml").write_text("only text")
    with pytest.raises(JudgefreeError, match=r"mine\.yaml holds no mapping"):
        checked(path)


def test_the_texts_are_settings_of_the_run_that_uses_them(tmp_path: Path) -> None:
    path = written(tmp_path, TINY)
    before = resolve(load_params(path), tmp_path)
    assert before["train/srrl.json"]["texts"] == TINY and "texts" not in before["train/rlvr.json"]
    after = resolve(load_params(written(tmp_path, {**TINY, "feedback": "no"})), tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"train/srrl.json"}
    (tmp_path / "prompts" / "mine.yaml").write_text(  # another spelling of the same texts
        "# a comment\n" + "".join(f"{name}: {text!r}\n" for name, text in reversed(TINY.items())).replace("'", '"')
    )
    assert resolve(load_params(path), tmp_path) == before
