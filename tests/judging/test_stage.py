"""`judgefree pairwise` from two models' reports, and its settings; with a real server, real files and DVC."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from judge_server import JudgeServer, endpoint, said, serving
from project import command as run_command
from project import copy_checkout
from ruamel.yaml import YAML

from judgefree.check import checked, write_resolved
from judgefree.errors import JudgefreeError, MayPass
from judgefree.files import listing, pretty_json, read_json, seal, write_atomic
from judgefree.judging.stage import pairwise
from judgefree.params import parse_params, resolve

ROOT = Path(__file__).parents[2]
PAIR = {"model": "rlvr", "against": "tiny", "suite": "arithmetic", "judge": "gpt", "field": "text",
        "prompts": "prompts/judge-stories.yaml"}  # fmt: skip
SAID = {"rlvr": ["much longer", "short", "the same"], "tiny": ["short", "much longer", "the same"]}


def by_length(prompt: str, times: int) -> tuple:
    """Of the two stories in the prompt file's words the longer one is better."""
    first, second = (re.search(f"<story_{name}>\n(.*)\n</story_{name}>", prompt, re.DOTALL)[1] for name in "AB")  # type: ignore
    return said("[[A>B]]" if len(first) > len(second) else "[[B>>A]]" if len(second) > len(first) else "[[A=B]]")


def settings(url: str, **pair: Any) -> dict[str, Any]:
    params = YAML(typ="safe", pure=True).load((ROOT / "profiles" / "tiny.yaml").read_text())
    return {**params, "judges": {"gpt": endpoint(url, key_variable="JUDGE_KEY")}, "pairs": {"p": {**PAIR, **pair}}}


