"""What is shown, and what it says: selections, games and groups worked out by hand."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.errors import JudgefreeError
from judgefree.transcripts.records import parse_steps, read_short, read_whole, spread
from judgefree.transcripts.views import course, game_outcome, game_view, group_view, outcome, seat_name

Make = Callable[..., list[dict[str, Any]]]


def row(role: str, slot: int | None = None, **more: Any) -> dict[str, Any]:
    return {"step": 0, "prompt_id": "p", "role": role, "slot": slot, "text": "t", "reward": 0.0, **more}


def test_steps() -> None:
    assert parse_steps("") == []
    assert parse_steps("0-20, 35") == [range(0, 21), range(35, 36)]
    for wrong in ("5-3", "a", "1,", "-4", "1-2-3"):
        with pytest.raises(JudgefreeError, match="names no steps"):
            parse_steps(wrong)


def test_games_are_spread_over_the_steps() -> None:
    keys = [(step, f"{step}{place}") for step in range(5) for place in "abc"]
    assert spread(keys, 3) == [(0, "0a"), (2, "2a"), (4, "4a")]
    assert spread(keys, 1) == [(2, "2a")]
    # one of every step, then a second one of the first and of the last
    assert spread(keys, 7) == [(0, "0a"), (0, "0b"), (1, "1a"), (2, "2a"), (3, "3a"), (4, "4a"), (4, "4b")]
    assert spread(keys, 99) == keys


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 50))
def test_no_step_is_favoured(steps: list[int], limit: int) -> None:
    keys = [(step, str(place)) for place, step in enumerate(sorted(steps))]
    chosen = spread(keys, limit)
    assert len(chosen) == min(limit, len(keys)) and chosen == [key for key in keys if key in set(chosen)]
    had, has = Counter(steps), Counter(step for step, _ in chosen)
    shown = max(has.values(), default=0)
    assert all(has[step] >= min(had[step], shown - 1) for step in had)


def test_records_are_read_in_order_whatever_their_files(tmp_path: Path, game: Make) -> None:
    early, late = (
        game(["a", "b", "c"], [0, 0, 1], 0, step=1),
        game(["d", "e", "f"], ["na"] * 3, 2, step=7, game="other"),
    )
    files = [tmp_path / "steps-0000000.parquet", tmp_path / "steps-0000005.parquet"]
    for file, rows in zip(
        files, (early, late), strict=True
    ):  # a file whose votes are all absent has a null column there
        pq.write_table(pa.Table.from_pylist(rows), file)
    short = read_short(files, [])
    assert list(short) == [(1, "train-000001"), (7, "other")] and [len(rows) for rows in short.values()] == [6, 6]
    assert "text" not in short[1, "train-000001"][0]
    assert list(read_short(files, [range(2, 9)])) == [(7, "other")]
    assert read_whole(files, [(7, "other")]) == {(7, "other"): late}


def test_seats_have_letters() -> None:
    assert [seat_name(seat) for seat in (0, 4, 25, 26, 27, 51, 52)] == ["A", "E", "Z", "AA", "AB", "AZ", "BA"]


def test_a_spy_is_caught_that_has_more_votes_than_anybody() -> None:
    assert game_outcome({0: 1, 1: 3, 2: 1}, spy=1) == "caught"
    assert game_outcome({0: 2, 1: 2, 2: 1}, spy=1) == "missed", "a tie catches nobody"
    assert game_outcome({0: 0, 1: 0, 2: 1}, spy=1) == "missed"
    assert game_outcome({0: 0, 1: 0, 2: 0}, spy=1) == "no-votes"


def test_a_game(game: Make) -> None:
    view = game_view(game(["one", "two", "three"], [1, 1, "na"], spy=1, span=(5, 8), source="See me there", step=4))
    assert (view.step, view.outcome, view.spy, view.stage, view.votes) == (4, "caught", "B", "performing", 2)
    assert (view.before, view.masked, view.after) == ("See m", "e t", "here")
    assert [(one.name, one.spy, one.votes, one.voters) for one in view.players] == [
        ("A", False, 0, []), ("B", True, 2, ["A", "B"]), ("C", False, 0, []),
    ]  # fmt: skip
    assert [(one.name, one.spy, one.named, one.kind, one.right) for one in view.detectors] == [
        ("A", False, "B", "vote", True), ("B", True, "B", "vote", True), ("C", False, None, "na", False),
    ]  # fmt: skip
    assert all(one.thought for one in view.players), "the completions hold a sentence before their outputs"


def test_a_game_before_an_overseer_and_one_without_a_spy(game: Make) -> None:
    rows = game(["one", "two", "three"], [0, "missing", 0, 2], spy=0)
    overseen = game_view(rows, overseer=True)
    assert [one.name for one in overseen.detectors] == ["1", "2", "3", "4"]
    assert not any(one.spy for one in overseen.detectors) and overseen.players[0].voters == ["1", "3"]
    nobody = [{**row, "span_start": None, "span_end": None} for row in rows]
    assert game_view(nobody).masked == "" and game_view(nobody).after == rows[0]["source"]
    assert game_view([{**row, "source": None} for row in rows]).before is None


def test_outcomes_of_attempts() -> None:
    right, wrong = (row("attempt", verdict=verdict) for verdict in ("correct", "wrong"))
    assert outcome([right, right]) == "all" and outcome([right, wrong]) == "some" and outcome([wrong, wrong]) == "none"
    review = row("review", verdict=None)
    assert outcome([wrong, review, row("second", verdict="correct")]) == "repaired"
    assert outcome([wrong, review, row("second", verdict="wrong")]) == "none"
    assert outcome([right, wrong, review, row("second", verdict="correct")]) == "some"
    assert outcome([row("attempt", reward=0.5), row("attempt", reward=0.5)]) == "equal"
    assert outcome([row("attempt", reward=0.5), row("attempt", reward=float("nan"))]) == "equal", (
        "no reward is no other"
    )
    assert outcome([row("attempt", reward=0.5), row("attempt", reward=0.25)]) == "differ"


def test_what_followed_an_attempt_stands_with_it() -> None:
    rows = [row("attempt", 0), row("attempt", 1), row("review", 1, guidelines="multiply first"), row("second", 1)]
    chains = group_view(rows, "2 + 3 * 4").chains
    assert [[entry.row["role"] for entry in chain] for chain in chains] == [
        ["attempt"],
        ["attempt", "review", "second"],
    ]
    assert len(group_view([row("attempt"), row("attempt")], None).chains) == 2, "without slots nothing belongs together"


def test_further_columns_are_shown_by_their_length() -> None:
    entry = group_view([row("attempt", 0, cluster=0.25, memory="a line\nand another", tagged=None)], None).chains[0][0]
    assert entry.facts == {"cluster": 0.25} and entry.texts == {"memory": "a line\nand another"}


def test_the_course_of_a_run(game: Make) -> None:
    games = [game(["a", "b", "c"], [1, 1, "na"], 1, step=3), game(["a", "b", "c"], [0, 2, 1], 1, step=3),
             game(["a", "b", "c"], [0, 0, 0], 0, step=1)]  # fmt: skip
    assert course(games) == [(1, 1.0), (3, 0.5)]
    attempts = [[row("attempt", reward=1.0), row("attempt", reward=float("nan")), row("review", reward=0.0)]]
    assert course(attempts) == [(0, 1.0)], "of the attempts alone, and of those that have a reward"
