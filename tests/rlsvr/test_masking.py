"""Information loss: properties for any text, and spans by hand."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.errors import JudgefreeError
from judgefree.rlsvr.masking import mask

SHARES = st.floats(0.001, 1.0)
DRAWS = st.integers(0, 2**63 - 1)


@given(st.text(min_size=1, max_size=200), SHARES, DRAWS)
def test_hidden_characters(source: str, share: float, draw: int) -> None:
    one = mask(source, "characters", share, draw)
    hidden = one.end - one.start
    assert hidden == max(1, round(share * len(source))) <= len(source)
    assert one.text == source[: one.start] + "*" * hidden + source[one.end :]
    assert len(one.text) == len(source) and one.ratio == hidden / len(source)
    assert hidden == 1 or abs(one.ratio - share) <= 0.5 / len(source) + 1e-12


@given(st.text(min_size=1, max_size=200).filter(lambda text: text.split()), SHARES, DRAWS)
def test_hidden_words(source: str, share: float, draw: int) -> None:
    one = mask(source, "words", share, draw)
    words, left = re.findall(r"\S+", source), re.findall(r"\S+", one.text)
    hidden = max(1, round(share * len(words)))
    first = len(re.findall(r"\S+", source[: one.start]))
    assert left == words[:first] + ["*"] * hidden + words[first + hidden :] and one.ratio == hidden / len(words)
    assert re.findall(r"\s+", one.text) == re.findall(r"\s+", source)  # the blanks stay
    assert re.findall(r"\S+", source[one.start : one.end]) == words[first : first + hidden]


def test_by_hand() -> None:
    assert mask("abcdefghij", "characters", 0.3, 4) == mask("abcdefghij", "characters", 0.3, 12)  # 8 starts: 12 % 8
    one = mask("abcdefghij", "characters", 0.3, 4)
    assert (one.text, one.start, one.end, one.ratio) == ("abcd***hij", 4, 7, 0.3)
    one = mask("  the  old\nhouse fell. ", "words", 0.5, 1)
    assert (one.text, one.start, one.end, one.ratio) == ("  the  *\n* fell. ", 7, 16, 0.5)
    assert mask("ab", "characters", 0.01, 1).text == "a*"  # at least one
    assert mask("one two", "words", 1.0, 9).text == "* *"
    assert mask("né🙂x", "characters", 0.5, 1).text == "n**x"  # code points, never their bytes


def test_every_start_is_equally_likely() -> None:
    starts = Counter(mask("abcde", "characters", 0.4, draw).start for draw in range(400))
    assert starts == dict.fromkeys(range(4), 100)


@pytest.mark.parametrize(("source", "unit"), [("", "characters"), ("", "words"), (" \n\t", "words")])
def test_a_source_without_units_is_refused(source: str, unit: str) -> None:
    with pytest.raises(JudgefreeError, match=f"holds no {unit}"):
        mask(source, unit, 0.2, 0)  # type: ignore[arg-type]