def write(root: Path, params: dict[str, Any]) -> None:
    with (root / "params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(params, file)
    if not (root / "prompts").exists():
        shutil.copytree(ROOT / "prompts", root / "prompts")
    write_resolved(root)


def report(root: Path, name: str, texts: list[str], ids: str = "abc", answers: Any = None) -> None:
    folder = root / "reports" / "runs" / name / "arithmetic"
    items = pd.DataFrame({"id": list(ids), "question": [f"about {one}" for one in ids], "gold": "1", "text": texts,
                          "answer": answers or texts})  # fmt: skip
    write_atomic(folder / "items.parquet", items.to_parquet(index=False))
    test_sha256 = read_json(root / "data/arithmetic/manifest.json")["files"]["test.parquet"]["sha256"]
    seal(folder, {"key": f"of {name}", "model_sha256": f"content of {name}", "suite": {"dataset": "arithmetic"},
                  "test_sha256": test_sha256})  # fmt: skip


def dataset(root: Path, ids: str = "abcd", **questions: str) -> None:
    """The test split that the models were asked from; `questions` by id are longer than what reports show of them."""
    folder = root / "data" / "arithmetic"
    rows = [(one, questions.get(one, f"about {one}"), "1", None) for one in ids]
    table = pd.DataFrame(rows, columns=["id", "question", "answer", "demonstration"]).astype("string")
    write_atomic(folder / "test.parquet", table.to_parquet(index=False))
    seal(folder, {"key": "by hand"})


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with serving(by_length) as one:
        yield one


@pytest.fixture
def root(tmp_path: Path, server: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUDGE_KEY", "sk-secret")
    write(tmp_path, settings(server.url))
    dataset(tmp_path)
    for name, texts in SAID.items():
        report(tmp_path, name, texts)
    return tmp_path


def test_a_pair_is_judged_and_a_second_time_nobody_is_asked(
    root: Path, server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = pairwise("p", root)
    folder = root / "reports" / "pairwise" / "p"
    assert metrics == read_json(folder / "metrics.json")
    assert (metrics["wins"], metrics["losses"], metrics["ties"], metrics["win_rate"]) == (1, 1, 1, 0.5)
    assert server.asked.total() == 5 and metrics["cost"] == pytest.approx(5 * 0.0004), "equal texts are one question"
    items = pd.read_parquet(folder / "items.parquet")
    assert items["outcome"].tolist() == ["win", "loss", "tie"] and items["text"].tolist() == SAID["rlvr"]
    assert items["verdict"].tolist() == ["A>B", "B>>A", "A=B"] and items["length"].tolist() == [11, 5, 8]
    first = listing(folder)
    monkeypatch.delenv("JUDGE_KEY")  # neither key nor server
    shutil.rmtree(folder)
    pairwise("p", root)
    assert listing(folder) == first and server.asked.total() == 5
    monkeypatch.setenv("JUDGE_KEY", "sk-secret")
    shutil.rmtree(root / ".work" / "pairwise")  # the answers are kept apart
    pairwise("p", root)
    assert listing(folder) == first and server.asked.total() == 5
    assert not [path for path in root.rglob("*") if path.is_file() and b"sk-secret" in path.read_bytes()]


def test_only_what_changed_is_judged_again(root: Path, server: JudgeServer) -> None:
    pairwise("p", root)
    report(root, "rlvr", ["much longer", "much longer still", "the same"])
    assert pairwise("p", root)["wins"] == 2 and server.asked.total() == 7
    write(root, settings(server.url, judge="gpt") | {"compare": {"resamples": 50, "seed": 1, "confidence": 0.9}})
    pairwise("p", root)
    assert server.asked.total() == 7, "other figures of the same verdicts"
    file = root / "prompts" / "judge-stories.yaml"
    file.write_text(file.read_text().replace("Novelty", "Originality"))
    write(root, settings(server.url))
    pairwise("p", root)
    assert server.asked.total() == 12, "other criteria are another question"


def test_a_missing_answer_is_an_empty_text(root: Path, server: JudgeServer) -> None:
    write(root, settings(server.url, field="answer"))
    report(root, "rlvr", SAID["rlvr"], answers=[None, "x", "x"])
    assert pairwise("p", root)["losses"] == 3
    assert pd.read_parquet(root / "reports/pairwise/p/items.parquet")["text"].tolist() == ["", "x", "x"]


def test_too_few_verdicts_publish_nothing_and_keep_what_was_bought(root: Path, server: JudgeServer) -> None:
    server.respond = lambda prompt, times: (500, "") if "about b" in prompt else by_length(prompt, times)
    with pytest.raises(JudgefreeError, match=r"judge gpt gave no verdict on 1 of 3 rows.*: b \(status 500") as caught:
        pairwise("p", root)
    assert not isinstance(caught.value, MayPass) and not (root / "reports" / "pairwise").exists()
    server.respond, asked = by_length, server.asked.total()
    assert pairwise("p", root)["items"] == 3 and server.asked.total() == asked + 2


def test_reports_that_do_not_fit_are_named(root: Path) -> None:
    report(root, "tiny", SAID["tiny"], ids="abd")
    with pytest.raises(JudgefreeError, match="item c is in one of them only"):
        pairwise("p", root)
    report(root, "tiny", SAID["tiny"])
    path = root / "reports" / "runs" / "tiny" / "arithmetic" / "items.parquet"
    items = pd.read_parquet(path).assign(question=["about a", "about something else", "about c"])
    items.to_parquet(path, index=False)
    with pytest.raises(JudgefreeError, match="items.parquet is not what was written"):
        pairwise("p", root)
    facts = read_json(path.with_name("manifest.json"))
    seal(path.parent, {name: value for name, value in facts.items() if name != "files"})
    with pytest.raises(JudgefreeError, match="item b has two questions"):
        pairwise("p", root)
    shutil.rmtree(path.parent)
    with pytest.raises(JudgefreeError, match="manifest.json is missing"):
        pairwise("p", root)


def test_a_judge_sees_the_whole_question(root: Path, server: JudgeServer) -> None:
    """The report shows its beginning; another question is judged anew, and not from what lies in .work."""
    long = "about a " + "source " * 2_857 + "end"
    assert len(long) > 20_000
    for times, source in enumerate((long, long + " and more"), 1):
        dataset(root, a=source)
        for name, texts in SAID.items():
            report(root, name, texts)
        pairwise("p", root)
        assert server.asked.total() == (5 if times == 1 else 7), "both orders of the one item"
        asked = [prompt for prompt in server.asked if source in prompt]
        assert len(asked) == 2
        items = pd.read_parquet(root / "reports/pairwise/p/items.parquet")
        assert items["question"].tolist() == [source, "about b", "about c"]


def test_test_items_that_do_not_fit_are_named(root: Path, server: JudgeServer) -> None:
    dataset(root, "abd")
    with pytest.raises(JudgefreeError, match=r"data/arithmetic is not what rlvr was tested on in suite arithmetic"):
        pairwise("p", root)
    for name, texts in SAID.items():
        report(root, name, texts)
    with pytest.raises(JudgefreeError, match=r"item c is not in the test split of .*data/arithmetic"):
        pairwise("p", root)
    path = root / "data" / "arithmetic" / "test.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(JudgefreeError, match=r"test.parquet is not what was written"):
        pairwise("p", root)
    shutil.rmtree(path.parent)
    with pytest.raises(JudgefreeError, match=r"data/arithmetic/manifest.json is missing"):
        pairwise("p", root)
    assert not server.asked


# -------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("pairs.p.judge", "gpt4", "pairs.p.judge: unknown name 'gpt4'; did you mean 'gpt'?"),
        ("pairs.p.model", "rlrv", "pairs.p.model: unknown name 'rlrv'; did you mean 'rlvr'?"),
        ("pairs.p.suite", "other", "pairs.p.suite: rlvr is not tested on other"),
        ("pairs.p.prompts", None, "pairs.p.prompts is given exactly when the judge reads"),
        ("pairs.q", PAIR, "pairs.q: has model, against, suite and judge of pairs.p"),
        ("judges.gpt.key_variable", "sk-123", "judges.gpt.key_variable: is no name of a variable"),
        ("judges.gpt.priec", {}, "judges.gpt.priec: unknown key; did you mean 'price'?"),
        ("judges.me", {"kind": "policy", "model": "no", "chat": True, "max_completion_tokens": 9, "batch_rows": 1},
         "judges.me.model: unknown name 'no'"),
        ("judges.a b", endpoint("https://example.org/v1"), "judges.a b: a name is made of"),
    ],
)  # fmt: skip
def test_settings_are_refused_by_key(path: str, value: Any, message: str) -> None:
    params = settings("https://example.org/v1")
    *parents, last = path.split(".")
    place = params
    for part in parents:
        place = place[part]
    place[last] = value
    with pytest.raises(JudgefreeError) as caught:
        parse_params(params, "params.yaml")
    assert message in str(caught.value) and "sk-123" not in str(caught.value)


def test_a_prompt_file_without_a_slot_is_refused(root: Path) -> None:
    file = root / "prompts" / "judge-stories.yaml"
    file.write_text(file.read_text().replace("{second}", "it"))
    with pytest.raises(JudgefreeError, match=r"compare: has no \{second\}"):
        checked(root / "params.yaml")


def test_what_a_pair_resolves_to_leaves_all_else_as_it_was(root: Path) -> None:
    params = settings("https://example.org/v1")
    files = resolve(parse_params(params, "here"), root)
    made = files.pop("pairwise/p.json")
    del params["judges"], params["pairs"]
    assert files == resolve(parse_params(params, "here"), root)
    assert (
        made["pair"] == PAIR
        and made["judge"]["url"] == "https://example.org/v1"
        and "Novelty" in made["texts"]["criteria"]
    )
    assert made["compare"] == params["compare"]


# ------------------------------------------------------------------------------------------------------------------- DVC


@pytest.mark.pipeline
def test_pairs_are_stages_of_dvc_where_there_are_any(
    tmp_path: Path, server: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-secret")
    root = copy_checkout(tmp_path / "project")
    assert "pairwise" not in run_command(root, "dvc", "stage", "list", "--all").stdout, "the profile has no pairs"
    write(root, settings(server.url))
    listed = run_command(root, "dvc", "stage", "list", "--all").stdout
    assert re.findall(r"^pairwise@\S+", listed, re.MULTILINE) == ["pairwise@p"]
    dataset(root)
    for name, texts in SAID.items():
        report(root, name, texts)
        write_atomic(root / "models" / name / "config.json", pretty_json({}))
    done = run_command(root, "dvc", "repro", "--single-item", "pairwise@p")
    assert "win rate 50.0% of 3 items; 1 wins, 1 ties, 1 losses; answers worth 0.0020" in done.stdout
    assert "didn't change" in run_command(root, "dvc", "repro", "--single-item", "pairwise@p").stdout
    report(root, "rlvr", ["much longer", "much longer still", "the same"])
    done = run_command(root, "dvc", "repro", "--single-item", "pairwise@p")
    assert "2 wins" in done.stdout and server.asked.total() == 7
