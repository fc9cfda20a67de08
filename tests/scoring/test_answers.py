import itertools
import random
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.episodes import Completion
from judgefree.scoring.answers import MAX_ANSWER_CHARS, canonical_key, extract, final_answer, public_text

TABLE = [
    [part.strip() for part in line.split(";;")]
    for line in (Path(__file__).parent / "verdicts.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(
    ("where", "text", "expected"),
    [
        ("boxed", r"so \boxed{840}, final \boxed{840}", "840"),
        ("boxed", r"\boxed{1} then \boxed{ 2 }", "2"),
        ("boxed", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("boxed", r"\boxed{\{1,2\}}", r"\{1,2\}"),
        ("boxed", r"\boxed {5}", "5"),
        ("boxed", r"a set { and \boxed{5}", "5"),
        ("boxed", r"} stray } \boxed{5} }", "5"),
        ("boxed", r"\boxed{\boxed{5}}", "5"),
        ("boxed", r"first \boxed{3}, no: \boxed{4", None),
        ("boxed", r"\boxed{3", None),
        ("boxed", r"\boxed{3} and \boxed{}", None),
        ("boxed", r"the answer is 3", None),
        ("boxed", r"<think>maybe 7, or 8", None),
        ("boxed", "", None),
        ("boxed", "\\boxed{5}\n\nQuestion: what is 2+2?\nIt is \\boxed{4}", "5"),
        ("boxed", "Problem: what is 2+3?\nIt is \\boxed{5}", "5"),
        ("boxed", "\\boxed{5}\n\n**Problem 2:** and 2+2?\nIt is \\boxed{4", "5"),
        ("boxed", "\\boxed{5} is the solution to the problem: check \\boxed{6}", "6"),
        ("tag", "<answer>5</answer>", "5"),
        ("tag", "<answer>5</answer> no, <answer> 6\n</answer>", "6"),
        ("tag", "<answer>5</answer> no, <answer>6", None),
        ("tag", "5</answer>", None),
        ("tag", "<answer>", None),
        ("tag", "<answer> <answer>5</answer>", "5"),
        ("tag", "<answer></answer>", None),
        ("tag", "<answer>5</answer>\nUser: next\n<answer>9</answer>", "5"),
        ("marker", "1+1=2\n#### 2", "2"),
        ("marker", "#### -3", "-3"),
        ("marker", "#### 2\n#### 3\n", "3"),
        ("marker", "#### 12 apples\nand so on", "12 apples"),
        ("marker", "####", None),
        ("marker", "#### 2\n####\n", None),
        ("marker", "the answer is 2", None),
        ("marker", "#### 2\n\nQuestion: 3+4?\n#### 7", "2"),
        ("marker", "#### 2\nQ2: 3+4?\n#### 7", "2"),
    ],
)
def test_extract(where, text, expected):
    assert extract(text, where) == expected


@pytest.mark.parametrize(
    ("where", "text", "cut", "ended"),
    [
        ("marker", "1+1=2\n#### 12", None, "12"),
        ("marker", "#### 12 ", None, "12"),
        ("marker", "#### 3\n#### 12", None, "12"),
        ("marker", "####", None, None),
        ("marker", "#### 12\n", "12", "12"),
        ("marker", "#### 12\nand so on", "12", "12"),
        ("marker", "#### 2\nQ2: 3+4?\n#### 7", "2", "2"),
        ("boxed", r"so \boxed{12}", "12", "12"),
        ("tag", "<answer>12</answer>", "12", "12"),
        ("tag", "<answer>12", None, None),
    ],
)
def test_an_answer_that_is_cut_off_is_none(where, text, cut, ended):
    assert final_answer(Completion([], text, "length"), where) == cut
    assert final_answer(Completion([], text, "stop"), where) == ended == extract(text, where)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 1000,
        "x" * 100_000,
        " " * 100_000,
        "\n" * 100_000,
        "\\" * 100_001,
        "#" * 100_000,
        r"\boxed{" * 10_000,
        r"\boxed{1}" * 10_000,
        r"\boxed{" * 10_000 + "}" * 10_000,
        "<answer>" * 10_000,
        "<answer>1</answer>" * 10_000,
        "#### 1\n" * 10_000,
        "#### 1\n" + ("####" + " " * 5_000) * 20,
        "\\boxed{1}\n" + "question" * 10_000,
    ],
)
def test_degenerate_texts_are_quick(text):
    start = time.perf_counter()
    for where in ("boxed", "tag", "marker"):
        answer = extract(text, where)
        assert answer is None or canonical_key(answer) in ("1", None) or set(answer) == {"#"}
    canonical_key(text[:MAX_ANSWER_CHARS])
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("tail", ["", "=", "7", ")"])
def test_keys_of_the_longest_answers_are_quick(tail):
    pieces = [
        "x",
        "abcd",
        "abcd ",
        "ab,",
        "ab cd ",
        "1",
        "1,000,",
        "1.",
        "'a",
        "(a ",
        r"\text{a} ",
        r"^\circ ",
        "abcd = ",
        "1/2 ",
    ]
    for piece in pieces:
        start = time.process_time()
        canonical_key((piece * MAX_ANSWER_CHARS)[: MAX_ANSWER_CHARS - 1] + tail)
        assert time.process_time() - start < 0.5, piece


