"""docs/results.md by its sections, so that each reproduction writes its own and leaves the others as they are."""

from collections.abc import Mapping
from pathlib import Path

EMPTY = "# What the papers claim, at small scale\n"


def sections_of(page: Path) -> tuple[str, dict[str, str]]:
    """What stands before the first section, and each section's text by its title."""
    text = page.read_text(encoding="utf-8") if page.is_file() else EMPTY
    head, *rest = text.rstrip("\n").split("\n\n## ")
    parts = [section.partition("\n\n") for section in rest]
    return head, {title: body for title, _, body in parts}


def joined(head: str, sections: Mapping[str, str]) -> str:
    """The page of a head and sections by title."""
    return "\n\n".join([head, *(f"## {title}\n\n{text}" for title, text in sections.items())]) + "\n"
