"""What a page says about one game of the spy game, or about one group of attempts, worked out from its records.

Players are named by letters, since the numbers that detectors vote by are those of each detector's own list.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judgefree.transcripts.records import Row

PERFORMER, DETECTOR, SECOND = "performer", "detector", "second"
OUTCOMES = {
    "caught": "spy caught",
    "missed": "spy not caught",
    "no-votes": "no votes",
    "all": "all right",
    "some": "some right",
    "repaired": "right the second time",
    "none": "none right",
    "differ": "rewards differ",
    "equal": "rewards equal",
}
_SHOWN = ("step", "prompt_id", "slot", "role", "text", "answer", "gold", "verdict", "reward", "advantage", "finish_reason",
          "tokens")  # fmt: skip
_SHORT_TEXT = 40  # characters of a further column that stand in a line


@dataclass(frozen=True)
class Player:
    """A performer: row is its record, voters the detectors that named it."""

    name: str
    spy: bool
    votes: int
    voters: Sequence[str]
    row: Row
    thought: bool  # the completion holds more than the public output


@dataclass(frozen=True)
class Detector:
    """A detector: name is the player that it is, or its number among the overseer's samples; right: it named the spy."""

    name: str
    spy: bool
    named: str | None
    kind: str
    right: bool
    row: Row


@dataclass(frozen=True)
class Game:
    step: int
    id: str
    outcome: str
    stage: str
    spy: str
    before: str | None  # the source up to what the spy did not see; None where the record has no source
    masked: str
    after: str
    players: Sequence[Player]
    detectors: Sequence[Detector]
    votes: int


@dataclass(frozen=True)
class Entry:
    """One completion outside of a game. row: its record, None for what its method does not record; facts: the record's
    further columns, short ones; texts: long ones."""

    row: Row
    facts: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Completions of one prompt in one rollout. chains: those of one slot belong together, an attempt and what followed."""

    step: int
    id: str
    outcome: str
    question: str | None
    gold: str | None
    chains: Sequence[Sequence[Entry]]


def seat_name(seat: int) -> str:
    """A, B, ..., Z, AA, AB, ... for seats 0, 1, ..."""
    rest, place = divmod(seat, 26)
    return (seat_name(rest - 1) if rest else "") + chr(ord("A") + place)


def is_game(rows: Sequence[Row]) -> bool:
    return any(row["role"] == PERFORMER for row in rows)


def outcome(rows: Sequence[Row]) -> str:
    """A key of OUTCOMES. A spy is caught that has more votes than any other player; a group is judged by its attempts'
    verdicts, where there are any, else by whether their rewards differ."""
    if is_game(rows):
        return game_outcome(
            {row["slot"]: row["votes"] or 0 for row in rows if row["role"] == PERFORMER}, rows[0]["spy"]
        )
    attempts = [row for row in rows if row["role"] == rows[0]["role"]]
    verdicts = [row["verdict"] == "correct" for row in attempts if row.get("verdict")]
    if not verdicts:
        rewards = {row["reward"] for row in attempts if row.get("reward") is not None and math.isfinite(row["reward"])}
        return "differ" if len(rewards) > 1 else "equal"
    if any(verdicts):
        return "all" if all(verdicts) else "some"
    seconds = [row for row in rows if row["role"] == SECOND and row.get("verdict") == "correct"]
    return "repaired" if seconds else "none"


def game_outcome(votes: Mapping[int, int], spy: int) -> str:
    """votes: received, by seat."""
    if not any(votes.values()):
        return "no-votes"
    return "caught" if votes[spy] > max((n for seat, n in votes.items() if seat != spy), default=0) else "missed"


def game_view(rows: Sequence[Row], overseer: bool = False) -> Game:
    """overseer: the detectors are samples of one that sees the whole source, not the players."""
    performers = sorted((row for row in rows if row["role"] == PERFORMER), key=lambda row: row["slot"])
    detectors = [_detector(row, overseer) for row in rows if row["role"] == DETECTOR]
    first = performers[0]
    players = []
    for row in performers:
        name = seat_name(row["slot"])
        voters = [one.name for one in detectors if one.named == name]
        thought = (row["text"] or "").strip() != (row["output"] or "").strip()
        players.append(Player(name, row["slot"] == row["spy"], row["votes"] or 0, voters, row, thought))
    source, start, end = first.get("source"), first["span_start"] or 0, first["span_end"] or 0
    before, masked, after = (source[:start], source[start:end], source[end:]) if source is not None else (None, "", "")
    return Game(
        first["step"], first["prompt_id"], outcome(rows), first["stage"], seat_name(first["spy"]), before, masked, after,
        players, detectors, sum(player.votes for player in players),
    )  # fmt: skip


def _detector(row: Row, overseer: bool) -> Detector:
    named = None if row["vote"] is None else seat_name(row["vote"])
    name = str(row["slot"] + 1) if overseer else seat_name(row["slot"])
    own = not overseer and row["slot"] == row["spy"]
    return Detector(name, own, named, row["vote_kind"] or "missing", row["vote"] == row["spy"], row)


def group_view(rows: Sequence[Row], question: str | None) -> Group:
    chains: dict[Any, list[Entry]] = {}
    for place, row in enumerate(rows):
        slot = row.get("slot")
        chains.setdefault(("alone", place) if slot is None else slot, []).append(_entry(row))
    first = rows[0]
    return Group(first["step"], first["prompt_id"], outcome(rows), question, first.get("gold"), list(chains.values()))


def _entry(row: Row) -> Entry:
    further = {name: value for name, value in row.items() if name not in _SHOWN and value is not None}
    texts = {name: value for name, value in further.items() if isinstance(value, str) and _long(value)}
    facts = {name: value for name, value in further.items() if name not in texts}
    return Entry({**dict.fromkeys(_SHOWN), **row}, facts, texts)


def _long(text: str) -> bool:
    return len(text) > _SHORT_TEXT or "\n" in text


def course(groups: Sequence[Sequence[Row]]) -> list[tuple[int, float]]:
    """(step, value) in order of step: the share of detectors that named the spy or, outside of games, the mean reward of
    the first role; steps without a value are left out."""
    values: dict[int, list[float]] = {}
    for rows in groups:
        if is_game(rows):
            worth = [float(row["vote"] == row["spy"]) for row in rows if row["role"] == DETECTOR]
        else:
            worth = [row["reward"] for row in rows if row["role"] == rows[0]["role"] and row.get("reward") is not None]
        values.setdefault(rows[0]["step"], []).extend(value for value in worth if math.isfinite(value))
    return [(step, sum(several) / len(several)) for step, several in sorted(values.items()) if several]
