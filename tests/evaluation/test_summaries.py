"""Suites of texts with references: by hand on a model whose texts are known, and side by side with maths."""

import shutil
from types import SimpleNamespace

import pandas as pd
import pytest

from judgefree.config import PromptFormat, Suite
from judgefree.config_judges import Pair
from judgefree.episodes import Example
from judgefree.errors import JudgefreeError
from judgefree.evaluation.compare import compare
from judgefree.evaluation.measures import TEXTS, VALIDATIONS, item_scores
from judgefree.evaluation.stage import evaluate, pin
from judgefree.evaluation.suites import run_suite
from judgefree.evaluation.summaries import QUESTION_CHARS
from judgefree.files import listing, pretty_json, read_json, seal, write_atomic
from judgefree.judging.stage import side_by_side
from judgefree.registry.catalogue import describe, mlflow_name
from judgefree.scoring.grader import Grader
from judgefree.scoring.rouge import MEASURES
from judgefree.training.history import VALIDATIONS as LOGGED

WHOLE = PromptFormat(template="{question}", chat=False, answer="whole", measure="rouge")
LINE = WHOLE.model_copy(update={"answer": "line"})
GREEDY = Suite(dataset="toy", max_completion_tokens=6, batch_rows=8)
SAMPLED = Suite(dataset="toy", max_completion_tokens=6, batch_rows=8, samples=4, temperature=1.0, seed=0)
# The model says: ####1, hm, "round" until it is cut off, and nothing at all after a word that it does not know.
EXAMPLES = [
    Example("same", "one", "####1"),
    Example("half", "none", "hm well"),
    Example("endless", "round", "round and round"),
    Example("mute", "silence", "a report of four"),
]


@pytest.fixture(scope="module")
def grader():
    with Grader(workers=1, timeout_s=2.0) as pool:
        yield pool


def test_greedy_by_hand(bigram, grader):
    items, metrics = run_suite(bigram.model, bigram.tokenizer, EXAMPLES, GREEDY, WHOLE, grader)
    assert items["id"].tolist() == ["same", "half", "endless", "mute"]
    assert items["answer"].fillna("none").tolist() == ["####1", "hm", " ".join(["round"] * 6), "none"]
    # hm / hm well: 1 of 1 and 1 of 2. Six rounds: one different word of one, one of two; as a sequence 2 of 6, 2 of 3
    assert items["rouge_l"].tolist() == pytest.approx([1, 2 / 3, 2 / 3, 0], abs=1e-7)
    for name in ("rouge_score/rougeL", "rouge_score/rougeLsum"):
        assert items[name].tolist() == pytest.approx([1, 2 / 3, 4 / 9, 0])
        assert metrics[name] == pytest.approx((1 + 2 / 3 + 4 / 9) / 4)
    assert items["words"].tolist() == [1, 1, 6, 0] and items["reference_words"].tolist() == [1, 2, 3, 4]
    assert items["length"].tolist() == [2, 2, 6, 1] and items["n_samples"].tolist() == [0] * 4
    assert metrics["rouge_l"] == pytest.approx(7 / 12, abs=1e-7)  # the empty text is in the mean
    assert metrics["rouge_l_se"] == pytest.approx(((1 + 8 / 9 - 4 * (7 / 12) ** 2) / 3 / 4) ** 0.5, abs=1e-7)
    assert (metrics["items"], metrics["truncated"], metrics["empty"]) == (4, 1 / 4, 1 / 4)
    assert (metrics["length"], metrics["words"], metrics["words_ratio"]) == (11 / 4, 2, 0.8)
    assert not [name for name in items if name.startswith("sampled/")]


