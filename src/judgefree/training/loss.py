"""The one loss of the project: a closed list of parts, each a line or two, aggregated over the optimizer batch.

    per token   - min(rho A, clip(rho, 1 - low, 1 + high) A)              clipped surrogate (token or sequence ratio)
                  - rho A + w |log rho|            on the selected tokens  KL-Cov   (RLIF, section "KL-Cov")
                  0                                on the selected tokens  Clip-Cov
                + beta (exp(d) - d - 1), d = log pi_ref - log pi           k3 estimate of KL(pi || pi_ref)
                + w_imitation * (- log pi)                                 imitation

All arithmetic is in float32. Log-ratios are masked to 0 and clamped *before* exp: 0 * inf at a padded position, or a
clip after exp, gives NaN gradients with a finite loss.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from judgefree.config import Loss

MAX_LOG_RATIO = 20.0


@dataclass(frozen=True)
class LossInputs:
    """One micro-batch, shapes (B, T) unless said otherwise; `mask` is 1 on completion tokens that count.

    policy_rows: (B, 1), 1 for sampled turns and 0 for turns to imitate, which have neither surrogate nor KL.
    old_logprobs: None means the current ones (first and only update on a rollout: the ratio is 1).
    importance: weights that correct for a sampling engine whose probabilities differ from the trainer's.
    """

    mask: Tensor
    advantages: Tensor
    policy_rows: Tensor
    imitation_weight: Tensor
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    selected: Tensor | None = None
    importance: Tensor | None = None


@dataclass(frozen=True)
class Denominators:
    """Counts over the whole optimizer batch of all processes, dropped rows included, so that neither the micro-batch
    split nor the dropping of dead rows changes the gradient.

    rows: sequences. tokens_here: tokens of this process. tokens_everywhere: tokens of all processes, for `dapo` averaged
    over the updates of one rollout as TRL does. processes: gradients are averaged over them afterwards.
    """

    rows: float
    tokens_here: float
    tokens_everywhere: float
    max_completion_tokens: int
    processes: int


def token_losses(logprobs: Tensor, inputs: LossInputs, settings: Loss) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss per token, (B, T), zero where masked, and per-token statistics of the same shape.

    logprobs: (B, T) log pi(token) in nats, with gradient.
    """
    logprobs = logprobs.float()
    mask = inputs.mask.float()
    old = logprobs.detach() if inputs.old_logprobs is None else inputs.old_logprobs
    log_ratio = bounded((logprobs - old) * mask)
    if settings.ratio == "sequence":
        lengths = mask.sum(-1, keepdim=True).clamp(min=1.0)
        weight = bounded((log_ratio * mask).sum(-1, keepdim=True) / lengths).exp().expand_as(mask)
    else:
        weight = log_ratio.exp()
    advantages = inputs.advantages
    clipped = weight.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    policy = -torch.min(weight * advantages, clipped * advantages)
    if inputs.selected is not None and settings.kl_cov is not None:
        penalised = -weight * advantages + settings.kl_cov.weight * log_ratio.abs()
        policy = torch.where(inputs.selected, penalised, policy)
    if inputs.selected is not None and settings.clip_cov is not None:
        policy = policy.masked_fill(inputs.selected, 0.0)
    if inputs.importance is not None:
        policy = policy * inputs.importance
    outside = ((weight < 1 - settings.clip_low) & (advantages < 0)) | (
        (weight > 1 + settings.clip_high) & (advantages > 0)
    )
    statistics = {"clip_ratio/region_mean": outside.float(), "ratio/abs_log_mean": log_ratio.detach().abs()}
    if inputs.selected is not None:
        statistics["cov/abs_log_ratio"] = log_ratio.detach().abs() * inputs.selected
    if inputs.ref_logprobs is not None:
        raw = (inputs.ref_logprobs - logprobs) * mask
        kl = k3(raw)
        if settings.kl_bias_correction:
            kl = kl * weight
        policy = policy + settings.kl_weight * kl
        statistics["kl"] = kl.detach()
        statistics["kl/clamped"] = (raw.abs() > MAX_LOG_RATIO).float()
    loss = policy * inputs.policy_rows - inputs.imitation_weight * logprobs
    return loss * mask, statistics


def aggregate(losses: Tensor, mask: Tensor, settings: Loss, counts: Denominators) -> Tensor:
    """The micro-batch's share of the optimizer batch's loss, a scalar; the shares of all micro-batches add up. A batch from
    which nothing is learnt (SAVE kept no response) has loss 0.

    grpo     mean over sequences of the mean over their tokens
    bnpo     mean over this process's tokens
    dapo     mean over the tokens of all processes
    dr_grpo  sum over tokens / (sequences * max completion length)
    """
    if settings.aggregation == "grpo":
        lengths = mask.sum(-1).clamp(min=1)
        return (losses.sum(-1) / lengths).sum() * counts.processes / max(counts.rows, 1.0)
    if settings.aggregation == "bnpo":
        return losses.sum() / max(counts.tokens_here, 1.0)
    if settings.aggregation == "dapo":
        return losses.sum() * counts.processes / max(counts.tokens_everywhere, 1.0)
    return losses.sum() * counts.processes / (max(counts.rows, 1.0) * counts.max_completion_tokens)


def k3(log_ratio: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = log pi_ref - log pi clamped to +-20 before exp: finite with a finite gradient."""
    bound = bounded(log_ratio)
    return bound.exp() - bound - 1.0


def bounded(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def covariance(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """(log pi(y) - mean) * (A - mean) over all N tokens of an optimizer batch, both of shape (N,)."""
    return (logprobs - logprobs.mean()) * (advantages - advantages.mean())


def select_kl_cov(covariances: Tensor, share: float) -> Tensor:
    """Boolean (N,): the max(1, int(share * N)) tokens of highest covariance, ties to the earlier one."""
    count = max(1, int(share * covariances.numel()))
    order = torch.sort(covariances, descending=True, stable=True).indices[:count]
    return torch.zeros_like(covariances, dtype=torch.bool).index_fill_(0, order, True)


def select_clip_cov(covariances: Tensor, share: float, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Boolean (N,): a random max(1, int(share * N)) of the tokens with low < covariance < high (all, if fewer)."""
    candidates = ((covariances > low) & (covariances < high)).nonzero().flatten()
    count = min(len(candidates), max(1, int(share * covariances.numel())))
    chosen = candidates[torch.randperm(len(candidates), generator=generator)[:count]]
    return torch.zeros_like(covariances, dtype=torch.bool).index_fill_(0, chosen, True)
