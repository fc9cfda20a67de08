"""Where an answer stands in a text, and one spelling per answer.

`extract` and `final_answer` find the final answer; `canonical_key` gives two answers the same string when it can show
that they are equal. Keys are compared with `==`, so the relation is symmetric and transitive by construction
(math-verify's `verify` is neither), which is what clusters of answers need. What the rules are:

- Units, degree signs, percent and money signs are dropped: `50\\%` = `50` (and so not `0.5`), `$29.00` = `29`,
  `5.4 \\text{ cents}` = `5.4`. Numbers are compared exactly: `0.333` is not `1/3`.
- Commas between groups of three digits belong to the number, but inside brackets they separate.
- A list without brackets is a set: `1, -2` = `\\{-2, 1\\}`; `a \\pm b` is the set of both. In brackets order counts.
- `52_8` keeps its base and is not `52`; `x = 5` keeps its variable and is not `5` (grading compares these further), but
  a label of words goes: `Total cost = 5` is `5`.
- Words are compared without case: `\\text{Evelyn}` = `evelyn`. Prose around a number is words, not that number.
"""

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from judgefree.episodes import Completion
from judgefree.scoring.exact import Inexact, normal_form
from judgefree.scoring.thought import split_thought

Where = Literal["boxed", "tag", "marker", "line", "whole"]  # the last two are texts, not values

MAX_ANSWER_CHARS = 1000

# ----------------------------------------------------------------------------------------------------- extraction

_BOX = re.compile(r"\\boxed[ \t]{0,8}\{|\\.|[{}]", re.DOTALL)
_TAG = re.compile(r"</?answer>")
_MARKER = re.compile(r"####([^\n]*)")
_LINE = re.compile(r"^[ \t*_#]{0,8}answer[*_]{0,2}:[*_]{0,2}", re.IGNORECASE | re.MULTILINE)
_NEXT_QUESTION = re.compile(
    r"^[ \t]{0,8}[#*]{0,4}[ \t]?(?:question|problem|exercise|instruction|user|human|q)(?![a-z])"
    r"[ \t]?[0-9]{0,4}[ \t]?[*]{0,2}[:.)]",
    re.IGNORECASE | re.MULTILINE,
)


def final_answer(completion: Completion, where: Where) -> str | None:
    """`extract` on a completion: a marker's answer that runs up to the end of a text that was cut off for its length is
    none, for its last digits may be missing. (A box or a tag has to close anyway; a text is worth something though its end
    is missing.)"""
    if where in ("line", "whole"):
        return extract(completion.text, where)
    span = _final_span(completion.text, where)
    if span and completion.finish_reason == "length" and span[1] == len(completion.text):
        return None
    return _content(completion.text, span)


def public_text(completion: Completion, where: Where) -> str | None:
    """What others may see of a completion: `final_answer` of what is said after thought. Of nested boxes it is the
    outermost, for a problem in words may hold a box of its own; the last one that closes. Time is linear in the text."""
    said = split_thought(completion.text)[1]
    if where != "boxed":
        return final_answer(replace(completion, text=said), where)
    last: tuple[int, int] | None = None
    for start, end in _boxes(said):  # by their beginning
        if end is not None and (last is None or start > last[1]):
            last = start, end
    return _content(said, last)


def extract(text: str, where: Where) -> str | None:
    """The final answer of a text, or None where there is no closed one.

    boxed: the last `\\boxed{...}` with balanced braces; tag: the last `<answer>...</answer>`; marker: what follows the
    last `####` up to the end of its line (the end of the text ends it too; see `final_answer`). The last one counts
    alone: if it never closes or is empty there is no answer, and an earlier one is not taken in its place. After the
    first closed answer, a line that opens a further question (`Question:`, `Problem 2.`, `Q:`, `User:` ...) ends the
    text, so a run-on continuation is not graded. Of texts instead of values: line, all that follows the first line
    that begins with `Answer:`, bold or not, the rest of that line included; whole, the completion; both without
    its thought (thought.py).
    Time is linear in the text.
    """
    if where in ("line", "whole"):
        text = split_thought(text)[1]
    if where == "whole":
        return text.strip() or None
    if where == "line":
        mark = _LINE.search(text)
        return text[mark.end() :].strip() or None if mark else None
    return _content(text, _final_span(text, where))


