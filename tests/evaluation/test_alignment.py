"""Votes against quality: games worked out by hand, scipy as the oracle, and what must not matter."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from judgefree.evaluation.alignment import align, figure, quality_ranks, rank_correlation, votes_at_ranks

# vote ranks 1, 2.5, 4, 2.5 and quality ranks 4, 2, 1, 3; centred products -2.25, 0, -2.25, 0 over sqrt(4.5 * 5)
FALLING = ([0, 1, 3, 1], [0.9, 0.5, 0.1, 0.7])
# vote ranks 4, 2, 2, 2 and quality ranks 4, 1, 2, 3; centred products 2.25, 0.75, 0.25, -0.25 over sqrt(3 * 5)
RISING = ([2, 0, 0, 0], [1.0, 0.2, 0.3, 0.4])
UNVOTED = ([0, 0, 0, 0], [0.1, 0.2, 0.3, 0.4])
ALIKE = ([1, 0, 2, 1], [0.5, 0.5, 0.5, 0.5])
EVEN = ([1, 1, 1, 1], [0.1, 0.2, 0.3, 0.4])


def test_ranks_share_what_ties_span() -> None:
    assert quality_ranks([0.5, 0.9, 0.1, 0.9]).tolist() == [3.0, 1.5, 4.0, 1.5]
    assert quality_ranks([0.2, 0.2, 0.2]).tolist() == [2.0, 2.0, 2.0]


def test_correlation_within_a_game() -> None:
    assert rank_correlation(*FALLING) == pytest.approx(-4.5 / math.sqrt(22.5))
    assert rank_correlation(*RISING) == pytest.approx(3 / math.sqrt(15))
    assert rank_correlation([3, 2, 1], [1.0, 2.0, 3.0]) == pytest.approx(-1)
    assert rank_correlation(*EVEN) == rank_correlation(*ALIKE) == 0.0


def test_votes_by_rank_share_ties() -> None:
    # best: no vote; two of the same quality: (2 + 1) / 2 each; worst: 3
    assert votes_at_ranks([0, 2, 3, 1], [0.9, 0.5, 0.1, 0.5]).tolist() == [0.0, 1.5, 1.5, 3.0]


def test_games_that_say_nothing_are_left_out_and_counted() -> None:
    aligned = align([FALLING, UNVOTED, RISING, ALIKE, ([0] * 4, [0.5] * 4)], resamples=200, seed=0, confidence=0.95)
    assert (aligned.games, aligned.no_votes, aligned.equal_quality) == (2, 2, 1)
    assert aligned.correlation and aligned.pooled
    assert aligned.correlation.value == pytest.approx((-4.5 / math.sqrt(22.5) + 3 / math.sqrt(15)) / 2)
    assert aligned.pooled.value == pytest.approx((-4.5 + 3) / math.sqrt((4.5 + 3) * (5 + 5)))
    # of qualities 0.9, 0.7, 0.5, 0.1 the votes are 0, 1, 1, 3; of 1, 0.4, 0.3, 0.2 they are 2, 0, 0, 0
    assert [one.value for one in aligned.votes_by_rank] == [1.0, 0.5, 0.5, 1.5]
    # two games: every draw is one of them twice, or both
    assert aligned.correlation.low == pytest.approx(-4.5 / math.sqrt(22.5))
    assert aligned.correlation.high == pytest.approx(3 / math.sqrt(15))


def test_even_votes_say_that_quality_did_not_matter() -> None:
    aligned = align([FALLING, EVEN], resamples=200, seed=0, confidence=0.95)
    assert aligned.games == 2 and aligned.correlation and aligned.pooled
    assert aligned.correlation.value == pytest.approx(-4.5 / math.sqrt(22.5) / 2)
    assert aligned.pooled.value == pytest.approx(-4.5 / math.sqrt(4.5 * 10))
    assert aligned.pooled.high == 0.0, "a draw of even games only"


def test_nothing_to_say() -> None:
    for games in ([], [UNVOTED, ALIKE]):
        aligned = align(games, resamples=10, seed=0, confidence=0.95)
        assert aligned.correlation is None and aligned.pooled is None and not aligned.votes_by_rank
        assert figure(aligned, "memo").startswith(b"\x89PNG")


def test_refuses_games_that_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="need the same number"):
        align([FALLING, ([1, 0], [0.1, 0.2])], 10, 0, 0.95)
    with pytest.raises(ValueError, match="not a number"):
        align([([1, 0], [0.1, math.nan])], 10, 0, 0.95)


def test_interval_excludes_zero_only_where_games_agree() -> None:
    agreeing = align([FALLING] * 19 + [EVEN], resamples=500, seed=1, confidence=0.95)
    assert agreeing.correlation and agreeing.correlation.high < -0.7
    split = align([FALLING, RISING] * 10, resamples=500, seed=1, confidence=0.95)
    assert split.correlation and split.correlation.low < 0 < split.correlation.high


def test_the_same_games_give_the_same_figure() -> None:
    aligned = align([FALLING, RISING], resamples=50, seed=0, confidence=0.95)
    assert figure(aligned, "memo") == figure(aligned, "memo")


PLAYERS = 5
GAMES = st.tuples(
    st.lists(st.integers(0, 5), min_size=PLAYERS, max_size=PLAYERS),
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0]), min_size=PLAYERS, max_size=PLAYERS),
)


@given(GAMES)
def test_agrees_with_scipy(game: tuple[list[int], list[float]]) -> None:
    votes, quality = game
    constant = len(set(votes)) == 1 or len(set(quality)) == 1
    oracle = 0.0 if constant else float(spearmanr(votes, quality).statistic)
    assert rank_correlation(votes, quality) == pytest.approx(oracle, abs=1e-12)


@given(GAMES, st.permutations(range(PLAYERS)))
def test_seats_do_not_matter_nor_does_the_scale_of_quality(
    game: tuple[list[int], list[float]], order: list[int]
) -> None:
    votes, quality = game
    moved = [votes[seat] for seat in order], [quality[seat] ** 2 * 40 - 3 for seat in order]
    assert rank_correlation(*moved) == pytest.approx(rank_correlation(votes, quality), abs=1e-12)
    assert votes_at_ranks(*moved) == pytest.approx(votes_at_ranks(votes, quality))
    assert votes_at_ranks(votes, quality).sum() == pytest.approx(sum(votes)), "no vote is lost to a tie"


@given(st.lists(GAMES, min_size=1, max_size=8))
def test_every_game_is_counted_once(games: list[tuple[list[int], list[float]]]) -> None:
    aligned = align(games, resamples=5, seed=0, confidence=0.9)
    assert aligned.games + aligned.no_votes + aligned.equal_quality == len(games)
    assert (aligned.correlation is None) == (aligned.games == 0)
    if aligned.correlation and aligned.pooled:
        assert -1 <= aligned.correlation.low <= aligned.correlation.high <= 1
        assert -1 - 1e-12 <= aligned.pooled.value <= 1 + 1e-12
        mean_votes = sum(one.value for one in aligned.votes_by_rank)
        used = [votes for votes, quality in games if any(votes) and len(set(quality)) > 1]
        assert mean_votes == pytest.approx(sum(map(sum, used)) / len(used))
