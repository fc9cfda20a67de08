"""Information loss g(x): one contiguous span of a text that somebody does not see (SpyRL).

Units are characters (code points: none is ever cut) or words (runs without whitespace). A hidden character becomes a
star, whitespace in the span included, so the text keeps its length; a hidden word becomes one star, and the whitespace
between words stays.
"""

import re
from dataclasses import dataclass
from typing import Literal

from judgefree.errors import JudgefreeError

STAR = "*"
Unit = Literal["characters", "words"]
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Masked:
    """text: with its span hidden. start, end: the span in characters of the source. ratio: hidden units over all units."""

    text: str
    start: int
    end: int
    ratio: float


def mask(source: str, unit: Unit, share: float, draw: int) -> Masked:
    """Hides max(1, round(share * units)) units of the source, from a start that `draw`, any large whole number, picks among
    all that fit (paper: uniformly).

    Raises JudgefreeError for a source without a unit.
    """
    pieces = [found.span() for found in _WORD.finditer(source)] if unit == "words" else None
    total = len(source) if pieces is None else len(pieces)
    if total == 0:
        raise JudgefreeError(
            f"information loss: a source holds no {unit}, so nothing can be hidden", "leave empty rows out of the data"
        )
    hidden = min(total, max(1, round(share * total)))
    first = draw % (total - hidden + 1)
    start, end = first, first + hidden
    if pieces is not None:
        start, end = pieces[first][0], pieces[first + hidden - 1][1]
    covered = STAR * hidden if pieces is None else _WORD.sub(STAR, source[start:end])
    return Masked(source[:start] + covered + source[end:], start, end, hidden / total)
