"""What training may read. The test split is opened by `judgefree.data.heldout`, which no training code imports."""

from pathlib import Path
from typing import Literal

from judgefree.data.tables import read_examples
from judgefree.episodes import Example
from judgefree.errors import JudgefreeError


def load_split(folder: Path, split: Literal["train", "validation"], limit: int | None = None) -> list[Example]:
    """The first `limit` rows of a split of the prepared data set in `folder`, checked against its manifest.

    Raises JudgefreeError for any other split, and when something is missing or altered.
    """
    if split not in ("train", "validation"):
        raise JudgefreeError(
            f"training asked for the {split} split of {folder}; it may read train and validation only",
            "select by validation; the test split belongs to `judgefree evaluate`",
        )
    return read_examples(folder, split, limit)
