"""The workload of the speed benchmarks, and its completions by Transformers' `generate` and by our sampler.

64 rows, 8 prompts of 8 samples, completion lengths log-normal around a mean of 67 with a longest of 256. Both samplers
are forced to the same lengths and decode greedily, so that their tokens can be compared.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, StoppingCriteria, StoppingCriteriaList

from judgefree.config import Sampling
from judgefree.sampling import transformers_engine

GROUPS, GROUP_SIZE = 8, 8
LONGEST, SPREAD = 256, 0.63


@dataclass(frozen=True)
class Workload:
    """prompts: token ids of each group; lengths: completion tokens of every row, group by group."""

    model: Any
    prompts: list[list[int]]
    lengths: list[int]


def bench_model() -> PreTrainedModel:
    """A Llama of 4 layers, hidden size 192 and a vocabulary of 8,192 with random weights: 4.9 M parameters."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8192,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            tie_word_embeddings=False,
        )
    )


def workload(model: Any, prompt_tokens: int, seed: int = 0) -> Workload:
    """Random prompts of `prompt_tokens` tokens, and the lengths of `ragged_lengths`."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = model.config.get_text_config().vocab_size
    prompts = torch.randint(3, vocabulary, (GROUPS, prompt_tokens), generator=generator).tolist()
    return Workload(model, prompts, ragged_lengths(generator))


def ragged_lengths(generator: torch.Generator) -> list[int]:
    """Lengths of all rows in random order: the 64 mid-quantiles of a log-normal distribution, the longest of
    them LONGEST. They are fixed, not drawn, so that every seed gives the same amount of work (a mean of 67)."""
    rows = GROUPS * GROUP_SIZE
    normal = torch.special.ndtri((torch.arange(rows, dtype=torch.float64) + 0.5) / rows)
    lengths = (LONGEST * (SPREAD * (normal - normal.max())).exp()).round().long()
    return lengths[torch.randperm(rows, generator=generator)].tolist()


class AtLength(StoppingCriteria):
    """Ends every row at a length of its own. `generate` pads rows that ended only for criteria that have an
    `eos_token_id`, so this one says that it has none in particular."""

    eos_token_id = None

    def __init__(self, prompt_tokens: int, lengths: list[int]) -> None:
        self.ends = prompt_tokens + torch.tensor(lengths)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        return input_ids.shape[1] >= self.ends


def by_generate(work: Workload) -> list[list[int]]:
    """Greedy completions by Transformers' `generate`, all 64 rows in one batch, as TRL calls it."""
    width = len(work.prompts[0])
    rows = torch.tensor(work.prompts).repeat_interleave(GROUP_SIZE, 0)
    work.model.eval()
    output = work.model.generate(
        rows,
        attention_mask=torch.ones_like(rows),
        do_sample=False,
        max_new_tokens=LONGEST,
        eos_token_id=None,
        pad_token_id=0,
        stopping_criteria=StoppingCriteriaList([AtLength(width, work.lengths)]),
    )
    return [ids[:length] for ids, length in zip(output[:, width:].tolist(), work.lengths, strict=True)]


def by_judgefree(work: Workload) -> list[list[int]]:
    """The same completions by our sampler."""
    rows = [transformers_engine.Row(i // GROUP_SIZE, length) for i, length in enumerate(work.lengths)]
    settings = Sampling(temperature=1.0, max_completion_tokens=LONGEST)
    transformers_engine.complete(work.model, work.prompts, rows, settings, lambda ids: False, len(rows))
    return [row.ids for row in rows]
