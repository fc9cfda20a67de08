"""Several reward channels: GDPO and its ablation by hand, against a plain oracle, and under changes that must not matter."""

import math
import random
import statistics
from typing import Any

import numpy as np
import pytest

from judgefree.advantages import EPSILON, channel_advantages, group_advantages, whiten


def zscores(rewards: list[float], groups: list[str]) -> list[float]:
    result = []
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group and not math.isnan(r)]
        if math.isnan(reward) or len(members) < 2 or max(members) == min(members):
            result.append(0.0)
        else:
            result.append((reward - statistics.fmean(members)) / (statistics.stdev(members) + EPSILON))
    return result


def oracle(channels: dict[str, list[float]], weights: dict[str, float], groups: list[str], combine: bool) -> Any:
    """Row after row in plain Python floats."""
    rows = range(len(groups))
    used = [name for name in channels if weights[name] != 0]
    alive = []
    for row in rows:
        signals = []
        for name in used:
            members = {
                channels[name][i] for i in rows if groups[i] == groups[row] and not math.isnan(channels[name][i])
            }
            signals.append(not math.isnan(channels[name][row]) and len(members) > 1)
        alive.append(any(signals))
    if combine:
        total = zscores([math.fsum(weights[n] * channels[n][i] for n in used) for i in rows], groups)
    else:
        scored = {name: zscores(channels[name], groups) for name in used}
        total = [math.fsum(weights[n] * scored[n][i] for n in used) for i in rows]
    return [value if live else 0.0 for value, live in zip(total, alive, strict=True)], [not live for live in alive]


@pytest.mark.parametrize("combine", [False, True])
def test_against_oracle(combine: bool) -> None:
    draw = random.Random(1)
    for _ in range(2_000 if combine else 10_000):
        size = draw.randrange(1, 13)
        groups = [draw.choice("abc") for _ in range(size)]
        channels = {
            name: [draw.choice([0.0, 1.0, 0.5, draw.uniform(-9, 9), math.nan]) for _ in range(size)]
            for name in ("cluster", "certainty", "third")[: draw.randrange(1, 4)]
        }
        weights = {name: draw.choice([0.0, 0.5, 1.0, 2.0]) for name in channels}
        if not any(weights.values()):
            continue
        advantages, dead = channel_advantages(channels, weights, groups, combine_then_normalise=combine)
        expected, expected_dead = oracle(channels, weights, groups, combine)
        assert advantages == pytest.approx(expected, abs=1e-9)
        assert dead.tolist() == expected_dead
        white = whiten(advantages, dead, advantages.tolist())
        if size > 1 and max(expected) > min(expected):
            mean, std = statistics.fmean(expected), statistics.stdev(expected)
            by_hand = [0.0 if d else (a - mean) / (std + EPSILON) for a, d in zip(expected, expected_dead, strict=True)]
            assert white == pytest.approx(by_hand, abs=1e-8)
        assert not white[dead].any()


TWO = {"cluster": [1.0, 0.5, math.nan, 0.5], "certainty": [0.1, 0.2, 0.3, 0.4]}
HALF = {"cluster": 0.5, "certainty": 0.5}


def test_a_missing_reward_stays_in_its_row_and_channel() -> None:
    """Faults A5. Cluster: mean 2/3, std 0.288675; certainty: mean 0.25, std 0.129099."""
    advantages, dead = channel_advantages(TWO, HALF, ["g"] * 4, epsilon=0.0)
    cluster = [1.154701, -0.577350, 0.0, -0.577350]
    certainty = [-1.161895, -0.387298, 0.387298, 1.161895]
    assert advantages == pytest.approx([0.5 * (a + b) for a, b in zip(cluster, certainty, strict=True)], abs=1e-6)
    assert not dead.any()
    combined, _ = channel_advantages(TWO, HALF, ["g"] * 4, combine_then_normalise=True, epsilon=0.0)
    assert combined == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=1e-6)  # of 0.55, 0.35, missing, 0.45


