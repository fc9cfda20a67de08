import math
from math import comb

import pytest

from judgefree.config import PromptFormat, Suite
from judgefree.episodes import Example
from judgefree.errors import JudgefreeError
from judgefree.evaluation.suites import run_suite
from judgefree.registry.catalogue import describe, mlflow_name
from judgefree.scoring.grader import Grader

PROMPT = PromptFormat(template="{question}", chat=False, answer="marker")
GREEDY = Suite(dataset="toy", max_completion_tokens=6, batch_rows=8)
SAMPLED = Suite(
    dataset="toy", max_completion_tokens=6, batch_rows=8, samples=4, pass_at=[1, 2, 4], temperature=1.0, seed=0
)
EXAMPLES = [
    Example("right", "one", "1"),
    Example("mode", "two", "2"),
    Example("rare", "two", "3"),
    Example("mute", "none", "1"),
    Example("endless", "round", "1"),
]


@pytest.fixture(scope="module")
def grader():
    with Grader(workers=1, timeout_s=2.0) as pool:
        yield pool


def test_greedy_by_hand(bigram, grader):
    items, metrics = run_suite(bigram.model, bigram.tokenizer, EXAMPLES, GREEDY, PROMPT, grader)
    assert items["id"].tolist() == ["right", "mode", "rare", "mute", "endless"]
    assert items["text"].tolist() == ["####1", "####2", "####2", "hm", "round round round round round round"]
    assert items["answer"].fillna("none").tolist() == ["1", "2", "2", "none", "none"]
    assert items["verdict"].tolist() == ["correct", "correct", "wrong", "unparsed", "unparsed"]
    assert items["correct"].tolist() == [True, True, False, False, False]
    assert items["length"].tolist() == [2, 2, 2, 2, 6]  # the answer and <eos>; six words and no end
    assert items["finish_reason"].tolist() == ["stop", "stop", "stop", "stop", "length"]
    assert items["n_samples"].tolist() == [0] * 5
    assert metrics == pytest.approx(
        {
            "items": 5,
            "pass@1": 2 / 5,
            "pass@1_se": math.sqrt((2 * 0.6**2 + 3 * 0.4**2) / 4 / 5),
            "unparsed": 2 / 5,
            "truncated": 1 / 5,
            "ungraded": 0.0,
            "length": 14 / 5,
            "length_right": 2.0,
            "length_wrong": 10 / 3,
        }
    )


def test_sampled_metrics_follow_from_the_counts(bigram, grader):
    items, metrics = run_suite(bigram.model, bigram.tokenizer, EXAMPLES, SAMPLED, PROMPT, grader)
    counts = dict(zip(items["id"], items["n_correct"], strict=True))
    assert (counts["right"], counts["mute"], counts["endless"]) == (4, 0, 0)
    assert items["n_samples"].tolist() == [4] * 5
    assert metrics["sampled/accuracy"] == pytest.approx(sum(counts.values()) / 20)
    assert metrics["sampled/pass@1"] == pytest.approx(metrics["sampled/accuracy"])
    for k in (2, 4):
        each = [1 - comb(4 - c, k) / comb(4, k) for c in counts.values()]
        mean = sum(each) / 5
        error = math.sqrt(sum((one - mean) ** 2 for one in each) / 4 / 5)
        assert metrics[f"sampled/pass@{k}"] == pytest.approx(mean)
        assert metrics[f"sampled/pass@{k}_se"] == pytest.approx(error)
    assert metrics["sampled/truncated"] == pytest.approx(1 / 5)
    assert metrics["sampled/unparsed"] == pytest.approx(2 / 5)
    assert metrics["sampled/length"] == pytest.approx(14 / 5)
    assert not [name for name in metrics if describe(mlflow_name(f"eval/toy/{name}")) is None]


def test_samples_have_the_model_s_probabilities(bigram, grader):
    examples = [Example(f"two-{place}", "two", "2") for place in range(300)]
    suite = SAMPLED.model_copy(update={"batch_rows": 400})
    items, metrics = run_suite(bigram.model, bigram.tokenizer, examples, suite, PROMPT, grader)
    # 1,200 draws with p = 0.6: standard error 0.0141
    assert metrics["sampled/accuracy"] == pytest.approx(0.6, abs=4 * 0.0141)
    assert metrics["sampled/accuracy_se"] == pytest.approx(0.0141, rel=0.2)
    # an item has none right of four with 0.4^4; of 300 items
    assert metrics["sampled/pass@4"] == pytest.approx(1 - 0.4**4, abs=4 * math.sqrt(0.0256 * 0.9744 / 300))
    assert items["n_correct"].nunique() == 5  # streams differ between items and between samples
    assert metrics["pass@1"] == 1.0


def test_temperature_is_the_suite_s(bigram, grader):
    examples = [Example(f"two-{place}", "two", "2") for place in range(300)]
    suite = SAMPLED.model_copy(update={"batch_rows": 400, "temperature": 0.5})
    _, metrics = run_suite(bigram.model, bigram.tokenizer, examples, suite, PROMPT, grader)
    p = 0.6**2 / (0.6**2 + 0.4**2)  # 0.692: squared odds at half the temperature
    assert metrics["sampled/accuracy"] == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 1200))


def test_batch_size_changes_nothing(bigram, grader):
    first, _ = run_suite(bigram.model, bigram.tokenizer, EXAMPLES, SAMPLED, PROMPT, grader)
    other = SAMPLED.model_copy(update={"batch_rows": 3})
    second, _ = run_suite(bigram.model, bigram.tokenizer, EXAMPLES, other, PROMPT, grader)
    assert first.equals(second)


def test_what_the_grader_gives_up_on_is_not_correct_and_shown(bigram, grader):
    examples = [Example("right", "one", "1"), Example("tower", "tower", "7x+y")]
    items, metrics = run_suite(bigram.model, bigram.tokenizer, examples, SAMPLED, PROMPT, grader)
    assert items["verdict"].tolist() == ["correct", "timeout"]
    assert metrics["pass@1"] == 0.5
    assert (metrics["ungraded"], metrics["sampled/ungraded"], metrics["unparsed"]) == (0.5, 0.5, 0.0)
    assert items["n_ungraded"].tolist() == [0, 4]


def test_one_item_has_no_standard_error(bigram, grader):
    _, metrics = run_suite(bigram.model, bigram.tokenizer, EXAMPLES[:1], GREEDY, PROMPT, grader)
    assert metrics["pass@1"] == 1.0
    assert not {"pass@1_se", "length_wrong"} & metrics.keys()


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "no rows"),
        ([Example("a", "one", None)], "test item a of toy has no gold answer"),
        ([Example("a", "one " * 64, "1")], "a/evaluate/0 has 64 tokens"),
    ],
)
def test_unusable_examples_are_named(bigram, grader, examples, message):
    with pytest.raises(JudgefreeError, match=message):
        run_suite(bigram.model, bigram.tokenizer, examples, GREEDY, PROMPT, grader)