def last_box(text: str) -> tuple[int, int] | None:
    """Where what the last `\\boxed{...}` that closes holds begins and ends; None without one. Of nested ones the innermost
    counts. Time is linear in the text."""
    return max(((start, end) for start, end in _boxes(text) if end is not None), default=None)


def _content(text: str, span: tuple[int, int] | None) -> str | None:
    return text[slice(*span)].strip() or None if span else None


def _final_span(text: str, where: Where) -> tuple[int, int] | None:
    spans = {"boxed": _boxes, "tag": _tags, "marker": _markers}[where](text)
    first_end = min((end for _, end in spans if end is not None), default=None)
    if first_end is None:
        return None
    further = _NEXT_QUESTION.search(text, first_end)
    limit = further.start() if further else len(text)
    start, end = max(span for span in spans if span[0] <= limit)
    if end is None or end > limit:
        return None
    return start, end


def _boxes(text: str) -> list[tuple[int, int | None]]:
    ends: dict[int, int | None] = {}
    open_braces: list[int] = []  # where the content of a box begins, or -1 for another brace
    for match in _BOX.finditer(text):
        token = match[0]
        if token.startswith("\\boxed"):
            open_braces.append(match.end())
            ends[match.end()] = None
        elif token == "{":
            open_braces.append(-1)
        elif token == "}" and open_braces and (start := open_braces.pop()) >= 0:
            ends[start] = match.start()
    return list(ends.items())


def _tags(text: str) -> list[tuple[int, int | None]]:
    ends: dict[int, int | None] = {}
    start = -1
    for match in _TAG.finditer(text):
        if match[0] == "<answer>":
            start = match.end()
            ends[start] = None
        elif start >= 0:
            ends[start] = match.start()
            start = -1
    return list(ends.items())


def _markers(text: str) -> list[tuple[int, int | None]]:
    return [match.span(1) for match in _MARKER.finditer(text)]


# --------------------------------------------------------------------------------------------------- canonical key

