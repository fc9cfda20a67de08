r"""MATH for training (EleutherAI/hendrycks_math or DigitalLearningGmbH/MATH-lighteval), MATH-500 for testing.

The gold answer of a training row is the content of the last closed \boxed{} of its solution; MATH-500 has a column.
A training row that is also in MATH-500 leaves the training split as an overlap (`leakage`).
"""

import re
from pathlib import Path
from typing import Any

from judgefree.config_data import MathData
from judgefree.data.rows import NO_GOLD, BadRow, text_of
from judgefree.data.sources import Source, read
from judgefree.scoring.answers import extract

# A repository may hold the whole in data/ and the same rows again by subject: the first pattern that matches wins.
TRAIN = (
    "data/train-*.parquet",
    "*/train-*.parquet",
    "train-*.parquet",
    "train.jsonl",
    "train/*.jsonl",
    "train/*.parquet",
)
TRAIN_MIRROR = ("math/train/*.jsonl", "math/train/*.parquet")
BARE_BOX = re.compile(r"\\boxed\s+(\w+)")  # a few solutions leave the braces out


def load(settings: MathData, root: Path) -> list[Source]:
    train, test = (settings.train_id, settings.train_revision), (settings.test_id, settings.test_revision)
    return [
        read("train", "math/train", train, TRAIN, TRAIN_MIRROR, root),
        read("test", "math500/test", test, ("test.jsonl",), ("math500/test.jsonl",), root),
    ]


def parse(fields: dict[str, Any]) -> dict[str, Any]:
    r"""The common form of a raw row. Raises BadRow when there is neither an answer column nor a closed \boxed{}."""
    solution = text_of(fields, "solution")
    solution = BARE_BOX.sub(r"\\boxed{\1}", solution.replace(r"\fbox{", r"\boxed{"))
    gold = text_of(fields, "answer") if "answer" in fields else extract(solution, "boxed")
    if gold is None:
        raise BadRow(rf"{NO_GOLD}: the solution has no closed \boxed{{}}")
    level = re.search(r"[1-5]", str(fields.get("level")))
    subject = fields.get("subject", fields.get("type"))
    return {
        "question": text_of(fields, "problem"),
        "answer": gold.strip(),
        "solution": solution,
        "demonstration": solution,
        "level": int(level.group()) if level else None,
        "subject": subject if isinstance(subject, str) else None,
    }
