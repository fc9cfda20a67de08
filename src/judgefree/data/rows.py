"""The common form of a row, and what makes a row unfit by itself: a missing, empty, garbled or over-long text."""

import re
from dataclasses import dataclass
from typing import Any

from judgefree.config_data import Quality
from judgefree.config_texts import TextQuality
from judgefree.data.leakage import Tokens

NO_GOLD, UNPARSED = "no gold answer", "gold does not parse"

# A worked solution is longer than its question, and no setting bounds it; this only keeps out what is no solution.
SOLUTION_FACTOR = 4

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
SURROGATE = re.compile(r"[\ud800-\udfff]")
# UTF-8 read as Windows-1252 or Latin-1: a lead byte as a letter, then continuation bytes as that code page shows them.
# Only the leads of Latin, Cyrillic, typographic marks and emoji, so that a quotation mark after a German sz stays.
_WINDOWS = "".join(bytes([byte]).decode("cp1252", errors="ignore") for byte in range(0x80, 0xC0))
_TAIL = f"[{re.escape(_WINDOWS)}\x80-\xbf]"
MOJIBAKE = re.compile(f"\ufffd|[ÂÃ]{_TAIL}|(?:[ÐÑ]{_TAIL}){{2}}|â{_TAIL}{{2}}|ð{_TAIL}{{3}}")


class BadRow(Exception):
    """A row that fails a check; the text is the reason, `code` or `code: detail`."""


@dataclass(frozen=True)
class Row:
    """A row in the common form, with its question's tokens (of a long source, a digest of them) and the raw text that it
    came from. cut: whitespace tokens that the question has lost."""

    id: str
    split: str
    question: str
    answer: str | None
    solution: str | None
    demonstration: str | None
    source: str
    level: int | None
    subject: str | None
    words: Tokens
    raw: str
    cut: int = 0


def text_of(fields: dict[str, Any], name: str) -> str:
    """The text in a field. Raises BadRow when it is missing or of another type."""
    if fields.get(name) is None:
        raise BadRow(f"missing field: {name}")
    if not isinstance(fields[name], str):
        raise BadRow(f"wrong type: {name} is {type(fields[name]).__name__}, not text")
    return fields[name]


def check_texts(parsed: dict[str, Any], limits: Quality | TextQuality) -> None:
    """Raise BadRow for an empty, garbled or over-long text in a row of the common form."""
    longest = {"question": limits.max_question_chars, "answer": limits.max_answer_chars}
    for name in ("id", "question", "answer", "solution", "demonstration", "subject"):
        text = parsed.get(name)
        if text is None:
            continue
        if not text.strip():
            raise BadRow(NO_GOLD if name == "answer" else f"empty: {name}")
        limit = longest.get(name, SOLUTION_FACTOR * limits.max_question_chars)
        if len(text) > limit:
            raise BadRow(f"too long: {name} has {len(text)} characters, allowed {limit}")
        for kind, pattern in (("control character", CONTROL), ("lone surrogate", SURROGATE), ("mojibake", MOJIBAKE)):
            if found := pattern.search(text):
                raise BadRow(f"{kind}: {found.group().encode('unicode_escape').decode()} in {name}")
