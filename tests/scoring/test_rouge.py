"""ROUGE by hand and against the packages that define it."""

import json
import os
import random
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer

from judgefree.scoring.rouge import MEASURES, in_processes, lcs, lcs_length, rouge, rouge_of

GOOGLE = RougeScorer(["rougeL", "rougeLsum"], use_stemmer=True)
L, GOOGLE_L, GOOGLE_LSUM = MEASURES


def libraries(text: str, reference: str) -> dict[str, float]:
    """The three values as the packages give them; LongBench takes an exception for 0."""
    try:
        longbench = Rouge().get_scores([text], [reference], avg=True)["rouge-l"]["f"]
    except ValueError:
        longbench = 0.0
    google = GOOGLE.score(reference, text)
    return {L: longbench, GOOGLE_L: google["rougeL"].fmeasure, GOOGLE_LSUM: google["rougeLsum"].fmeasure}


def reports() -> list[tuple[str, str]]:
    """Summaries of government reports by three models, with their references."""
    if "JUDGEFREE_MIRROR" not in os.environ:
        pytest.skip("JUDGEFREE_MIRROR names no mirror")
    pairs = []
    for path in sorted((Path(os.environ["JUDGEFREE_MIRROR"]) / "govreport").glob("leval_pred_*.jsonl")):
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            pairs.append((next(value for name, value in row.items() if name.endswith("_pred")), row["gt"]))
    assert len(pairs) > 30
    return pairs


def test_by_hand() -> None:
    """Common in order: police kill the gunman / police the gunman; in both packages' terms all words differ."""
    scores = rouge("the gunman police killed", ["police killed the gunman"])
    # longest common subsequences have 2 of 4 words: precision = recall = 1/2
    assert scores == {L: pytest.approx(0.5, abs=1e-8), GOOGLE_L: 0.5, GOOGLE_LSUM: 0.5}
    scores = rouge("a b c", ["a x b y"])  # a b: precision 2/3, recall 2/4, F = 2 * 1/3 / (7/6) = 4/7
    assert scores == {
        L: pytest.approx(4 / 7, abs=1e-8),
        GOOGLE_L: pytest.approx(4 / 7),
        GOOGLE_LSUM: pytest.approx(4 / 7),
    }


def test_lines_are_sentences_for_lsum_and_stops_for_the_rouge_package() -> None:
    one, other = "red cat. blue dog. green owl", "green owl. red cat. blue dog"
    lines = [text.replace(". ", "\n") for text in (one, other)]
    flat, split = rouge(one, [other]), rouge(lines[0], [lines[1]])
    assert flat[GOOGLE_L] == split[GOOGLE_L] == flat[GOOGLE_LSUM] == pytest.approx(4 / 6)
    assert split[GOOGLE_LSUM] == 1.0
    assert (flat[L], split[L]) == (pytest.approx(1, abs=1e-8), pytest.approx(4 / 6, abs=1e-8))


def test_words_count_once_in_longbench_and_as_often_as_they_stand_elsewhere() -> None:
    scores = rouge("a a a a", ["a b"])
    assert scores[L] == pytest.approx(2 * 0.5 / 1.5, abs=1e-7)  # one of one word, one of two
    assert scores[GOOGLE_L] == scores[GOOGLE_LSUM] == pytest.approx(2 * (1 / 4) * (1 / 2) / (3 / 4))


def test_flags() -> None:
    """Stems and case meet in rouge-score; the rouge package takes words as they are written, with their marks."""
    scores = rouge("Reports, agencies", ["report agency"])
    assert scores == {L: 0.0, GOOGLE_L: 1.0, GOOGLE_LSUM: 1.0}


@pytest.mark.parametrize(
    "text",
    [
        "정부는 오늘 새로운 보고서를 발표했다.",
        "Правительство опубликовало отчёт",
        "政府发布了新的报告",
        "सरकार ने नई रिपोर्ट जारी की",
        "รัฐบาลเผยแพร่รายงานใหม่",
        "Cristóbal está aquí",
    ],
)
def test_equal_texts_of_any_script_are_worth_one(text: str) -> None:
    assert rouge(text, [text]) == {L: pytest.approx(1, abs=1e-8), GOOGLE_L: 1.0, GOOGLE_LSUM: 1.0}


def test_letters_of_other_scripts_by_hand() -> None:
    assert rouge("보고서를 오늘 발표했다", ["정부는 오늘 발표했다"])[GOOGLE_L] == pytest.approx(2 / 3)
    assert rouge("中国政府", ["中国政策"])[GOOGLE_L] == pytest.approx(3 / 4)  # signs are words
    assert rouge("Cristobal esta", ["Cristóbal está"])[GOOGLE_L] == 0.0  # accents are kept
    assert rouge("Cristo\u0301bal", ["Cristóbal"])[GOOGLE_L] == 1.0  # composed or not
    assert rouge("the agency’s “report” ❤️ — m²", ["the agency's report m"])[GOOGLE_L] == 1.0