@given(st.text(alphabet=st.sampled_from("\\boxedfracsqrt{}()[],^_+-*/0123456789.xyπ√ \"'~%$&!=<>|\0"), max_size=200))
def test_any_text_has_a_key_or_none_and_never_raises(text):
    key = canonical_key(text)
    assert key is None or key


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        ("7", "7"),
        ("-0.50", "-1/2"),
        ("1,234", "1234"),
        (r"\frac{\sqrt{3}}{3}", "1/3*sqrt(3)"),
        ("1+2k", "1+2*k"),
        (r"(3,\frac{\pi}{2}]", "(3,1/2*pi]"),
        ("1, -2", "{-2,1}"),
        (r"\text{Evelyn}", '"evelyn"'),
        (r"52_{8}", "~52_8"),
        (r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}", "[[1,0],[0,1]]"),
        (r"(0,9) \cup (9,36)", "(0,9) U (9,36)"),
        ("5^(5^(5^(5^5)))", "~5^(5^(5^(5^5)))"),
        ("", None),
        (" .$ ", None),
        ("1" * (MAX_ANSWER_CHARS + 1), None),
    ],
)
def test_spelling_of_keys(answer, key):
    assert canonical_key(answer) == key


def test_keys_never_join_answers_that_the_table_calls_unequal():
    unequal = [(gold, answer) for gold, answer, verdict in TABLE if verdict == "wrong"]
    assert len(unequal) >= 100
    assert [pair for pair in unequal if canonical_key(pair[0]) == canonical_key(pair[1])] == []


def test_keys_join_most_answers_that_the_table_calls_equal():
    equal = [(gold, answer) for gold, answer, verdict in TABLE if verdict == "correct"]
    joined = sum(canonical_key(gold) == canonical_key(answer) for gold, answer in equal)
    assert joined / len(equal) > 0.85


def _spellings(value: Fraction) -> list[str]:
    p, q = value.numerator, value.denominator
    forms = [
        f"{p}/{q}",
        rf"\frac{{{p}}}{{{q}}}",
        rf"$\dfrac{{{3 * p}}}{{{3 * q}}}$",
        rf"{p}/{q}\%",
        rf"\left({p}/{q}\right).",
    ]
    if q in (1, 2, 4, 5, 8, 10, 20, 25):
        decimal = f"{float(value):.3f}"
        forms += [decimal, f"\\${decimal}00", decimal.replace("-", "\u2212"), f"{decimal} apples"]
    if q == 1:
        forms += [str(p), f"{p:,}", f"{p:,}".replace(",", r",\!"), rf"\text{{{p}}}", f"**{p}**", f"{p}^\\circ"]
    return forms


_RATIONALS = st.builds(
    Fraction, st.integers(-(10**7), 10**7), st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8, 10, 20, 25, 1000])
)


@given(_RATIONALS)
def test_all_spellings_of_a_number_share_its_key(value):
    assert {canonical_key(form) for form in _spellings(value)} == {str(value)}


@given(_RATIONALS, _RATIONALS)
def test_numbers_share_a_key_exactly_when_they_are_equal(a, b):
    for x, y in zip(_spellings(a), _spellings(b), strict=False):
        assert (canonical_key(x) == canonical_key(y)) == (a == b)


def test_having_the_same_key_is_an_equivalence_that_does_not_depend_on_order():
    answers = [answer for gold, answer, _ in TABLE for answer in (gold, answer) if canonical_key(answer)]

    def clusters(items):
        """Greedy one-by-one clustering with the pairwise relation: well-defined only if it is an equivalence."""
        found: list[list[str]] = []
        for item in items:
            for cluster in found:
                if canonical_key(item) == canonical_key(cluster[-1]):
                    cluster.append(item)
                    break
            else:
                found.append([item])
        return {frozenset(cluster) for cluster in found}

    expected = clusters(answers)
    assert 50 < len(expected) < len(set(answers))
    for seed in range(5):
        assert clusters(random.Random(seed).sample(answers, len(answers))) == expected
    for cluster in expected:
        assert all(canonical_key(a) == canonical_key(b) for a, b in itertools.permutations(cluster, 2))


@pytest.mark.parametrize(
    ("text", "line", "whole"),
    [
        ("I think.\nAnswer: two\nlines", "two\nlines", "I think.\nAnswer: two\nlines"),
        ("Answer:\nfirst\nAnswer: again", "first\nAnswer: again", "Answer:\nfirst\nAnswer: again"),
        ("  ANSWER: loud", "loud", "ANSWER: loud"),
        ("the Answer: is inside a line", None, "the Answer: is inside a line"),
        ("Answer:  \n ", None, "Answer:"),
        (" \n", None, None),
    ],
)
def test_texts(text: str, line: str | None, whole: str | None) -> None:
    assert extract(text, "line") == line
    assert extract(text, "whole") == whole
    cut = Completion(ids=[1], text=text, finish_reason="length")
    assert (final_answer(cut, "line"), final_answer(cut, "whole")) == (line, whole)


@pytest.mark.parametrize(
    ("text", "line", "whole"),
    [
        ("<think>Answer: draft</think>Answer: final", "final", "Answer: final"),
        ("a thought</think>\nAnswer: final", "final", "Answer: final"),
        ("<think>Answer: never ends", None, None),
    ],
)
def test_texts_are_read_without_thought(text: str, line: str | None, whole: str | None) -> None:
    assert (extract(text, "line"), extract(text, "whole")) == (line, whole)


def test_the_public_box_is_the_last_outermost_one_in_linear_time() -> None:
    for text, found in (("\\boxed{a} \\boxed{b \\boxed{5}} \\boxed{", "b \\boxed{5}"), ("\\boxed{3}" * 11_000, "3"),
                        ("\\boxed{" * 12_000, None), ("\\boxed{" * 9_000 + "}" * 9_000, None)):  # fmt: skip
        started = time.process_time()
        public = public_text(Completion([1], text, "stop"), "boxed")
        assert time.process_time() - started < 1.0
        assert public == found or (found is None and (public is None or public.startswith("\\boxed{")))
