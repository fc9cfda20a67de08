"""Stage 2: the value head learns what the policy that will train earns on average (SAVE, papers.md section 3.2).

Backbone and reward head are frozen, so the hidden states of the prompts are read once and the head is fitted on them:
L_V(psi) = (V(x) - mean over K responses of R(x, y))^2, AdamW. The head's bias begins at the mean of all rewards.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from judgefree.config import PromptFormat
from judgefree.config_reward_models import ValueFit
from judgefree.episodes import Completion, Example, Prompt, stream_seed
from judgefree.errors import JudgefreeError
from judgefree.prompting import encode_question
from judgefree.reward_model.model import ValueAnchoredRewardModel, reading
from judgefree.reward_model.scoring import token_batches
from judgefree.sampling.rules import end_ids
from judgefree.sampling.transformers_engine import sample


def sample_policy(
    policy: Any, tokenizer: Any, examples: Sequence[Example], prompt: PromptFormat, fit: ValueFit, seed: int
) -> list[list[Completion]]:
    """K responses to every question. Raises JudgefreeError for a question above `max_prompt_tokens`."""
    prompts = [Prompt(encode_question(tokenizer, prompt, e.question), (e.id, "value", 0)) for e in examples]
    for example, one in zip(examples, prompts, strict=True):
        if len(one.ids) > fit.max_prompt_tokens:
            raise JudgefreeError(
                f"question {example.id} has {len(one.ids)} tokens, above value_fit.max_prompt_tokens "
                f"({fit.max_prompt_tokens})", "raise it, or remove the question",
            )  # fmt: skip
    return sample(
        policy, tokenizer, prompts, fit.samples, seed=seed, step=0, settings=fit.sampling, stop=prompt.stop,
        eos_ids=end_ids(policy, tokenizer), batch_rows=fit.sampling_batch_rows,
    )  # fmt: skip


def fit_values(
    model: ValueAnchoredRewardModel,
    prompts: Sequence[list[int]],
    targets: Sequence[float],
    fit: ValueFit,
    tokens: int,
    seed: int,
) -> dict[str, float]:
    """Fit the head to one target a prompt; tokens: of one pass. Returns the root mean square error before (of the mean
    alone) and after."""
    hidden = _hidden(model, prompts, tokens)
    wanted = torch.tensor(targets, device=hidden.device)
    head = model.value_head
    with torch.no_grad():
        head.bias.fill_(wanted.mean())
    before = _error(head, hidden, wanted)
    optimizer = torch.optim.AdamW(head.parameters(), lr=fit.learning_rate, weight_decay=0.0)
    for epoch in range(fit.epochs):
        order = np.random.default_rng(stream_seed(seed, "values", epoch)).permutation(len(prompts))
        for start in range(0, len(order), fit.batch_size):
            members = order[start : start + fit.batch_size].tolist()
            optimizer.zero_grad()
            ((head(hidden[members])[:, 0] - wanted[members]) ** 2).mean().backward()
            optimizer.step()
    return {"value_error_of_mean": before, "value_error": _error(head, hidden, wanted)}


def _hidden(model: ValueAnchoredRewardModel, prompts: Sequence[list[int]], tokens: int) -> Tensor:
    found = torch.empty(len(prompts), model.value_head.in_features, device=model.device)
    with reading(model):
        for batch in token_batches([len(ids) for ids in prompts], tokens):
            found[batch] = model.hidden([prompts[i] for i in batch])
    return found


@torch.no_grad()
def _error(head: nn.Linear, hidden: Tensor, wanted: Tensor) -> float:
    return float(((head(hidden)[:, 0] - wanted) ** 2).mean().sqrt())
