"""Rows that may not be used: why, what they were, and how many are too many.

Nothing is lost and nothing crashes: a row that fails any check goes to quarantine.parquet with its reason, whose part
before the colon is a code of a small closed list. Faults of a row count against `max_quarantined_share`. What is merely
in the wrong place (DISPLACED: repeated training questions, overlap between splits) does not: such rows are sound, and
how many there are says something of the benchmark, not of the file.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from judgefree.config import Quality
from judgefree.errors import JudgefreeError

REPEATED, OVERLAP, NEAR = "repeated question", "overlap", "near overlap"
DISPLACED = frozenset({REPEATED, OVERLAP, NEAR})
NO_GOLD, UNPARSED = "no gold answer", "gold does not parse"
SCHEMA = pa.schema([(name, pa.string()) for name in ("row_id", "split", "reason", "raw")])

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
    """A row in the common form, with the raw text that it came from."""

    id: str
    split: str
    question: str
    answer: str
    solution: str | None
    demonstration: str | None
    source: str
    level: int | None
    subject: str | None
    raw: str


@dataclass
class Quarantine:
    """Collects refused rows in the order in which they are refused."""

    entries: list[dict[str, str]] = field(default_factory=list)

    def add(self, row_id: str, split: str, reason: str, raw: str) -> None:
        safe = reason.encode("utf-8", errors="backslashreplace").decode("utf-8")
        self.entries.append({"row_id": row_id, "split": split, "reason": safe, "raw": raw})

    def take(self, row: Row, reason: str) -> None:
        self.add(row.id, row.split, reason, row.raw)

    def counts(self, split: str | None = None) -> dict[str, int]:
        """Rows by reason code, of one split or of all."""
        found = Counter(code(entry) for entry in self.entries if split in (None, entry["split"]))
        return dict(sorted(found.items()))

    def enforce(self, name: str, total: int, limit: float, kept_in: str) -> None:
        """Raise JudgefreeError with a report when faulty rows are more than `limit` of all `total` rows read."""
        bad = [entry for entry in self.entries if code(entry) not in DISPLACED]
        if len(bad) <= limit * total:
            return
        lines = [f"{name}: {len(bad)} of {total} rows are faulty ({len(bad) / total:.2%}, allowed {limit:.2%})"]
        for reason, count in Counter(code(entry) for entry in bad).most_common():
            first = next(entry for entry in bad if code(entry) == reason)
            lines.append(f"    {count:6d}  {reason:24s} e.g. {first['row_id']}: {ascii(first['raw'][:80])}")
            lines.append(f"{'':12s}{ascii(first['reason'][:160])[1:-1]}")
        raise JudgefreeError(
            "\n".join(lines),
            f"all of them are in {kept_in}; mend the source, or raise data.{name}.quality.max_quarantined_share",
        )


def code(entry: dict[str, str]) -> str:
    return entry["reason"].split(":", 1)[0]


def text_of(fields: dict[str, Any], name: str) -> str:
    """The text in a field. Raises BadRow when it is missing or of another type."""
    if fields.get(name) is None:
        raise BadRow(f"missing field: {name}")
    if not isinstance(fields[name], str):
        raise BadRow(f"wrong type: {name} is {type(fields[name]).__name__}, not text")
    return fields[name]


def check_texts(parsed: dict[str, Any], limits: Quality) -> None:
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


def records(entries: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Entries in a fixed order: by split, then row id, then reason."""
    return sorted(entries, key=lambda entry: (entry["split"], entry["row_id"], entry["reason"]))