def test_channels_that_cancel_out_are_not_dead() -> None:
    """Faults A6: judged by the sum, this group would be thrown away; with unequal weights it teaches."""
    channels = {"cluster": [0.0, 1.0], "certainty": [1.0, 0.0]}
    advantages, dead = channel_advantages(channels, HALF, ["g", "g"])
    assert advantages == pytest.approx([0.0, 0.0]) and not dead.any()
    uneven, _ = channel_advantages(channels, {"cluster": 0.75, "certainty": 0.25}, ["g", "g"], epsilon=0.0)
    assert uneven == pytest.approx([-0.5 * math.sqrt(0.5), 0.5 * math.sqrt(0.5)])


def test_dead_only_if_every_channel_is_constant_and_then_zero_after_whitening() -> None:
    channels = {"cluster": [1, 1, 0.5, 0.5, 1, 0.5], "certainty": [2, 2, 3, 4, 7, 9]}
    groups = ["a", "a", "b", "b", "c", "c"]
    advantages, dead = channel_advantages(channels, HALF, groups)
    assert dead.tolist() == [True, True, False, False, False, False]
    shifted = whiten(advantages, dead, [*advantages, 5.0, 7.0])  # the other processes' mean is far from 0
    assert shifted[dead].tolist() == [0.0, 0.0] and shifted[~dead].all()


def test_whitening_by_hand() -> None:
    """-1, 1 here and 3, 5 elsewhere: mean 2, std (ddof 1) sqrt(20 / 3)."""
    white = whiten(np.array([-1.0, 1.0]), np.array([False, False]), [-1.0, 1.0, 3.0, 5.0], epsilon=0.0)
    assert white == pytest.approx([-3 / math.sqrt(20 / 3), -1 / math.sqrt(20 / 3)])


def test_one_channel_is_grpo() -> None:
    rewards, groups = [1.0, 0.0, 0.0, 2.0, 2.0, 2.0], ["a", "a", "a", "b", "b", "b"]
    one, dead = channel_advantages({"r": rewards}, {"r": 1.0}, groups)
    plain, plain_dead = group_advantages(rewards, groups, "grpo")
    assert one == pytest.approx(plain) and dead.tolist() == plain_dead.tolist()


def random_channels(draw: random.Random) -> tuple[dict[str, list[float]], list[str]]:
    size = draw.randrange(4, 25)
    channels = {name: [round(draw.uniform(-3, 3), 3) for _ in range(size)] for name in HALF}
    return channels, [draw.choice("abc") for _ in range(size)]


@pytest.mark.parametrize("seed", range(50))
def test_changes_that_must_not_matter(seed: int) -> None:
    draw = random.Random(seed)
    channels, groups = random_channels(draw)
    plain, _ = channel_advantages(channels, HALF, groups, epsilon=0.0)
    shifted = {**channels, "cluster": [r + 17.0 for r in channels["cluster"]]}
    scaled = {**channels, "certainty": [1000.0 * r for r in channels["certainty"]]}
    assert channel_advantages(shifted, HALF, groups, epsilon=0.0)[0] == pytest.approx(plain, abs=1e-9)
    assert channel_advantages(scaled, HALF, groups, epsilon=0.0)[0] == pytest.approx(plain, abs=1e-9)
    order = draw.sample(range(len(groups)), len(groups))
    moved = {name: [values[i] for i in order] for name, values in channels.items()}
    permuted, _ = channel_advantages(moved, HALF, [groups[i] for i in order], epsilon=0.0)
    assert permuted == pytest.approx(plain[order], abs=1e-9)


def test_combining_first_lets_the_larger_channel_win() -> None:
    """What the ablation is about: scaled by 1,000, certainty decides alone; in GDPO nothing changes."""
    scaled = {"cluster": [1.0, 0.0, 1.0, 0.0], "certainty": [100.0, 200.0, 300.0, 400.0]}
    groups = ["g"] * 4
    alone, _ = channel_advantages({"certainty": scaled["certainty"]}, {"certainty": 1.0}, groups)
    combined, _ = channel_advantages(scaled, HALF, groups, combine_then_normalise=True)
    apart, _ = channel_advantages(scaled, HALF, groups)
    assert combined == pytest.approx(alone, abs=0.01) and np.abs(apart - alone).max() > 0.4


def test_names_must_agree() -> None:
    with pytest.raises(ValueError, match="differ"):
        channel_advantages({"a": [1.0]}, {"b": 1.0}, ["g"])