def test_samples_have_means_of_their_own(bigram, grader):
    examples = [*EXAMPLES, Example("two", "two", "####2")]  # ####2 with 0.6, ####3 with 0.4
    items, metrics = run_suite(bigram.model, bigram.tokenizer, examples, SAMPLED, WHOLE, grader)
    assert items["n_samples"].tolist() == [4] * 5
    for name in MEASURES:
        assert items[f"sampled/{name}"][:4].tolist() == pytest.approx(items[name][:4].tolist())
        assert metrics[f"sampled/{name}"] == pytest.approx(items[f"sampled/{name}"].mean())
    assert float(items["sampled/rouge_l"][4]) * 4 == pytest.approx(
        round(float(items["sampled/rouge_l"][4]) * 4), abs=1e-6
    )
    assert metrics["sampled/words_ratio"] == pytest.approx(9 / 11) and metrics["sampled/empty"] == pytest.approx(1 / 5)
    assert not [name for name in metrics if describe(mlflow_name(f"eval/toy/{name}")) is None]
    again, _ = run_suite(
        bigram.model, bigram.tokenizer, examples, SAMPLED.model_copy(update={"batch_rows": 3}), WHOLE, grader
    )
    assert items.equals(again)


def test_an_answer_line_that_is_not_there_is_an_empty_text(bigram, grader):
    items, metrics = run_suite(bigram.model, bigram.tokenizer, EXAMPLES, GREEDY, LINE, grader)
    assert items["answer"].isna().all() and metrics["empty"] == 1 and metrics["rouge_l"] == metrics["words"] == 0


@pytest.mark.parametrize("reference", [None, " "])
def test_an_item_without_reference_is_written_to_and_has_no_score(bigram, grader, reference):
    alone = Example("alone", "one", reference)
    with pytest.raises(JudgefreeError, match="no test item of toy has a reference text"):
        run_suite(bigram.model, bigram.tokenizer, [alone], GREEDY, WHOLE, grader)
    whole, expected = run_suite(bigram.model, bigram.tokenizer, EXAMPLES, SAMPLED, WHOLE, grader)
    items, metrics = run_suite(bigram.model, bigram.tokenizer, [alone, *EXAMPLES], SAMPLED, WHOLE, grader)
    assert (items["text"][0], items["gold"][0], items["reference_words"][0]) == ("####1", "", 0)
    assert items[list(MEASURES)].isna().all(axis="columns").tolist() == [True] + [False] * 4
    assert (metrics["items"], metrics["referenced"], metrics["words"]) == (5, 4, 9 / 5) and "referenced" not in expected
    same = [name for name in expected if "rouge" in name or name.endswith("words_ratio")]
    assert {name: metrics[name] for name in same} == pytest.approx({name: expected[name] for name in same})
    assert not [name for name in metrics if describe(mlflow_name(f"eval/toy/{name}")) is None]
    for name, scores in item_scores(items).items():
        assert scores.tolist() == item_scores(whole)[name].tolist()


def test_a_long_source_is_shown_by_its_beginning(bigram, grader):
    example = Example("long", "x" * (QUESTION_CHARS + 7), "####1")
    items, _ = run_suite(bigram.model, bigram.tokenizer, [example], GREEDY, WHOLE, grader)
    assert items["question"][0] == "x" * QUESTION_CHARS + " [... 7 characters]"


def test_names_are_the_same_everywhere():
    assert [name for name in TEXTS if not name.startswith("sampled/")] == list(MEASURES)
    assert [name.removeprefix("sampled/") for name in TEXTS if name.startswith("sampled/")] == list(MEASURES)
    assert VALIDATIONS == LOGGED


@pytest.fixture
def both(project: SimpleNamespace) -> SimpleNamespace:
    """The project with a data set of texts beside its maths."""
    data = project.root / "data" / "memo"
    rows = [{"id": one.id, "question": one.question, "answer": one.answer, "demonstration": None} for one in EXAMPLES]
    data.mkdir()
    pd.DataFrame(rows).astype({"demonstration": "string"}).to_parquet(data / "test.parquet")
    seal(data, {"key": "by hand"})
    path = project.root / "resolved" / "evaluate" / "toy-run.json"
    settings = read_json(path)
    settings["suites"]["memo"] = SAMPLED.model_copy(update={"dataset": "memo"}).model_dump(exclude_none=True)
    settings["prompts"]["memo"] = WHOLE.model_dump(exclude_none=True)
    write_atomic(path, pretty_json(settings))
    project.suites = settings["suites"]
    return project


