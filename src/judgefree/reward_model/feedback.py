"""The feedback filter of SAVE: which of the policy's responses the reward model learns from, by its own confidence.

    p(t) = min(1 - m0 + t / T, 1)      mu(t) = (2 - p(t)) / 2      keep y iff |a| >= logit(mu(t)),  a = R(x, y) - V(x)

mu falls from (1 + m0) / 2 at t = 0 to 1/2, where all are kept, at t = m0 T. t counts the updates of the reward model from 0.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from judgefree.reward_model.losses import has_both


@dataclass(frozen=True)
class Feedback:
    """Boolean masks (B, G): kept = positive or negative, disjoint. `threshold` is the least |a| that was kept."""

    positive: Tensor
    negative: Tensor
    threshold: float

    @property
    def kept(self) -> Tensor:
        return self.positive | self.negative

    @property
    def both(self) -> Tensor:
        """Boolean (B,): prompts with kept responses of both signs, Btilde."""
        return has_both(self.positive, self.negative)


def pass_rate(step: int, steps: int, m0: float) -> float:
    """p(t) = min(1 - m0 + t / T, 1)."""
    return min(1.0 - m0 + step / steps, 1.0)


def threshold(step: int, steps: int, m0: float | None) -> float:
    """logit(mu(t)), the least |a| that is kept; 0, all are kept, where m0 is None (no curriculum: mu = 1/2 for all t)."""
    if m0 is None:
        return 0.0
    mu = (2.0 - pass_rate(step, steps, m0)) / 2.0
    return math.log(mu / (1.0 - mu)) if mu < 1.0 else math.inf


def select(advantages: Tensor, counted: Tensor, least: float) -> Feedback:
    """The feedback in RM advantages a (B, G): kept with a >= 0, and with a < 0. What is not `counted` is in neither."""
    kept = counted & (advantages.abs() >= least)
    return Feedback(kept & (advantages >= 0), kept & (advantages < 0), least)


def advantages_of(rewards: Tensor, anchors: Tensor) -> Tensor:
    """a = R - V, (B, G), of rewards (B, G) and anchors (B,), without gradient."""
    return rewards.detach() - anchors.detach().unsqueeze(-1)
