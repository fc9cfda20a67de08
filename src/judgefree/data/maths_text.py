"""Nemotron-CC-Math (nvidia/Nemotron-CC-Math-v1, configuration "3"): mathematical pages of the web, to invent problems about.

There is one column that is used, text, and no reference: nobody wrote the problem that a page could give. The files are
named in the parameters, for the whole is far more than any run reads; validation is held out, and there is no test split,
since what is learnt is measured on GSM8K and MATH-500.
"""

from pathlib import Path
from typing import Any

from judgefree.config_texts import MathsTextData
from judgefree.data.rows import text_of
from judgefree.data.sources import Source, read
from judgefree.data.texts import clean, common


def load(settings: MathsTextData, root: Path) -> list[Source]:
    layout, mirror = (settings.files,), (f"maths_text/{settings.files}",)
    dataset = (settings.id, settings.revision)
    return [read("train", "maths_text/train", dataset, layout, mirror, root, settings.train_rows)]


def parse(fields: dict[str, Any], most: int) -> dict[str, Any]:
    """The common form of a raw row, the page cut to `most` words. Raises BadRow for an empty page."""
    return common(clean(text_of(fields, "text")), None, most)
