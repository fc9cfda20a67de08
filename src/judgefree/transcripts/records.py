"""Which of a run's records a page shows: a readable number, spread evenly over its steps.

Records of a long run do not fit in memory, so short columns are read of all of them and texts of the chosen ones only.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from judgefree.errors import JudgefreeError

Row = Mapping[str, Any]
Key = tuple[int, str]  # step and prompt id: the rows of one game, or of one group of attempts
SHORT = ("step", "prompt_id", "role", "slot", "spy", "votes", "vote", "vote_kind", "verdict", "reward")
_PART = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


def parse_steps(text: str) -> list[range]:
    """Ranges of steps from `0-20,35`, both ends included; no range for an empty text. Raises JudgefreeError."""
    ranges = []
    for part in text.split(",") if text.strip() else []:
        found = _PART.fullmatch(part)
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise JudgefreeError(f"--steps: {part.strip()!r} names no steps", "write them like 0-20,35")
        ranges.append(range(int(found[1]), int(found[2] or found[1]) + 1))
    return ranges


def read_short(files: Sequence[Path], steps: Sequence[range]) -> dict[Key, list[Row]]:
    """Rows of short columns by key, in order of step and then as they were recorded; all steps where none is named."""
    rows = [
        row for file in files for row in _rows(file, SHORT) if not steps or any(row["step"] in one for one in steps)
    ]
    return group(sorted(rows, key=lambda row: row["step"]))


def read_whole(files: Sequence[Path], keys: Iterable[Key]) -> dict[Key, list[Row]]:
    """All columns of the rows with these keys, in the keys' order."""
    wanted = {key: None for key in keys}
    filters = [
        ("step", "in", sorted({step for step, _ in wanted})),
        ("prompt_id", "in", sorted({one for _, one in wanted})),
    ]
    rows = [row for file in files for row in _rows(file, None, filters) if (row["step"], row["prompt_id"]) in wanted]
    found = group(rows)
    return {key: found[key] for key in wanted}


def group(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["step"], row["prompt_id"]), []).append(row)
    return groups


def spread(keys: Iterable[Key], limit: int) -> list[Key]:
    """At most `limit` of the keys, in their order: one of every step, then a second of every step and so on; where not all
    of a step's turn fit, steps at even distances have theirs."""
    keys = list(keys)
    layers: dict[int, list[Key]] = {}
    seen: dict[int, int] = {}
    for key in keys:
        place = seen[key[0]] = seen.get(key[0], -1) + 1
        layers.setdefault(place, []).append(key)
    chosen: set[Key] = set()
    for place in sorted(layers):
        room = limit - len(chosen)
        chosen.update(layers[place][at] for at in _evenly(len(layers[place]), room))
    return [key for key in keys if key in chosen]


def _evenly(n: int, k: int) -> list[int]:
    """Indices of k out of n things at even distances, the first and the last among them; the middle one alone."""
    if k >= n:
        return list(range(n))
    return [n // 2] if k == 1 else [round(at * (n - 1) / (k - 1)) for at in range(k)]


def _rows(file: Path, columns: Sequence[str] | None, filters: list[Any] | None = None) -> list[dict[str, Any]]:
    known = pq.read_schema(file).names
    kept = [name for name in columns if name in known] if columns else None
    return list(pq.read_table(file, columns=kept, filters=filters).to_pylist())
