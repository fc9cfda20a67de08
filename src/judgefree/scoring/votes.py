"""A vote as it stands in a detector's own completion: nothing else is ever read, so no player can vote for another.

The vote is the last closed `\\boxed{...}` outside of thought (thought.py); an unclosed box, or a guess in words, is none. Of
a completion that was cut off for its length it counts only as its very end: what was cut may have been the vote.

    vote          a whole number of 1 to n; passed over: a word before it (`Player 3`), `#`, `\\text{}`, `$`, a full stop
    na            `N/A` or `NA` in any case: the detector abstains
    missing       no closed box outside of thought, or none at the end of what was cut off
    invalid       anything else in the box, no content, two numbers, or a sign included
    out_of_range  a whole number that is no player's

Only `vote` is counted as received by anyone. Time is linear in the text.
"""

import re
from dataclasses import dataclass
from typing import Literal

from judgefree.scoring.answers import last_box
from judgefree.scoring.thought import split_thought

VoteKind = Literal["vote", "na", "missing", "invalid", "out_of_range"]

_WRAPPED = re.compile(r"\\text[a-z]{0,2}\s*\{([^{}]*)\}")
_NUMBER = re.compile(r"(?:[A-Za-z]{1,20}\s*)?#?\s*([0-9]+)")
_NA = re.compile(r"n\s*/\s*a|na", re.IGNORECASE)
_LONGEST = 1000  # characters of a box that may be a vote


@dataclass(frozen=True)
class Vote:
    """number: from 1, of a vote only."""

    kind: VoteKind
    number: int | None = None


def read_vote(text: str, players: int, cut: bool = False) -> Vote:
    """The vote in a detector's completion (rules: top of this file). cut: it was cut off for its length."""
    said = split_thought(text)[1]
    box = last_box(said)
    if box is None or (cut and said[box[1] + 1 :].strip()):
        return Vote("missing")
    content = said[slice(*box)].strip()
    if len(content) > _LONGEST:
        return Vote("invalid")
    bare = _WRAPPED.sub(r"\1", content).strip(" \t\n\r$.*")
    if _NA.fullmatch(bare):
        return Vote("na")
    found = _NUMBER.fullmatch(bare)
    if found is None:
        return Vote("invalid")
    number = int(found[1])
    return Vote("vote", number) if 1 <= number <= players else Vote("out_of_range")
