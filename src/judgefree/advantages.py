"""From rewards to advantages: pure functions on numpy arrays, in float64, grouped by id and never by position.

`papers.md` names the sources: GRPO and its std with ddof = 1, Dr.GRPO without the std, RLOO's leave-one-out baseline,
batch scaling as in TRL's scale_rewards="batch".
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-4  # TRL's; added to a standard deviation before dividing

Estimator = Literal["grpo", "dr_grpo", "rloo", "batch"]
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