_PLAIN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_SETTLED_KEY = re.compile(r'(?:sqrt\(-?[0-9]+\)|pi|[-+*/^0-9])+|~[0-9][0-9A-Z]*_[0-9]+|.*"[^"]{4,}".*')

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2012\u2013\u2014\u2010\u2011\ufe63\uff0d", "-"),
        **{chr(code): " " for code in (*range(9, 14), 0xA0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000)},
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad`", ""),
        **{chr(code): "" for code in (*range(9), *range(14, 32), 127)},
        **dict.fromkeys("×·⋅∗", "*"),
        **dict.fromkeys("÷⁄∕", "/"),
        **{"π": "\\pi ", "√": "\\sqrt ", "∞": "\\infty ", "±": "\\pm ", "°": "^\\circ ", "∪": "\\cup ", "∈": "\\in "},
        **{"≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "∅": "\\emptyset ", "²": "^2 ", "³": "^3 ", "％": "%"},
        **{"½": "\\frac12 ", "¼": "\\frac14 ", "¾": "\\frac34 "},
    }
)
_COMMANDS = {
    **dict.fromkeys(["\\left", "\\right", "\\big", "\\Big", "\\bigl", "\\bigr", "\\Bigl", "\\Bigr"], ""),
    **dict.fromkeys(["\\!", "\\$", "\\(", "\\)", "\\[", "\\]", "\\displaystyle", "\\textstyle", "\\limits"], ""),
    **dict.fromkeys(["\\,", "\\;", "\\:", "\\ ", "\\>", "\\quad", "\\qquad"], " "),
    **dict.fromkeys(["\\dfrac", "\\tfrac", "\\cfrac"], "\\frac"),
    **dict.fromkeys(["\\cdot", "\\times", "\\ast"], "*"),
    **{"\\div": "/", "\\%": "%", "\\leq": "\\le", "\\geq": "\\ge", "\\neq": "\\ne", "\\degree": "^\\circ"},
    **{"\\lbrace": "\\{", "\\rbrace": "\\}", "\\lbrack": "[", "\\rbrack": "]", "\\varnothing": "\\emptyset"},
}
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)")
_TEXT = re.compile(r"\\(?:text|mbox|textbf|textit|textrm|mathrm|mathbf|mathit|operatorname)\s*\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<![0-9.,_^])([0-9]{1,3}(?:,[0-9]{3})+)(?![0-9]|,[0-9])")
_LATEX_THOUSANDS = re.compile(r"(?<=[0-9])(?:,\\!\s*|\{,\})(?=[0-9]{3}(?![0-9]))")
_REPEATING = re.compile(r"([0-9]*)\.([0-9]*)\\overline\{([0-9]+)\}")
_MATRIX = re.compile(r"\\begin\{([pb])matrix\}(.*)\\end\{\1matrix\}")
_SIGN_UNIT = re.compile(r"(?:%|\^\s*(?:\\circ|\{\s*\\circ\s*\}))\s*[CF]?$")
_WORD_UNIT = re.compile(r"(?<=[0-9)} ])\s*([A-Za-z]{2,}(?:[ ,]+[A-Za-z]{2,}){0,4})\s*(?:\^\s*(?:[23]|\{[23]\}))?$")
_SHORT_UNIT = re.compile(r"(?<=[0-9}])\s*(?:cm|mm|km|kg|mg|ml|mL|ft|lb|oz|hr|mi|yd)(?:\s*\^\s*(?:[23]|\{[23]\}))?$")
# a run of three letters, or nothing but one run of two
_WORDS = re.compile(r"[^\W\d_]{2}|(?=.*[^\W\d_]{3})[^\W\d_(][^\W\d_]*(?:[ '.()-]+[^\W\d_]+)*[.)]*|\([^\W\d_]{3,}\)")
_PROSE = re.compile(r"(?!(?:sqrt|sinh|cosh|tanh|arcsin|arccos|arctan)\b)\b[^\W\d_]{4,}")
_LABEL = re.compile(r"[A-Za-z]{4,}(?: [A-Za-z]{4,}){0,3} ?=\s*(?=\S)")
_NOT_UNITS = re.compile(
    r"\b(?:pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|mod|base|to|of|or|and|less|more|than|times|over|plus|minus|by|factorial"
    r"|squared|cubed|hundreds?|thousands?|millions?|billions?|trillions?|dozens?|hal(?:f|ves)|thirds?|quarters?|pairs?)\b"
)


def canonical_key(answer: str) -> str | None:
    """One spelling per answer (rules: top of this file), or None for an answer that holds nothing or is too long.

    `7`, `-1/2`: rational numbers. `3*sqrt(13)`, `1+2*k`: exact formulas. `(3,1/2*pi)`, `{-2,1}`, `[[1,0],[0,1]]`:
    tuples and intervals, sets, matrices. `"evelyn"`: words. `~...`: any other formula, by its normalised characters.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        return None
    if _PLAIN.fullmatch(answer):  # nearly all answers; about 1 microsecond
        return str(Fraction(answer)) if "." in answer or answer[0] in "-0" else answer
    return _key(answer)


@lru_cache(maxsize=1 << 14)
def _key(answer: str) -> str | None:
    text = clean(answer)
    if not any(c.isalnum() for c in text):
        return None
    return _structure(text, 0)


def is_settled(key: str) -> bool:
    """Whether a key differs from another settled key only if the answers differ: numbers, exact constants (roots, pi,
    i), all that holds words of four letters or more, and numbers in another base."""
    return _SETTLED_KEY.fullmatch(key) is not None


def is_formula(key: str) -> bool:
    """Whether part of a key is no more than normalised characters: nothing shows that they are a formula at all."""
    return "~" in key


def clean(answer: str) -> str:
    """The same formula in fewer spellings: signs of Unicode, spacing and sizing commands, text commands, thousands."""
    text = answer.translate(_SIGNS)
    text = _LATEX_THOUSANDS.sub("", text)
    text = _COMMAND.sub(lambda match: _COMMANDS.get(match[0], match[0]), text).replace("$", "")
    text = _TEXT.sub(r" \1 ", _TEXT.sub(r" \1 ", text))
    text = re.sub(r"\binfinity\b", r"\\infty", text)
    text = _REPEATING.sub(_repeating, text)
    if not re.search(r"[(\[{]", text):
        text = _THOUSANDS.sub(lambda match: match[1].replace(",", ""), text)
    text = re.sub(r"([0-9]) +([0-9]+)/([0-9]+)(?![0-9])", r"\1\\frac{\2}{\3}", text)
    text = re.sub(r" +", " ", text).strip(" *")
    return text.rstrip(" .,;:*")


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match[1] or "0", match[2], match[3]
    tail = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed))
    value = Fraction(f"{whole}.{fixed}0") + tail
    return f"(({value.numerator})/({value.denominator}))"


def _structure(text: str, depth: int) -> str:
    """Key of a cleaned text: unions, lists, sets, tuples, matrices, equations, and elements in them."""
    text = re.sub(r"^[A-Za-z]\s*\\in\b\s*", "", text.strip())
    text = text[label.end() :] if (label := _LABEL.match(text)) else text
    head = _WORD_UNIT.sub("", text)
    if head != text and _PLAIN.fullmatch(head):
        return _element(text)
    if depth < 8:
        if len(parts := _split(text, "\\cup")) > 1:
            return " U ".join(sorted(_structure(part, depth + 1) for part in parts))
        if text.startswith("\\{") and text.endswith("\\}") and _enclosed(text[1:]):
            return _set(_split(text[2:-2], ","), depth)
        listed = re.sub(r",?\s*\b(?:and|or)\b", ",", text)
        if len(parts := _split(listed, ",")) > 1 or "\\pm" in text and not _enclosed(text):
            return _set(parts, depth)
        if _enclosed(text) and text[0] in "([" and len(parts := _split(text[1:-1], ",")) > 1:
            return text[0] + ",".join(_structure(part, depth + 1) for part in parts) + text[-1]
        if match := _MATRIX.fullmatch(text):
            rows = [_split(row, "&") for row in _split(match[2].strip().removesuffix("\\\\"), "\\\\")]
            return "[" + ",".join("[" + ",".join(_element(cell) for cell in row) + "]" for row in rows) + "]"
        if len(parts := _split(text, "=")) == 2:
            return "=".join(_element(part) for part in parts)
    return _element(text)


def _set(parts: list[str], depth: int) -> str:
    both: list[str] = []
    for part in parts:
        signs = ("+", "-") if "\\pm" in part else ("",)
        both += [_structure(part.replace("\\pm", sign), depth + 1) for sign in signs]
    return "{" + ",".join(sorted(both)) + "}"


def _element(text: str) -> str:
    text = text.strip()
    bare = text.removeprefix("+").strip()
    if bare.lstrip("- ") == "\\infty":
        return "-oo" if bare.startswith("-") else "oo"
    if text == "pi":
        return text
    if _WORDS.fullmatch(text):
        return _words(text)
    text = _SHORT_UNIT.sub("", text)
    for candidate in (text, _SIGN_UNIT.sub("", text).strip(), _WORD_UNIT.sub("", text).strip()):
        if candidate != text and _NOT_UNITS.search(text[len(candidate) :]):
            continue
        try:
            return normal_form(candidate)
        except Inexact:
            pass
    if _PROSE.search(text) and not any(sign in text for sign in "\\^_"):
        return _words(text)
    # only blanks that separate nothing go: `1 2` stays apart from `12`, `\cot x` from `\cotx`
    squeezed = re.sub(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])", "", text)
    return "~" + re.sub(r"([_^])\{(\w)\}", r"\1\2", squeezed)


def _words(text: str) -> str:
    return '"' + re.sub(r'[ .()"]+', " ", text).strip().casefold() + '"'


def _enclosed(text: str) -> bool:
    """Whether the bracket that opens the text closes at its very end; ( and ] may pair, as in intervals."""
    if len(text) < 2 or text[0] not in "([{" or text[-1] not in ")]}":
        return False
    depth = 0
    for position, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return position == len(text) - 1
    return False


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator outside all brackets; an empty part means that this was no list, and nothing is split."""
    parts, depth, start = [], 0, 0
    for position, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and text.startswith(separator, position) and position >= start:
            parts.append(text[start:position])
            start = position + len(separator)
    parts = [part.strip() for part in [*parts, text[start:]]]
    return parts if all(parts) else [text]