def test_texts_and_maths_side_by_side(both, capfd):
    """From the settings to the table, twice the same bytes; two models in one comparison."""
    root = both.root
    pin(root)
    evaluate("toy-run", root)
    assert "toy-run on memo: rouge_l 58.3% of 4 items" in " ".join(capfd.readouterr().err.split())
    reports = root / "reports" / "runs"
    first = listing(reports / "toy-run")
    shutil.rmtree(root / ".work")
    evaluate("toy-run", root)
    assert listing(reports / "toy-run") == first
    shutil.copytree(reports / "toy-run", reports / "other")  # the same model, but that its summaries are whole
    better = pd.read_parquet(reports / "other" / "memo" / "items.parquet").assign(**{"rouge_l": 1.0})
    write_atomic(reports / "other" / "memo" / "items.parquet", better.to_parquet(index=False))
    history = pd.DataFrame({"step": [0, 2, 4], "validation/rouge_l": [0.2, None, 0.4]})
    write_atomic(reports / "other" / "history.parquet", history.to_parquet())
    for folder in (reports / "other" / "memo", reports / "other"):
        facts = read_json(folder / "manifest.json")
        seal(folder, {name: value for name, value in facts.items() if name != "files"})
    models = {
        "toy-run": {"arm": "toy-run", "start_from": None, "suites": ["small", "memo"], "method": None, "seed": None},
        "other": {"arm": "other", "start_from": "toy-run", "suites": ["small", "memo"], "method": "spyrl", "seed": 0},
    }
    options = {"resamples": 500, "seed": 0, "confidence": 0.95}
    write_atomic(
        root / "resolved" / "compare.json", pretty_json({"compare": options, "models": models, "suites": both.suites})
    )
    compare(root)
    table = read_json(root / "reports" / "compare" / "table.json")
    base, other = table["suites"]["memo"]["arms"]
    assert list(base["scores"]) == list(TEXTS) and list(table["suites"]["small"]["arms"][0]["scores"]) == [
        "pass@1", "sampled/accuracy",
    ]  # fmt: skip
    gain = other["to_start"]["rouge_l"]
    assert gain["value"] == pytest.approx(5 / 12, abs=1e-6) and 0 < gain["low"] < gain["value"] < gain["high"]
    assert other["to_start"]["rouge_score/rougeL"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert table["training"]["other"]["validation_last"] == 0.4
    text = (root / "reports" / "compare" / "table.md").read_text()
    assert "| rouge_l | rougeL | rougeLsum |" in text and "LongBench's" in text and "| words_ratio |" in text
    assert "Validation pass@1 or rouge_l in training" in text


def test_a_story_without_a_reference_is_compared_by_judges_and_not_by_rouge(both):
    """Such a row went into no report before, so nothing could be put side by side."""
    root = both.root
    data = root / "data" / "memo"
    rows = pd.read_parquet(data / "test.parquet")
    rows.loc[0, "answer"] = None
    rows.to_parquet(data / "test.parquet")
    seal(data, {"key": "by hand"})
    pin(root)
    evaluate("toy-run", root)
    shutil.copytree(root / "reports" / "runs" / "toy-run", root / "reports" / "runs" / "other")
    pair = Pair(model="other", against="toy-run", suite="memo", judge="gpt", field="text", prompts="prompts/x.yaml")
    judged = side_by_side(root, pair, data)
    assert judged["id"].tolist() == [one.id for one in EXAMPLES]
    assert judged["text"][0] == judged["against_text"][0] == "####1"
    models = {
        name: {"arm": name, "start_from": None, "suites": ["memo"], "method": None, "seed": None}
        for name in ("toy-run", "other")
    }
    options = {"resamples": 50, "seed": 0, "confidence": 0.95}
    write_atomic(
        root / "resolved" / "compare.json", pretty_json({"compare": options, "models": models, "suites": both.suites})
    )
    compare(root)
    first, _ = read_json(root / "reports" / "compare" / "table.json")["suites"]["memo"]["arms"]
    assert first["scores"]["rouge_l"]["value"] == pytest.approx(first["metrics"]["rouge_l"], abs=1e-6)
    assert first["scores"]["rouge_l"]["value"] == pytest.approx((2 / 3 + 2 / 3 + 0) / 3, abs=1e-6)
