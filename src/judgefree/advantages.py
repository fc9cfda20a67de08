"""From rewards to advantages: pure functions on numpy arrays, in float64, grouped by id and never by position.

`papers.md` names the sources: GRPO and its std with ddof = 1, Dr.GRPO without the std, RLOO's leave-one-out baseline,
batch scaling as in TRL's scale_rewards="batch", GDPO for several reward channels, SpyRL's rewards of a game and its
baselines per role.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-4  # TRL's; added to a standard deviation before dividing

Estimator = Literal["grpo", "dr_grpo", "rloo", "batch"]
BaselineRule = Literal["update_first", "read_first", "none"]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def group_advantages(
    rewards: Sequence[float],
    groups: Sequence[str],
    estimator: Estimator,
    batch_rewards: Sequence[float] | None = None,
) -> tuple[Floats, Bools]:
    """Advantages of single-channel rewards and the rows that are dead.

    rewards: (R,), NaN where a row has no reward (a grader's error or time-out): it gets advantage 0, is dead, and takes
        no part in any statistic.
    groups: (R,) ids; the rows of one prompt and role share one.
    batch_rewards: for `batch`, the rewards of all processes; the given ones where absent.

    grpo     (R - mean_g) / (std_g + 1e-4), std with ddof = 1
    dr_grpo  R - mean_g
    rloo     R - mean of the group's other rewards = G / (G - 1) * (R - mean_g)
    batch    (R - mean_g) / (std of the batch + 1e-4)

    A group whose finite rewards are all equal, or that has only one, is dead: its advantages are exactly 0.
    """
    values = np.asarray(rewards, dtype=np.float64)
    if len(values) != len(groups):
        raise ValueError(f"{len(values)} rewards for {len(groups)} group ids")
    advantages = np.zeros_like(values)
    dead = np.ones(len(values), dtype=bool)
    for rows in group_rows(groups).values():
        kept = rows[np.isfinite(values[rows])]
        if len(kept) < 2 or np.ptp(values[kept]) == 0:
            continue
        centred = values[kept] - values[kept].mean()
        advantages[kept] = centred * _scale(values[kept], estimator)
        dead[kept] = False
    if estimator == "batch":
        everything = np.asarray(values if batch_rewards is None else batch_rewards, dtype=np.float64)
        advantages /= np.nanstd(everything, ddof=1) + EPSILON if np.isfinite(everything).sum() > 1 else 1.0
    return advantages, dead


def channel_advantages(
    channels: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    groups: Sequence[str],
    *,
    combine_then_normalise: bool = False,
    epsilon: float = EPSILON,
) -> tuple[Floats, Bools]:
    """Advantages of several reward channels and the rows that are dead (GDPO; RLIF, "Normalization and advantage").

    channels: (R,) raw rewards each, NaN where a row has none: the channel is left out of that row and the row of the
        channel's statistics.
    weights: of the same names; a channel of weight 0 takes no part.

    GDPO                     A = sum_k w_k (R_k - mean_g R_k) / (std_g R_k + e), std with ddof = 1
    combine_then_normalise   A = the same of the one reward sum_k w_k R_k (the ablation); a row that lacks a channel has none

    A row is dead if it has a signal in no channel: each is missing there, or constant in the row's group. It is judged
    on raw rewards, channel by channel, so that channels which cancel out do not pass for a group without signal.
    """
    if channels.keys() != weights.keys():
        raise ValueError(f"channels {sorted(channels)} and weights {sorted(weights)} differ")
    values = {name: np.asarray(rewards, dtype=np.float64) for name, rewards in channels.items() if weights[name]}
    dead = np.ones(len(groups), dtype=bool)
    for rewards in values.values():
        dead &= group_advantages(rewards.tolist(), groups, "dr_grpo")[1]
    if combine_then_normalise:
        combined = np.sum([weights[name] * rewards for name, rewards in values.items()], axis=0)
        return np.where(dead, 0.0, normalised(combined, groups, epsilon)), dead
    total = np.zeros(len(groups))
    for name, rewards in values.items():
        total += weights[name] * normalised(rewards, groups, epsilon)
    return total, dead


def whiten(advantages: Floats, dead: Bools, everyone: Sequence[float], epsilon: float = EPSILON) -> Floats:
    """(A - mean) / (std + e) by the statistics of all processes' advantages, `everyone`, dead rows included as in TRL;
    what is dead stays exactly 0."""
    batch = np.asarray(everyone, dtype=np.float64)
    if len(batch) < 2 or np.ptp(batch) == 0:
        return np.zeros_like(advantages)
    return np.where(dead, 0.0, (advantages - batch.mean()) / (batch.std(ddof=1) + epsilon))


def normalised(rewards: Floats, groups: Sequence[str], epsilon: float, ddof: int = 1) -> Floats:
    """Each group's finite rewards minus their mean, over their std + epsilon; 0 where a reward is missing or its group
    constant. ddof: 0 for the population's std."""
    result = np.zeros(len(groups))
    for rows in group_rows(groups).values():
        kept = rows[np.isfinite(rewards[rows])]
        if len(kept) > 1 and np.ptp(rewards[kept]) > 0:
            group = rewards[kept]
            result[kept] = (group - group.mean()) / (group.std(ddof=ddof) + epsilon)
    return result


# ------------------------------------------------------------------------------------------------------- roles of a game


def performing_rewards(received: Sequence[int], spy: int, beta: float, lam: float) -> Floats:
    """Rewards of a game's players, (n,), whose sum is 0 (SpyRL, Eq. 6).

    received: votes for each player, m; spy: its seat u, from 0. With mbar the mean of m over the n - 1 civilians:

    spy       -beta (m_u - mbar)
    civilian  beta / (n - 1) (m_u - mbar) - lam (m_j - mbar)
    """
    votes = np.asarray(received, dtype=np.float64)
    civilians = np.arange(len(votes)) != spy
    mean = votes[civilians].mean()
    rewards: Floats = beta / civilians.sum() * (votes[spy] - mean) - lam * (votes - mean)
    rewards[spy] = -beta * (votes[spy] - mean)
    return rewards


def role_advantages(
    games: Sequence[tuple[int, Sequence[float]]], baselines: Mapping[str, float], rule: BaselineRule, decay: float
) -> tuple[list[Floats], dict[str, float]]:
    """Rewards of each game's players minus a moving mean of their role's, and the means afterwards (SpyRL, role-advantage
    estimation).

    games: the spy's seat and the rewards, in the order in which they move the means; baselines: of `spy` and `civilian`, 0
    at a run's start. A run plays one task, so the means are the task's.

    update_first  b <- decay b + (1 - decay) r, then A = r - b (the paper's code); r of the civilians is their mean
    read_first    A = r - b, then the same (SPIRAL)
    none          A = r, and nothing is kept (ablation)
    """
    after = dict(baselines)
    advantages = []
    for spy, rewards in games:
        values = np.asarray(rewards, dtype=np.float64)
        civilians = np.arange(len(values)) != spy
        before = after
        after = {
            "spy": decay * before["spy"] + (1 - decay) * float(values[spy]),
            "civilian": decay * before["civilian"] + (1 - decay) * float(values[civilians].mean()),
        }
        used = after if rule == "update_first" else before
        advantages.append(values if rule == "none" else values - np.where(civilians, used["civilian"], used["spy"]))
    return advantages, dict(baselines) if rule == "none" else after


def detection_reward(outcome: Literal["right", "abstained", "wrong"], form: bool | None = None) -> float:
    """What a detector earns: 1 if right, else 0 (the paper); or, with `form`, whether it thought and answered, the released
    code's 0.3 (2 form - 1) + 1.2 a + 0.99 [a > 0] with a = 1 if right, -0.5 if it abstained, else -1."""
    if form is None:
        return float(outcome == "right")
    a = {"right": 1.0, "abstained": -0.5, "wrong": -1.0}[outcome]
    return 0.3 * (2 * form - 1) + 1.2 * a + 0.99 * (a > 0)


def group_rows(groups: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Row numbers of each group, groups in order of first appearance."""
    rows: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    return {group: np.asarray(members, dtype=np.int64) for group, members in rows.items()}


def _scale(group: Floats, estimator: Estimator) -> float:
    if estimator == "grpo":
        return float(1.0 / (group.std(ddof=1) + EPSILON))
    if estimator == "rloo":
        return len(group) / (len(group) - 1)
    return 1.0
