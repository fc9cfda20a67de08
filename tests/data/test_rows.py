"""The common form of each data set's rows, and the faults of a row by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.config_data import Quality
from judgefree.data import gsm8k, math, mawps
from judgefree.data.quarantine import Quarantine
from judgefree.data.rows import BadRow, check_texts, text_of
from judgefree.errors import JudgefreeError

LIMITS = Quality(
    max_quarantined_share=0.1, min_gold_parse_share=0.9, max_question_chars=40, max_answer_chars=5,
    near_overlap_ngram=13, near_overlap_share=0.5,
)  # fmt: skip


def test_gsm8k_gold_solution_and_demonstration() -> None:
    row = {"question": "Q?", "answer": "Half is 2,096/2=<<2096/2=1048>>1048.\nSo $<<1048>>1,048.\n#### 1,048"}
    assert gsm8k.parse(row) == {
        "question": "Q?",
        "answer": "1048",
        "solution": "Half is 2,096/2=<<2096/2=1048>>1048.\nSo $<<1048>>1,048.",
        "demonstration": "Half is 2,096/2=1048.\nSo $1,048.\n#### 1048",
    }
    assert gsm8k.parse({"question": "Q?", "answer": "#### -3.5"})["demonstration"] == "#### -3.5"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("It is 4.", "no gold answer: nothing after ####"),
        ("It is 4.\n####  ", "no gold answer: nothing after ####"),
        ("#### four", "gold does not parse: 'four' is not a number"),
        (None, "missing field: answer"),
        (4, "wrong type: answer is int, not text"),
    ],
)
def test_gsm8k_rows_without_gold(answer, reason: str) -> None:
    with pytest.raises(BadRow) as caught:
        gsm8k.parse({"question": "Q?", "answer": answer})
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        (r"First \boxed{1}, then $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"So $\boxed 7$.", "7"),
        (r"So \fbox{12}.", "12"),
    ],
)
def test_math_gold_is_the_last_box(solution: str, gold: str) -> None:
    parsed = math.parse({"problem": "P", "solution": solution, "level": "Level 3", "type": "Algebra"})
    assert (parsed["answer"], parsed["level"], parsed["subject"]) == (gold, 3, "Algebra")


def test_math_500_has_an_answer_column_and_whole_numbers_for_levels() -> None:
    row = {"problem": "P", "solution": r"\boxed{1}", "answer": " 2 ", "level": 5, "subject": "Geometry"}
    parsed = math.parse(row)
    assert (parsed["answer"], parsed["level"], parsed["subject"]) == ("2", 5, "Geometry")
    assert math.parse({**row, "level": "Level ?"})["level"] is None


def test_math_without_a_closed_box() -> None:
    with pytest.raises(BadRow, match=r"no gold answer: the solution has no closed \\boxed\{\}"):
        math.parse({"problem": "P", "solution": r"So \boxed{1 + "})


@pytest.mark.parametrize(
    ("target", "gold"),
    [
        *((43.0, "43"), (39, "39"), (0.72, "0.72"), (3.33333, "3.33333"), (-0.5, "-0.5"), (1e-7, "0.0000001")),
        (10**400, "1" + "0" * 400),
    ],
)
def test_mawps_gold_is_written_as_a_person_would(target, gold: str) -> None:
    assert mawps.parse({"input": "Q?", "target": target})["answer"] == gold


@pytest.mark.parametrize("target", [None, True, "7", float("nan"), float("inf"), [7]])
def test_mawps_target_that_is_no_number(target) -> None:
    with pytest.raises(BadRow, match="gold"):
        mawps.parse({"input": "Q?", "target": target})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"question": " \n\t"}, "empty: question"),
        ({"answer": ""}, "no gold answer"),
        ({"question": "a\x00b"}, r"control character: \x00 in question"),
        ({"solution": "a\x1bb"}, r"control character: \x1b in solution"),
        ({"question": "a\x85b"}, r"control character: \x85 in question"),
        ({"question": "a\ud800b"}, r"lone surrogate: \ud800 in question"),
        ({"demonstration": "caf\ufffd"}, r"mojibake: \ufffd in demonstration"),
        ({"question": "q" * 41}, "too long: question has 41 characters, allowed 40"),
        ({"answer": "123456"}, "too long: answer has 6 characters, allowed 5"),
        ({"solution": "s" * 161}, "too long: solution has 161 characters, allowed 160"),
        ({"id": "a\x00"}, r"control character: \x00 in id"),
    ],
)
def test_each_fault_of_a_text_has_its_reason(fields, reason: str) -> None:
    with pytest.raises(BadRow) as caught:
        check_texts({"question": "Q", "answer": "1", **fields}, LIMITS)
    assert str(caught.value) == reason


@given(st.sampled_from("é£½ñ’“”—€™привет😀×÷"), st.sampled_from(["cp1252", "latin-1"]))
def test_utf8_read_in_another_code_page_is_mojibake(character: str, page: str) -> None:
    text = f"a {character * 2} b"
    try:
        garbled = text.encode("utf-8").decode(page)
    except UnicodeDecodeError:  # five bytes mean nothing in Windows-1252
        return
    with pytest.raises(BadRow, match="mojibake|control character"):
        check_texts({"question": garbled, "answer": "1"}, LIMITS)


@pytest.mark.parametrize(
    "text",
    ["“Weiß”, São, Âge, £½ — 3×4÷2", "naïve café’s 5°", "привет ÐÑ", "tab\there\r\nnew\u2028\u200b line", "Ã, Ð; ð"],
)
def test_sound_text_of_many_kinds_passes(text: str) -> None:
    check_texts({"question": text, "answer": "1", "solution": None}, LIMITS)


def test_text_of_refuses_what_is_not_text() -> None:
    assert text_of({"a": ""}, "a") == ""
    with pytest.raises(BadRow, match="missing field: b"):
        text_of({"a": ""}, "b")


def test_the_report_counts_faults_and_shows_the_first_of_each_kind() -> None:
    quarantine = Quarantine()
    for number in range(3):
        quarantine.add(
            f"row-{number}", "train", "mojibake: \\ufffd in question", f'{{"question": "caf\ufffd {number}"}}'
        )
    quarantine.add("row-9", "test", "no gold answer: nothing after ####", "{}")
    for number in range(50):
        quarantine.add(f"again-{number}", "train", "repeated question: as row row-0", "{}")
    quarantine.enforce("mine", 40, 0.1, "there")  # 4 of 40: as many as allowed; repetitions are no faults
    with pytest.raises(JudgefreeError) as caught:
        quarantine.enforce("mine", 39, 0.1, "there")
    report = str(caught.value)
    assert report.startswith("mine: 4 of 39 rows are faulty (10.26%, allowed 10.00%)\n")
    assert "3  mojibake " in report and "row-0" in report and "row-1" not in report
    assert "1  no gold answer " in report and "repeated" not in report and "there" in report
    assert report.isascii()
    assert quarantine.counts("train") == {"mojibake": 3, "repeated question": 50}
