"""What is done to data whose answers are texts: one spelling of spaces, a length in words, and a source only once.

A word is a whitespace token everywhere here: it needs no model's tokenizer, so a prepared set serves any of them. A source
that is too long is cut to its first words, which the row (`cut_tokens`) and the manifest tell; a reference is never cut.
"""

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from judgefree.config_texts import TextKinds, TextQuality
from judgefree.data import quarantine
from judgefree.data.leakage import Tokens
from judgefree.data.quarantine import Quarantine
from judgefree.data.rows import BadRow, Row

UNIT = "whitespace tokens"
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")  # soft hyphen, zero widths, byte order mark
_LINE_END = re.compile("\r\n?|\u2028|\u2029")
_SPACES = re.compile(r"[^\S\n\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")  # control characters stay to be found
_BLANK_LINES = re.compile(r"\n{3,}")


def clean(text: str) -> str:
    """The text in composed Unicode, without invisible characters; single spaces, no space around line ends, at most one
    empty line in a row."""
    text = _INVISIBLE.sub("", unicodedata.normalize("NFC", text))
    lines = _SPACES.sub(" ", _LINE_END.sub("\n", text)).split("\n")
    return _BLANK_LINES.sub("\n\n", "\n".join(line.strip(" ") for line in lines)).strip("\n")


def shortened(text: str, most: int) -> tuple[str, int]:
    """The first `most` words with what stands between them, and how many words were cut off."""
    ends = [word.end() for word in re.finditer(r"\S+", text)]
    return (text[: ends[most - 1]], len(ends) - most) if len(ends) > most else (text, 0)


def common(source: str, reference: str | None, most: int) -> dict[str, Any]:
    """The columns of the common form; the source cut to `most` words. Raises BadRow for a source without any."""
    if not source:
        raise BadRow("empty: question")
    question, cut = shortened(source, most)
    return {"question": question, "answer": reference, "solution": None, "demonstration": None, "cut": cut}


def check_length(question: str, limits: TextQuality) -> None:
    """Raises BadRow for a source of too few words."""
    if (count := len(question.split())) < limits.min_question_words:
        raise BadRow(f"too short: question has {count} words, at least {limits.min_question_words} are needed")


def identity(words: Tokens) -> Tokens:
    """A digest in place of the tokens: sources are compared for equality only, and reports have thousands of words."""
    return (hashlib.sha256("\x1f".join(words).encode("utf-8", errors="backslashreplace")).hexdigest(),)


def unrepeated(rows: list[Row], refused: Quarantine) -> list[Row]:
    """The first row of every source. A test split keeps its repetitions: they are part of the published benchmark."""
    first: dict[Tokens, Row] = {}
    kept = []
    for row in rows:
        if (other := first.setdefault(row.words, row)) is not row and row.split != "test":
            refused.take(row, f"{quarantine.REPEATED}: as row {other.id}")
        else:
            kept.append(row)
    return kept


def lengths(row: Row) -> dict[str, int | None]:
    """The columns that only data sets of texts have."""
    answer = None if row.answer is None else len(row.answer.split())
    return {"question_tokens": len(row.question.split()), "answer_tokens": answer, "cut_tokens": row.cut}


def facts(settings: TextKinds, splits: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """What the manifest says of lengths: the unit, the longest source, and how many sources of each split were cut."""
    most = getattr(settings, "max_source_words", None)
    truncated = {split: sum(row.cut > 0 for row in rows) for split, rows in splits.items()}
    return {"token_lengths": UNIT, "truncation": {"unit": UNIT, "max_source_words": most, "truncated_rows": truncated}}
