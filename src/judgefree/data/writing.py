"""WritingPrompts (euclaise/writingprompts): prompts to write a story about, and human stories.

A prompt may come many times, each time with another story: the first stays. No training needs the story; it is there to be
compared with.
"""

import re
from pathlib import Path
from typing import Any

from judgefree.config_texts import WritingData
from judgefree.data.rows import text_of
from judgefree.data.sources import Source, read
from judgefree.data.texts import clean, common

_TAG = re.compile(r"^\[ ?[A-Za-z]{2} ?\] *")  # the forum's kind of prompt, such as [ WP ]
_LINE_END = "<newline>"


def load(settings: WritingData, root: Path) -> list[Source]:
    return [
        read(
            split,
            f"writing/{split}",
            (settings.id, settings.revision),
            (f"data/{split}-*.parquet", f"{split}-*.parquet", f"{split}.jsonl"),
            (f"writing/data/{split}-*.parquet", f"writing/{split}.jsonl"),
            root,
            settings.train_rows if split == "train" else None,
        )
        for split in ("train", "validation", "test")
    ]


def parse(fields: dict[str, Any], most: int) -> dict[str, Any]:
    """The common form of a raw row, the prompt cut to `most` words; an empty story is none. Raises BadRow for no prompt."""
    prompt = _TAG.sub("", clean(text_of(fields, "prompt").replace(_LINE_END, "\n")))
    story = fields.get("story")
    story = clean(text_of(fields, "story").replace(_LINE_END, "\n")) if story is not None else None
    return common(prompt, story or None, most)
