"""Advantages by hand, against a plain oracle, and under the changes that must not matter."""

import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.advantages import EPSILON, group_advantages


def oracle(rewards: list[float], groups: list[str], estimator: str) -> list[float]:
    finite = [r for r in rewards if math.isfinite(r)]
    result = []
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group and math.isfinite(r)]
        if not math.isfinite(reward) or len(members) < 2 or max(members) == min(members):
            result.append(0.0)
            continue
        mean = sum(members) / len(members)
        if estimator == "rloo":
            result.append(reward - (sum(members) - reward) / (len(members) - 1))
        else:
            scale = {"grpo": lambda m=members: statistics.stdev(m) + EPSILON, "dr_grpo": lambda: 1.0,
                     "batch": lambda: statistics.stdev(finite) + EPSILON}[estimator]()  # fmt: skip
            result.append((reward - mean) / scale)
    return result


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "batch"])
def test_against_oracle(estimator: str) -> None:
    draw = random.Random(0)
    for _ in range(10_000):
        size = draw.randrange(1, 13)
        rewards = [draw.choice([0.0, 1.0, draw.uniform(-3, 3), math.nan]) for _ in range(size)]
        groups = [draw.choice("abc") for _ in range(size)]
        advantages, dead = group_advantages(rewards, groups, estimator)  # type: ignore[arg-type]
        assert advantages == pytest.approx(oracle(rewards, groups, estimator), abs=1e-9)
        assert not advantages[dead].any()


def test_by_hand() -> None:
    """Rewards 1, 0, 0, 1: mean 0.5, std (ddof 1) 0.57735; RLOO's baseline of a right one is 1/3."""
    rewards, groups = [1.0, 0.0, 0.0, 1.0], ["g"] * 4
    assert group_advantages(rewards, groups, "grpo")[0] == pytest.approx(
        [0.5 / (math.sqrt(1 / 3) + 1e-4) * s for s in (1, -1, -1, 1)]
    )
    assert group_advantages(rewards, groups, "dr_grpo")[0].tolist() == [0.5, -0.5, -0.5, 0.5]
    assert group_advantages(rewards, groups, "rloo")[0] == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])


def test_batch_scaling_uses_the_batch() -> None:
    """Groups [0, 1] and [0, 3]: std of the four is 1.41421, whatever the group (faults A8)."""
    advantages, dead = group_advantages([0.0, 1.0, 0.0, 3.0], ["a", "a", "b", "b"], "batch")
    assert advantages == pytest.approx(np.array([-0.5, 0.5, -1.5, 1.5]) / (math.sqrt(2) + 1e-4))
    one, _ = group_advantages([0.0, 1.0], ["a", "a"], "batch", [0.0, 1.0, 0.0, 3.0])
    assert one == pytest.approx(advantages[:2])
    _, dead = group_advantages([1.0, 1.0, 0.0, 1.0], ["a", "a", "b", "b"], "batch")
    assert dead.tolist() == [True, True, False, False]  # judged per group, whatever the batch's spread (faults A7)


def test_missing_rewards_poison_nothing() -> None:
    advantages, dead = group_advantages([1.0, math.nan, 0.0, math.nan], ["a", "a", "a", "b"], "grpo")
    assert advantages == pytest.approx([math.sqrt(0.5), 0, -math.sqrt(0.5), 0], rel=1e-3)
    assert dead.tolist() == [False, True, False, True]


rows = st.lists(
    st.tuples(st.sampled_from("abcd"), st.floats(-5, 5).map(lambda x: round(x, 3))), min_size=2, max_size=24
)


@given(rows, st.randoms(), st.sampled_from(["grpo", "dr_grpo", "rloo", "batch"]))
def test_advantages_follow_their_rows(pairs: list[tuple[str, float]], shuffle: random.Random, estimator: str) -> None:
    order = list(range(len(pairs)))
    shuffle.shuffle(order)
    groups, rewards = [g for g, _ in pairs], [r for _, r in pairs]
    plain, _ = group_advantages(rewards, groups, estimator)  # type: ignore[arg-type]
    moved, _ = group_advantages([rewards[i] for i in order], [groups[i] for i in order], estimator)  # type: ignore[arg-type]
    assert moved == pytest.approx(plain[order], abs=1e-9)


@given(rows, st.floats(-100, 100))
def test_a_constant_on_all_rewards_changes_nothing(pairs: list[tuple[str, float]], constant: float) -> None:
    groups, rewards = [g for g, _ in pairs], [r for _, r in pairs]
    plain, dead = group_advantages(rewards, groups, "grpo")
    shifted, _ = group_advantages([r + constant for r in rewards], groups, "grpo")
    assert shifted[~dead] == pytest.approx(plain[~dead], abs=1e-6)
