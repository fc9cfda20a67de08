"""The page: header, filters and the chosen games or groups, in one file that fetches nothing.

Jinja2 escapes whatever it is given, `text.visible` and `text.shorten` are the only makers of markup from a model's words,
and the page's own security policy lets a browser run this page's script alone, should all that ever fail.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from judgefree.transcripts.records import Key, Row
from judgefree.transcripts.text import number, shorten, visible
from judgefree.transcripts.views import OUTCOMES, course, game_view, group_view, is_game, outcome, seat_name

_FOLDER = Path(__file__).parent
_SIZE = (640, 90)  # of the course's picture, without its margins


def page(
    title: str,
    facts: Mapping[str, Any],
    short: Mapping[Key, Sequence[Row]],
    chosen: Mapping[Key, Sequence[Row]],
    questions: Mapping[str, str],
    overseer: bool = False,
) -> str:
    """The HTML of a run's transcript.

    facts: what the header tells, by name; short: the rows of everything there is to show, texts left out; chosen: the
    whole rows of what is shown; questions: by prompt id, as far as known; overseer: see `game_view`.
    """
    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible": visible, "shorten": shorten, "number": number}
    games = bool(short) and is_game(next(iter(short.values())))
    shown = [
        game_view(rows, overseer) if games else group_view(rows, questions.get(key[1])) for key, rows in chosen.items()
    ]
    counts = Counter(outcome(rows) for rows in short.values())
    style, script = (Markup((_FOLDER / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        title=title, facts=facts, games=games, shown=shown, outcomes=OUTCOMES, overseer=overseer, seat_name=seat_name,
        counts={name: counts[name] for name in OUTCOMES if counts[name]}, total=len(short),
        shown_outcomes={one.outcome for one in shown},
        steps=list(dict.fromkeys(one.step for one in shown)),
        roles=list(dict.fromkeys(row["role"] for rows in chosen.values() for row in rows)),
        curve=_curve(course(list(short.values()))), size=_SIZE,
        style=style, style_hash=_sha256(style), script=script, script_hash=_sha256(script),
    )  # fmt: skip


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _curve(points: Sequence[tuple[int, float]]) -> dict[str, Any] | None:
    """The course as points of an SVG line with what its ends are called; None where it is no line."""
    if len(points) < 2:
        return None
    steps, values = zip(*points, strict=True)
    low, high = min(*values, 0.0), max(*values, 1.0)
    width, height = _SIZE
    at = [(width * (step - steps[0]) / (steps[-1] - steps[0]), height * (high - value) / (high - low))
          for step, value in points]  # fmt: skip
    return {
        "line": " ".join(f"{x:.1f},{y:.1f}" for x, y in at),
        "low": low,
        "high": high,
        "ends": (steps[0], steps[-1]),
    }
