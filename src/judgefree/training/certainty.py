"""Self-certainty from the pass that gives the log-probs, without whole logits and without a second look at the vocabulary.

    KL(U || pi) = logsumexp(z) - mean(z) - log|V|      z: logits over the sampling temperature, U uniform over V
    (RLIF, "Completion-level reward"; Intuitor, whose code leaves out the constant log|V|)

The output embedding is linear, z = (W h + b) / temperature. The fused head of TRL gives log pi(y) = z_y - logsumexp(z)
of the token y that was sampled, so logsumexp(z) = z_y - log pi(y); and the mean of linear functions is one more of them:

    KL(U || pi) = ((w_y - mean(W)) h + b_y - mean(b)) / temperature - log pi(y) - log|V|

which costs one product of two vectors per token. W has the logits' width: rows that pad the vocabulary count.
"""

import math
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from judgefree.errors import JudgefreeError

CHUNK_TOKENS = 4096  # tokens whose rows of W are gathered in float32 at once
SCALES = ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")


def linear_head(model: Any) -> nn.Linear:
    """The output embedding of a causal language model whose logits are linear in its last hidden states.

    Raises JudgefreeError for soft-capped or scaled logits, and for weights that are spread over devices.
    """
    config, head = model.config.get_text_config(), model.get_output_embeddings()
    changed = [name for name in SCALES if getattr(config, name, None) not in (None, 1.0)]
    if getattr(config, "final_logit_softcapping", None) is not None:
        changed.append("final_logit_softcapping")
    if changed:
        raise JudgefreeError(
            f"self-certainty wants logits that are linear in the hidden states; this model has {', '.join(changed)}",
            "take another base, or a reward without certainty (options.reward: cluster)",
        )
    if type(head) is not nn.Linear or head.weight.shape != (head.out_features, head.in_features):
        raise JudgefreeError(
            f"self-certainty reads the whole output embedding; here it is a {type(head).__name__}, or spread over devices",
            "take another base, or a reward without certainty (options.reward: cluster)",
        )
    return head


def token_certainty(
    hidden: Tensor, ids: Tensor, logprobs: Tensor, head: nn.Linear, temperature: float, chunk: int = CHUNK_TOKENS
) -> Tensor:
    """KL(U || pi) in nats of every position, (N,) float32.

    hidden: (N, H) last hidden states at the positions that predict `ids`, (N,); logprobs: (N,) log pi(ids) under
    `temperature`; chunk: tokens at a time.
    """
    mean_weight = head.weight.mean(0, dtype=torch.float32)
    mean_bias = 0.0 if head.bias is None else head.bias.mean(dtype=torch.float32)
    parts = []
    for h, y in zip(hidden.split(chunk), ids.split(chunk), strict=True):
        score = ((head.weight[y].float() - mean_weight) * h.float()).sum(-1)
        parts.append(score if head.bias is None else score + head.bias[y].float() - mean_bias)
    return torch.cat(parts) / temperature - logprobs.float() - math.log(head.out_features)


class CertaintyMeter:
    """While open, keeps the last hidden states of the model's newest pass."""

    def __init__(self, model: Any, temperature: float) -> None:
        self.head = linear_head(model)
        self.backbone = model.base_model
        self.temperature = temperature
        self.hidden: Tensor | None = None

    def __enter__(self) -> "CertaintyMeter":
        self.hook = self.backbone.register_forward_hook(self._keep)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.hook.remove()
        self.hidden = None

    def _keep(self, module: Any, inputs: Any, output: Any) -> None:
        self.hidden = output.last_hidden_state

    def means(self, ids: Tensor, mask: Tensor, logprobs: Tensor) -> list[float]:
        """Mean over each row's completion, (B,); all inputs (B, T), the completions of the newest pass."""
        assert self.hidden is not None
        hidden = self.hidden[:, -ids.size(1) - 1 : -1]
        chosen = mask.bool()
        values = torch.zeros(mask.shape, device=mask.device)
        values[chosen] = token_certainty(hidden[chosen], ids[chosen], logprobs[chosen], self.head, self.temperature)
        return (values.sum(-1) / mask.sum(-1).clamp(min=1)).tolist()
