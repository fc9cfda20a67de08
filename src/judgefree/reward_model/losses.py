"""What a reward model learns by, as pure functions of its scores (SAVE, papers.md section 3).

    L_R    (1 / |Btilde|) sum_i (L+_i + L-_i), on the kept responses of a prompt that has both signs
           L+ = - mean over y in Y+ of log[ exp R(y) / (exp sg V + sum over Y+ of exp R) ]
           L- = - log[ exp sg V / (exp sg V + sum over Y- of exp R) ]
    L_V    (1 / |B|) sum_i (V(x_i) - mean_j sg R(x_i, y_ij))^2, on all prompts and all responses

All scores are float32; exponentials meet in logsumexp alone, so that no score overflows. Stop-gradients (sg) are taken here
and not left to the caller: the value head gets no gradient from L_R, backbone and reward head get none from L_V (V is read
from a detached hidden state, model.py).
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def positive_loss(rewards: Tensor, value: Tensor) -> Tensor:
    """L+ of one prompt: rewards (P,) of Y+, not empty; value a scalar, without gradient."""
    anchored = torch.cat([value.detach().reshape(1), rewards])
    return torch.logsumexp(anchored, 0) - rewards.mean()


def negative_loss(rewards: Tensor, value: Tensor) -> Tensor:
    """L- of one prompt: rewards (N,) of Y-, not empty; value a scalar, without gradient."""
    anchor = value.detach()
    return torch.logsumexp(torch.cat([anchor.reshape(1), rewards]), 0) - anchor


def reward_loss(
    rewards: Tensor, values: Tensor, positive: Tensor, negative: Tensor, groups: float | None = None
) -> Tensor:
    """L_R, a scalar; 0 without gradient where no prompt has both signs.

    rewards, positive, negative: (B, G), the masks boolean; values: (B,). groups: the count |Btilde| to divide by, where
    other processes or micro-batches hold more of them; these ones where absent.
    """
    both = has_both(positive, negative)
    if not both.any():
        return rewards.new_zeros(())
    losses = [
        positive_loss(rewards[i][positive[i]], values[i]) + negative_loss(rewards[i][negative[i]], values[i])
        for i in both.nonzero().flatten().tolist()
    ]
    return torch.stack(losses).sum() / (len(losses) if groups is None else groups)


def has_both(positive: Tensor, negative: Tensor) -> Tensor:
    """Boolean (B,): the prompts of Btilde."""
    return positive.any(-1) & negative.any(-1)


def value_loss(values: Tensor, rewards: Tensor, counted: Tensor, prompts: float | None = None) -> Tensor:
    """L_V, a scalar: values (B,) with gradient; rewards, counted (B, G). Every prompt has a counted response.

    prompts: the count |B| to divide by, as `groups` of reward_loss."""
    squares = (values - group_means(rewards, counted)) ** 2
    return squares.sum() / (len(values) if prompts is None else prompts)


def group_means(rewards: Tensor, counted: Tensor) -> Tensor:
    """(B,) means of the counted rewards (B, G), without gradient; 0 for a row that has none."""
    weights = counted.to(rewards.dtype)
    return (rewards.detach() * weights).sum(-1) / weights.sum(-1).clamp(min=1.0)


def bradley_terry_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """- mean log sigmoid(R_w - R_l), (N,) each."""
    return -logsigmoid(chosen - rejected).mean()


def highest_lowest_loss(rewards: Tensor, counted: Tensor, groups: float | None = None) -> Tensor:
    """HL-BT: the Bradley-Terry loss of each group's highest against its lowest reward, the earliest of equals; rewards,
    counted (B, G). A group without two different rewards has no pair; groups: the number of pairs to divide by."""
    high, low = _bounds(rewards, counted)
    paired = high.amax(-1) > low.amin(-1)
    if not paired.any():
        return rewards.new_zeros(())
    top, bottom = high.argmax(-1, keepdim=True), low.argmin(-1, keepdim=True)
    differences = (rewards.gather(-1, top) - rewards.gather(-1, bottom))[paired, 0]
    return -logsigmoid(differences).sum() / (len(differences) if groups is None else groups)


def pairs_in(rewards: Tensor, counted: Tensor) -> int:
    """How many groups have a highest and a lowest reward that differ."""
    high, low = _bounds(rewards, counted)
    return int((high.amax(-1) > low.amin(-1)).sum())


def _bounds(rewards: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards without gradient; what is not counted is below all in the first, above all in the second."""
    plain = rewards.detach()
    return plain.masked_fill(~counted, -torch.inf), plain.masked_fill(~counted, torch.inf)
