"""MAWPS: one- and two-step word problems, as a test split from the mirror, to measure transfer."""

import math
from decimal import Decimal
from typing import Any

from judgefree.config_data import MawpsData
from judgefree.data.rows import NO_GOLD, UNPARSED, BadRow, text_of
from judgefree.data.sources import Source, read_mirror


def load(settings: MawpsData) -> list[Source]:
    return [read_mirror("test", f"mawps/{settings.subset}", (f"mawps/{settings.subset}.jsonl",))]


def parse(fields: dict[str, Any]) -> dict[str, Any]:
    """The common form of a raw row; `target` is a number: 43.0 -> "43", 0.72 -> "0.72"."""
    target = fields.get("target")
    if target is None:
        raise BadRow(f"{NO_GOLD}: target is missing")
    if isinstance(target, bool) or not isinstance(target, int | float) or target != target or abs(target) == math.inf:
        raise BadRow(f"{UNPARSED}: target {str(target)[:40]!r} is not a number")
    # Decimal of repr: the shortest digits that name this float, never in exponent form.
    gold = str(int(target)) if target == int(target) else format(Decimal(repr(target)), "f")
    return {"question": text_of(fields, "input"), "answer": gold, "solution": None, "demonstration": None}
