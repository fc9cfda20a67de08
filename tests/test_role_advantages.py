"""Rewards of the spy game and the baselines of its roles: games worked out by hand, and what holds for any votes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.advantages import detection_reward, normalised, performing_rewards, role_advantages

VOTES = st.lists(st.integers(0, 9), min_size=2, max_size=9)
WEIGHTS = st.floats(0.01, 1.0)
ZERO = {"spy": 0.0, "civilian": 0.0}


@pytest.mark.parametrize(
    ("received", "spy", "rewards"),
    [
        ([5, 0, 0, 0, 0], 0, [-0.5, 0.125, 0.125, 0.125, 0.125]),  # -beta n and beta n / n_c
        ([0, 0, 0, 0, 0], 3, [0, 0, 0, 0, 0]),  # all abstained
        # m_u = 1, mbar_c = 1: only the civilians' votes against one another count
        ([0, 1, 3, 1, 0], 1, [0.1, 0, -0.2, 0, 0.1]),
        # m_u = 2, mbar_c = 0.75: spy -0.125; civilians 0.03125 - 0.1 (m - 0.75)
        ([2, 1, 2, 0, 0], 2, [-0.09375, 0.00625, -0.125, 0.10625, 0.10625]),
        ([3, 0], 1, [0.3 * -1, 0.3]),  # one civilian: its own mean, so no second term
    ],
)
def test_games_by_hand(received: list[int], spy: int, rewards: list[float]) -> None:
    assert performing_rewards(received, spy, 0.1, 0.1) == pytest.approx(rewards)


def test_weights_by_hand() -> None:
    """m_u = 2, mbar_c = 1 of 0, 2: beta 0.2 and lam 0.5 give the spy -0.2 and 0.1 - 0.5 (m - 1)."""
    assert performing_rewards([0, 2, 2], 1, 0.2, 0.5) == pytest.approx([0.6, -0.2, -0.4])


@given(VOTES, st.integers(0, 8), WEIGHTS, WEIGHTS)
def test_a_game_is_zero_sum(received: list[int], spy: int, beta: float, lam: float) -> None:
    assert performing_rewards(received, spy % len(received), beta, lam).sum() == pytest.approx(0, abs=1e-12)


@given(VOTES, st.integers(0, 8), st.randoms(use_true_random=False))
def test_renaming_the_players_renames_the_rewards(received: list[int], spy: int, draw: object) -> None:
    spy %= len(received)
    order = draw.sample(range(len(received)), len(received))  # type: ignore[attr-defined]
    rewards = performing_rewards(received, spy, 0.1, 0.2)
    renamed = performing_rewards([received[seat] for seat in order], order.index(spy), 0.1, 0.2)
    assert renamed == pytest.approx([rewards[seat] for seat in order])
    (advantages,), _ = role_advantages([(spy, list(rewards))], ZERO, "update_first", 0.9)
    (others,), _ = role_advantages([(order.index(spy), list(renamed))], ZERO, "update_first", 0.9)
    assert others == pytest.approx([advantages[seat] for seat in order])


GAMES = [(0, [-0.4, 0.1, 0.3]), (2, [0.0, -0.2, 0.2])]


def test_baselines_by_hand() -> None:
    """decay 0.5. Spies: 0 -> -0.2 -> 0. Civilians' means 0.2, -0.1: 0 -> 0.1 -> 0."""
    first, after = role_advantages(GAMES, ZERO, "update_first", 0.5)
    assert np.concatenate(first) == pytest.approx([-0.2, 0, 0.2, 0, -0.2, 0.2])
    read, same = role_advantages(GAMES, ZERO, "read_first", 0.5)
    assert np.concatenate(read) == pytest.approx([-0.4, 0.1, 0.3, -0.1, -0.3, 0.4])
    assert after == same == {"spy": pytest.approx(0), "civilian": pytest.approx(0)}
    none, kept = role_advantages(GAMES, ZERO, "none", 0.0)
    assert np.concatenate(none).tolist() == [-0.4, 0.1, 0.3, 0.0, -0.2, 0.2] and kept == ZERO


@pytest.mark.parametrize("rule", ["update_first", "read_first"])
def test_constant_rewards_leave_nothing(rule: str) -> None:
    games = [(1, [0.1, -0.2, 0.1])] * 200
    advantages, baselines = role_advantages(games, ZERO, rule, 0.9)  # type: ignore[arg-type]
    assert baselines == {"spy": pytest.approx(-0.2), "civilian": pytest.approx(0.1)}
    assert advantages[-1] == pytest.approx([0, 0, 0], abs=1e-8)
    assert advantages[0] == pytest.approx([0.09, -0.18, 0.09] if rule == "update_first" else [0.1, -0.2, 0.1])


def test_without_decay_the_spy_is_its_own_baseline() -> None:
    (advantages,), _ = role_advantages([(0, [-0.4, 0.1, 0.3])], {"spy": 7.0, "civilian": 7.0}, "update_first", 0.0)
    assert advantages == pytest.approx([0, -0.1, 0.1])  # the civilians' average to 0


def test_two_halves_of_the_games_are_as_good_as_all_at_once() -> None:
    whole, after = role_advantages(GAMES, ZERO, "update_first", 0.9)
    one, between = role_advantages(GAMES[:1], ZERO, "update_first", 0.9)
    two, last = role_advantages(GAMES[1:], between, "update_first", 0.9)
    assert np.array_equal(whole, [*one, *two]) and last == after and ZERO == {"spy": 0.0, "civilian": 0.0}


def test_detection_rewards() -> None:
    assert [detection_reward(one) for one in ("right", "abstained", "wrong")] == [1, 0, 0]  # type: ignore[arg-type]
    assert [detection_reward(one, True) for one in ("right", "abstained", "wrong")] == pytest.approx([2.49, -0.3, -0.9])  # type: ignore[arg-type]
    assert [detection_reward(one, False) for one in ("right", "abstained", "wrong")] == pytest.approx(
        [1.89, -0.9, -1.5]
    )  # type: ignore[arg-type]


def test_detectors_are_compared_by_the_populations_std() -> None:
    """One of four right: mean 1/4, population variance 3/16."""
    std = 0.1875**0.5 + 1e-4
    rewards = np.array([1.0, 0, 0, 0, 1, 1])
    given = normalised(rewards, ["a"] * 4 + ["b"] * 2, 1e-4, ddof=0)
    assert given == pytest.approx([0.75 / std, *[-0.25 / std] * 3, 0, 0])
