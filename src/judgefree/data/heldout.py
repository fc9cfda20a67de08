"""The test split, for evaluation alone: nothing below `training` or `methods` may import this module; a test checks."""

from pathlib import Path

from judgefree.data.tables import read_examples
from judgefree.episodes import Example


def load_test(folder: Path, limit: int | None = None) -> list[Example]:
    """The first `limit` rows of the test split of the prepared data set in `folder`, checked against its manifest.

    Raises JudgefreeError when something is missing or altered.
    """
    return read_examples(folder, "test", limit)
