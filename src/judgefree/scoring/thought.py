"""Thought and what is said after it: nobody but the reader of a record sees thought.

Thought is what <think> ... </think> encloses, all before a </think> that is the completion's first tag (the prompt opened
it), and all of a completion that begins with a <think> which never closes. Any other single tag is text: a detector may
quote it from an output. Time is linear in the text.
"""

import re

_THINK = re.compile(r"</?think>")


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
