"""Text that a model wrote, made safe and readable in HTML: nothing in it is markup, and nothing in it stays unseen."""

import math
import re
from typing import Any

from markupsafe import Markup, escape

# Control characters but tab and newline; marks that turn or hide text (bidirectional, zero-width, tags); lone surrogates.
_UNSEEN = re.compile(
    "([\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f])\\1*"
)


def visible(text: str) -> Markup:
    """The text escaped for HTML; a character that is not seen, or that changes how others are seen, by its code point."""
    parts, end = [], 0
    for found in _UNSEEN.finditer(text):
        parts += [escape(text[end : found.start()]), Markup("<i>{}</i>").format(_name(found[1], len(found[0])))]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def _name(character: str, times: int) -> str:
    return f"U+{ord(character):04X}" + (f" ×{times}" if times > 1 else "")


def shorten(text: str, limit: int) -> Markup:
    """`visible` of a text whose middle, where it is longer than `limit` characters, is left out and counted."""
    if len(text) <= limit:
        return visible(text)
    half = limit // 2
    left_out = Markup('<b class="cut">[{:,} characters left out]</b>').format(len(text) - 2 * half)
    return visible(text[:half]) + left_out + visible(text[-half:])


def number(value: Any, signed: bool = False) -> str:
    """A reward or an advantage in three digits; of one per token, the mean; a dash where there is none."""
    if isinstance(value, list):
        return f"{number(sum(value) / len(value), signed)} (mean over tokens)" if value else "–"
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value or 0:{'+' if signed and value else ''}.3g}".replace("-", "−")
