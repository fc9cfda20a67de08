"""Text that a model wrote, made safe and readable in HTML: nothing in it is markup, and nothing in it stays unseen."""

import math
from typing import Any

import regex
from markupsafe import Markup, escape

# A joiner between two emoji, a variation selector after an emoji or in a keycap: they are seen, in what they make.
_IN_EMOJI = (
    r"(?<=\p{Extended_Pictographic}[\p{Emoji_Modifier}\ufe0f]?)\u200d(?=\p{Extended_Pictographic})"
    r"|(?<=\p{Extended_Pictographic})[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)"
)
# Control characters but tab and newline; what Unicode says is drawn as nothing (bidirectional and zero-width marks, fillers,
# variation selectors, tags); separators of lines, marks of annotations, the Braille cell without dots; lone surrogates.
_UNSEEN = regex.compile(
    rf"(?!{_IN_EMOJI})([\x00-\x08\x0b-\x1f\x7f-\x9f\p{{Default_Ignorable_Code_Point}}\u2028-\u202e\u2800\ufff9-\ufffb"
    r"\ud800-\udfff])\1*"
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
