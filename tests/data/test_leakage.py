import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgefree.data.leakage import NearOverlap, near_overlaps, ngrams, overlaps, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tom has  3 apples.\nHow MANY?", "tom has 3 apples how many"),
        ("“It’s $1,250.50,” she said…", "it s 1250.50 she said"),
        ("3 + 4 - 2 = ?", "3 + 4 - 2 ="),
        ("3 − 4", "3 - 4"),
        ("x-y and twenty-five", "x - y and twenty five"),
        ("(1,2) is not 12", "( 1 2 ) is not 12"),
        (r"$\frac{1}{2}x_1^2$", r"\ frac { 1 } { 2 } x _ 1 ^ 2"),
        ("ＦＵＬＬ width", "full width"),
        (".5 or 0.5", ".5 or 0.5"),
        ("?!", "!"),
        (" \n ", ""),
    ],
)
def test_tokens(text: str, expected: str) -> None:
    assert tokens(text) == tuple(expected.split())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 + 4 - 2", "3 - 4 + 2"),
        ("What is .5 + 1?", "What is 5 + 1?"),
        ("(2+3)*4", "2+3*4"),
        ("He has 35", "He has 3.5"),
        ("5! + 1", "5 + 1"),
        ("x-y", "xy"),
        ("12,345", "12345,"),
    ],
)
def test_different_questions_have_different_tokens_but_for_commas(one: str, other: str) -> None:
    assert (tokens(one) == tokens(other)) == (one == "12,345")


@given(st.text(max_size=60))
def test_tokens_do_not_see_case_of_ascii_spacing_or_a_closing_mark(text: str) -> None:
    spaced = text.replace(" ", "\n  ").translate(str.maketrans(string.ascii_lowercase, string.ascii_uppercase))
    assert tokens(spaced + " ?") == tokens(text)


def test_overlaps_names_the_first_equal_test_question() -> None:
    train, test = [("a",), ("b", "c"), ("d",)], [("d",), ("b", "c"), ("d",)]
    assert overlaps(train, test) == {1: 1, 2: 0}


def test_ngrams() -> None:
    assert ngrams(("a", "b", "a", "b"), 2) == {("a", "b"), ("b", "a")}
    assert ngrams(("a",), 2) == set()


def test_share_counts_distinct_ngrams_of_the_test_question() -> None:
    # 15 words have three 13-grams; the training row holds the first two of them.
    question = tuple("abcdefghijklmno")
    row = ("so", *question[:14], "but", "no")
    assert near_overlaps([row], [question], 13, 0.5) == [NearOverlap(0, 0, 2 / 3)]
    assert near_overlaps([row], [question], 13, 0.67) == []


def test_a_short_question_inside_a_long_row_is_found_and_its_parts_are_not() -> None:
    question = tokens("How many legs do seven spiders have?")
    inside = tokens(
        "Here is a riddle. How many legs do seven spiders have? Think about it, and then count all the shoes."
    )
    apart = tokens("How many legs do seven big spiders have?")
    assert near_overlaps([apart, inside], [question, ()], 13, 0.5) == [NearOverlap(1, 0, 1.0)]


def contains(row: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return any(row[i : i + len(part)] == part for i in range(len(row) - len(part) + 1))


def brute_force(train: list[tuple], test: list[tuple], n: int, share: float) -> list[NearOverlap]:
    """The definition, pair by pair and n-gram by n-gram."""
    found = []
    for i, row in enumerate(train):
        for j, question in enumerate(test):
            if not question:
                continue
            size = min(n, len(question))
            parts = {question[k : k + size] for k in range(len(question) - size + 1)}
            held = sum(contains(row, part) for part in parts)
            if held and held / len(parts) >= share:
                found.append(NearOverlap(i, j, held / len(parts)))
    return found


QUESTIONS = st.lists(st.text(alphabet="abc", max_size=9).map(tuple), max_size=6)


@settings(max_examples=300)
@given(QUESTIONS, QUESTIONS, st.integers(1, 5), st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 1.0]))
def test_near_overlaps_agrees_with_the_definition(train, test, n, share) -> None:
    assert near_overlaps(train, test, n, share) == brute_force(train, test, n, share)


@given(QUESTIONS, QUESTIONS)
def test_overlaps_agrees_with_the_definition(train, test) -> None:
    assert overlaps(train, test) == {i: test.index(row) for i, row in enumerate(train) if row in test}
