"""Rows that may not be used: why, what they were, and how many are too many.

Nothing is lost and nothing crashes: a row that fails any check goes to quarantine.parquet with its reason, whose part
before the colon is a code of a small closed list. Faults of a row count against `max_quarantined_share`. What is merely
in the wrong place (DISPLACED: repeated training questions, overlap between splits) does not: such rows are sound, and
how many there are says something of the benchmark, not of the file.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from judgefree.data.rows import Row
from judgefree.errors import JudgefreeError

REPEATED, OVERLAP, NEAR = "repeated question", "overlap", "near overlap"
DISPLACED = frozenset({REPEATED, OVERLAP, NEAR})
SCHEMA = pa.schema([(name, pa.string()) for name in ("row_id", "split", "reason", "raw")])


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


def records(entries: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Entries in a fixed order: by split, then row id, then reason."""
    return sorted(entries, key=lambda entry: (entry["split"], entry["row_id"], entry["reason"]))