@pytest.mark.parametrize("text", [None, "", " ", "\n", "...", " . "])
def test_nothing_is_worth_nothing(text: str | None) -> None:
    assert rouge(text, ["a report. "]) == dict.fromkeys(MEASURES, 0.0)
    assert rouge("a report. ", [text or ""]) == dict.fromkeys(MEASURES, 0.0)


def test_the_best_reference_counts_for_each_measure() -> None:
    references = ["a b c d", "c d\na b", "x"]
    each = [rouge("a b\nc d", [reference]) for reference in references]
    assert rouge("a b\nc d", references) == {measure: max(one[measure] for one in each) for measure in MEASURES}
    assert rouge("a b\nc d", references) == {L: each[0][L], GOOGLE_L: 1.0, GOOGLE_LSUM: 1.0}
    with pytest.raises(ValueError, match="at least one reference"):
        rouge("a", [])


WORDS = ["the", "The", "reports", "report", "a", "b", "c", "d", "2019,", "$5", "U.S.", "'s"]
PIECES = st.sampled_from([*WORDS, ".", ". ", "\n", " "])
TEXTS = st.lists(PIECES, min_size=1, max_size=40).map(" ".join)


@given(TEXTS, TEXTS)
@settings(max_examples=200, deadline=None)
def test_random_texts_have_the_packages_values(text: str, reference: str) -> None:
    expected = libraries(text, reference)
    if not (text.strip(" .\n") and reference.strip(" .\n")):
        expected[L] = 0.0  # a blank text: the package may find the empty word between two stops in both
    assert rouge(text, [reference]) == expected


@given(st.text(st.characters(max_codepoint=127), max_size=60), st.text(st.characters(max_codepoint=127), max_size=60))
@settings(max_examples=100, deadline=None)
def test_words_of_any_ascii_text_are_the_package_s(text: str, reference: str) -> None:
    ours, theirs = rouge(text, [reference]), libraries(text, reference)
    assert (ours[GOOGLE_L], ours[GOOGLE_LSUM]) == (theirs[GOOGLE_L], theirs[GOOGLE_LSUM])


def test_real_summaries_have_the_packages_values() -> None:
    for text, reference in reports():
        if text.isascii() and reference.isascii():
            assert rouge(text, [reference]) == libraries(text, reference)
        else:  # typographic marks; no letters beyond a-z
            assert rouge(text, [reference])[L] == libraries(text, reference)[L]


def table(rows: str, columns: str) -> list[list[int]]:
    lengths = [[0] * (len(columns) + 1) for _ in range(len(rows) + 1)]
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if row == column else max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths


@given(st.text("abc", max_size=30), st.text("abcd", max_size=30))
def test_a_longest_common_subsequence_is_one(rows: str, columns: str) -> None:
    places = list(lcs(rows, columns))
    assert all(rows[i] == columns[j] for i, j in places)
    assert all(a > c and b > d for (a, b), (c, d) in zip(places, places[1:], strict=False))
    assert len(places) == lcs_length(rows, columns) == table(rows, columns)[-1][-1]


def long_text(seed: int, stop: str, words: int = 10_000) -> str:
    rng = random.Random(seed)
    return "".join(f"w{rng.randrange(3000)}{stop if rng.random() < 0.05 else ' '}" for _ in range(words))


@pytest.mark.timeout(120)
def test_ten_thousand_words_take_seconds() -> None:
    started = time.process_time()
    whole, lines = rouge(long_text(0, " "), [long_text(1, " ")]), rouge(long_text(2, ". \n"), [long_text(3, ". \n")])
    assert time.process_time() - started < 20
    assert 0.02 < whole[GOOGLE_L] == whole[GOOGLE_LSUM] < lines[GOOGLE_LSUM]


def test_sentences_too_long_for_the_package_have_its_definition_s_value() -> None:
    text, reference = long_text(0, " ", 700), long_text(1, " ", 700)
    with pytest.raises(RecursionError):
        Rouge().get_scores(text, reference)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(6000)
    try:
        assert rouge(text, [reference]) == libraries(text, reference)
    finally:
        sys.setrecursionlimit(limit)


def test_processes_give_the_values_of_one_by_one() -> None:
    rows = [(long_text(seed, ".\n", 40 + seed), [long_text(seed + 100, ".\n", 60)]) for seed in range(37)]
    rows += [(None, ["a"]), ("a", ["a", "b"])]
    assert in_processes(rows, 2) == [rouge(*row) for row in rows] == rouge_of(rows, 2)
    assert in_processes(rows[:1], 4) == [rouge(*rows[0])] and rouge_of([], 4) == []
