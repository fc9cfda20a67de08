"""A vote as it stands in a detector's own completion: nothing else is ever read, so no player can vote for another.

The vote is the last closed `\\boxed{...}` outside of thought; an unclosed box, or a guess in words, is none. Thought is what
<think> ... </think> encloses, all before a </think> that is the completion's first tag (the prompt opened it), and all of a
completion that begins with a <think> which never closes. Any other single tag is text: a detector may quote it from an
output.

    vote          a whole number of 1 to n; passed over: a word before it (`Player 3`), `#`, `\\text{}`, `$`, a full stop
    na            `N/A` or `NA` in any case: the detector abstains
    missing       no closed box outside of thought
    invalid       anything else in the box, no content, two numbers, or a sign included
    out_of_range  a whole number that is no player's

Only `vote` is counted as received by anyone. Time is linear in the text.
"""

import re
from dataclasses import dataclass
from typing import Literal

from judgefree.scoring.answers import last_box

VoteKind = Literal["vote", "na", "missing", "invalid", "out_of_range"]

_THINK = re.compile(r"</?think>")
_WRAPPED = re.compile(r"\\text[a-z]{0,2}\s*\{([^{}]*)\}")
_NUMBER = re.compile(r"(?:[A-Za-z]{1,20}\s*)?#?\s*([0-9]+)")
_NA = re.compile(r"n\s*/\s*a|na", re.IGNORECASE)
_LONGEST = 1000  # characters of a box that may be a vote


@dataclass(frozen=True)
class Vote:
    """number: from 1, of a vote only."""

    kind: VoteKind
    number: int | None = None


def read_vote(text: str, players: int) -> Vote:
    """The vote in a detector's completion (rules: top of this file)."""
    content = last_box(split_thought(text)[1])
    if content is None:
        return Vote("missing")
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


def split_thought(text: str) -> tuple[str, str]:
    """A completion's thought and the rest, the pieces of each on lines of their own (so that they cannot make a box)."""
    thought: list[str] = []
    rest: list[str] = []
    start, opened = 0, -1  # where the piece begins, and where a <think> was opened in it
    for tag in _THINK.finditer(text):
        if tag[0] == "<think>":
            opened = tag.start() if opened < 0 else opened
            continue
        if opened < 0 and start > 0:
            continue
        if opened < 0:  # the prompt opened it
            thought.append(text[: tag.start()])
        else:
            rest.append(text[start:opened])
            thought.append(text[opened + len("<think>") : tag.start()])
        start, opened = tag.end(), -1
    if opened >= 0 and not "".join([*rest, text[start:opened]]).strip():
        return "\n".join([*thought, text[opened + len("<think>") :]]), ""
    return "\n".join(thought), "\n".join([*rest, text[start:]])
