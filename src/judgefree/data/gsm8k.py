r"""GSM8K (openai/gsm8k, configuration main): grade-school word problems; the gold answer stands after `####`.

The hub gives a training and a test file; a validation split is held out of training as in SRRL (473 rows in its paper).
Calculator annotations `<<48/2=24>>` stay in `solution` and are removed from `demonstration`, which ends in `#### N`.
"""

import re
from pathlib import Path
from typing import Any

from judgefree.config_data import Gsm8kData
from judgefree.data.rows import NO_GOLD, UNPARSED, BadRow, text_of
from judgefree.data.sources import Source, read

MARKER = "####"
ANNOTATION = re.compile(r"<<[^<>\n]*>>")
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def load(settings: Gsm8kData, root: Path) -> list[Source]:
    return [
        read(
            split,
            f"gsm8k/{split}",
            (settings.id, settings.revision),
            (f"main/{split}-*.parquet", f"{split}.jsonl"),
            (f"gsm8k/{split}.jsonl",),
            root,
        )
        for split in ("train", "test")
    ]


def parse(fields: dict[str, Any]) -> dict[str, Any]:
    """The common form of a raw row. Raises BadRow when the answer does not end in `#### N`."""
    reasoning, marker, gold = text_of(fields, "answer").rpartition(MARKER)
    gold = gold.strip().replace(",", "")
    if not marker or not gold:
        raise BadRow(f"{NO_GOLD}: nothing after {MARKER}")
    if not NUMBER.fullmatch(gold):
        raise BadRow(f"{UNPARSED}: {gold!r} is not a number")
    steps = ANNOTATION.sub("", reasoning).strip()
    return {
        "question": text_of(fields, "question"),
        "answer": gold,
        "solution": reasoning.strip() or None,
        "demonstration": f"{steps}\n{MARKER} {gold}".lstrip(),
    }
