"""How verdicts and scores are read, and the prompt files of the repository."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgefree.errors import JudgefreeError
from judgefree.judging.judges import Bill, Verdict, require_coverage, total
from judgefree.judging.words import read_score, read_verdict
from judgefree.texts import JUDGE_TEXTS, check_texts, read_texts

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("[[A>>B]]", "A>>B"), ("[[A>B]]", "A>B"), ("[[A=B]]", "A=B"), ("[[B>A]]", "B>A"), ("[[B>>A]]", "B>>A"),
        ("[[A<B]]", "B>A"), ("[[A<<B]]", "B>>A"), ("[[B=A]]", "A=B"), ("[[B<A]]", "A>B"), ("[[ a > b ]]", "A>B"),
        ("At first [[A>B]], but no: [[B>A]].", "B>A"), ("[A>B] in single brackets", "A>B"),
        ("[[B>A]] and a remark on [A>B]", "B>A"), ("My verdict: **[[A=B]]**\n", "A=B"),
        ("", None), ("A is better", None), ("[[A]]", None), ("[[A>A]]", None), ("[[B>A]] [[A=A]]", None),
        ("[[A>>>B]]", None), ("[[C>A]]", None), ("[" * 50_000, None),
    ],
)  # fmt: skip
def test_verdicts(reply: str, verdict: str | None) -> None:
    assert read_verdict(reply) == verdict


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("[[7]]", 7), ("[[ 7.5 ]]", 7.5), ("[[8/10]]", 8), ("Novelty [[3]]. Overall: [[10]]", 10), ("[[1]]", 1),
        ("[[0]]", None), ("[[11]]", None), ("[[-3]]", None), ("[[5]] out of [[100]]", None), ("7", None), ("[7]", None),
        ("[[seven]]", None), ("[[1e1]]", None), ("", None), ("[[" + "9" * 10_000 + "]]", None), ("[[٣]]", 3),
    ],
)  # fmt: skip
def test_scores(reply: str, score: float | None) -> None:
    assert read_score(reply) == score


def test_preferences_are_for_the_second_text() -> None:
    assert [(one.preference, one.much) for one in Verdict] == [
        (0.0, True), (0.0, False), (0.5, False), (1.0, False), (1.0, True),
    ]  # fmt: skip


def test_bills_are_summed() -> None:
    bills = [Bill(10, 2, 0.1, True), Bill(5, 1, 0.2, False)]
    assert total(bills) == Bill(15, 3, pytest.approx(0.3), False) and total(bills[:1]).cached
    assert total([]) == Bill(cached=True)


@given(st.integers(1, 2000), st.data())
@settings(max_examples=50, deadline=None)
def test_coverage(rows: int, data: st.DataObject) -> None:
    """Whole numbers: refused exactly when fewer than 99 of 100 rows are left."""
    missing = [(f"row{n}", "time-out") for n in range(data.draw(st.integers(0, min(rows, 40))))]
    if 100 * (rows - len(missing)) >= 99 * rows:
        require_coverage(missing, rows, "gpt")
        return
    with pytest.raises(JudgefreeError, match=rf"judge gpt gave no verdict on {len(missing)} of {rows} rows") as caught:
        require_coverage(missing, rows, "gpt")
    assert "row0 (time-out)" in caught.value.problem and (" more" in caught.value.problem) == (len(missing) > 5)


@pytest.mark.parametrize("name", ["judge-stories", "judge-summaries"])
def test_prompt_files(name: str) -> None:
    texts = read_texts(ROOT, f"prompts/{name}.yaml", "here")
    check_texts(texts, JUDGE_TEXTS, name)
    assert all(f"[[{verdict}]]" in texts["compare"] for verdict in Verdict) and read_score(texts["rate"]) == 5
    criteria = texts["criteria"].lower()
    expected = (
        ("novelty", "emotion", "coherence", "consistency", "overall") if name == "judge-stories" else ("faithful",)
    )
    assert all(word in criteria for word in expected)
