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
from judgefree.texts import JUDGE_TEXTS, RETRY_TEXTS, check_texts, read_mapping, read_texts

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
def test_the_files_that_come_with_it_hold_what_is_wanted(file: Path) -> None:
    families = {"judge": JUDGE_TEXTS, "spyrl": TEXTS["spyrl"]}
    whole, family = file.stem.removesuffix("-tiny").replace("-", "_"), file.stem.split("-")[0]
    wanted = families.get(family) or {**TEXTS, **RETRY_TEXTS}[whole]
    check_texts(read_texts(ROOT, f"prompts/{file.name}", "k"), wanted, str(file))


def test_the_tiny_world_is_asked_in_its_own_words() -> None:
    assert read_texts(ROOT, "prompts/srrl-tiny.yaml", "k") == TINY
    asked = {"question": "1 + 2 = ?", "attempt": "#### 4"}
    review = fill(TINY["review"], **asked, memory="", feedback="wrong")
    reflexion = read_texts(ROOT, "prompts/reflexion-tiny.yaml", "k")
    refine = read_texts(ROOT, "prompts/self-refine-tiny.yaml", "k")
    assert fill(reflexion["reflect"], **asked, reflections="") == fill(refine["feedback"], **asked) == review
    second = fill(TINY["second"], guidelines="multiply first", question=asked["question"])
    noted = fill(reflexion["reflection"], reflection="multiply first")
    assert fill(reflexion["retry"], reflections=noted, question=asked["question"]) == second
    assert fill(refine["refine"], feedback="multiply first", **asked) == second


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


def test_a_heading_that_stands_twice_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("data: {}\nruns: {}\ndata: {}\n")
    with pytest.raises(JudgefreeError, match="params.yaml: data stands twice, again in line 3") as caught:
        read_mapping(tmp_path / "params.yaml")
    assert "under the first one" in caught.value.fix


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


# ---------------------------------------------------------------------------------------------------------------- suites

REFLEXION = {
    "reflect": "{reflections}{question}{attempt}",
    "reflection": "{reflection}",
    "retry": "{reflections}{question}",
}
REFINE = {"feedback": "{question}{attempt}", "refine": "{feedback}{question}", "stop": "fine"}


def with_retry(root: Path, texts: dict[str, Any], procedure: str = "reflexion", **options: Any) -> Path:
    """The tiny profile with a suite `again` that tries again, with these texts; only the run `rlvr` is tested on it."""
    path = written(root, texts, {**SRRL, "method": "rlvr", "options": {}})
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load(path.read_text())
    retry = {"procedure": procedure, "rounds": 2, "prompts": "prompts/mine.yaml"}
    retry |= ({"buffer": 1} if procedure == "reflexion" else {}) | options
    params["suites"]["again"] = {"dataset": "arithmetic", "max_completion_tokens": 32, "batch_rows": 9, "retry": retry}
    params["runs"]["rlvr"]["suites"].append("again")
    with path.open("w") as file:
        yaml.dump(params, file)
    return path


@pytest.mark.parametrize(
    ("procedure", "texts", "message"),
    [
        ("reflexion", REFINE, r"mine\.yaml is refused:\n  - feedback: unknown text; remove it"),
        ("reflexion", {**REFLEXION, "retry": "{question}"}, r"retry: has no \{reflections\}"),
        ("self_refine", {**REFINE, "stop": " ."}, r"stop: holds no word; add one"),
        ("self_refine", {name: REFINE[name] for name in ("feedback", "refine")}, r"stop: missing; add it"),
    ],
)
def test_texts_of_suites_that_are_refused(tmp_path: Path, procedure: str, texts: dict[str, str], message: str) -> None:
    with pytest.raises(JudgefreeError, match=message):
        checked(with_retry(tmp_path, texts, procedure))


def test_the_texts_are_settings_of_the_models_that_are_tested_with_them(tmp_path: Path) -> None:
    path = with_retry(tmp_path, REFINE, "self_refine")
    before = resolve(checked(path), tmp_path)
    assert before["evaluate/rlvr.json"]["texts"] == {"again": REFINE}
    assert "texts" not in before["evaluate/tiny.json"]
    after = resolve(checked(with_retry(tmp_path, {**REFINE, "stop": "good"}, "self_refine")), tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"evaluate/rlvr.json"}
    with pytest.raises(JudgefreeError, match=r"suites\.again\.retry\.prompts: .*other\.yaml does not exist"):
        resolve(load_params(with_retry(tmp_path, REFINE, "self_refine", prompts="prompts/other.yaml")), tmp_path)
