"""Speed of a training step's halves, ours against the neighbours', on one workload in one process.

    python benchmarks/step_time.py                  # the small workload below
    python benchmarks/step_time.py --model FOLDER   # the same on real weights, e.g. models/smollm2

The workload: 64 rows, 8 prompts of 8 samples, completion lengths log-normal around a mean of 67 with a longest of 256,
3 of 8 groups dead (all rewards equal). Both sides are forced to the same lengths, decode greedily so that their tokens
can be compared, and take turns; figures are medians of the repetitions. One thread.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)

from judgefree.config import Sampling
from judgefree.sampling import transformers_engine

GROUPS, GROUP_SIZE, DEAD_GROUPS = 8, 8, 3
LONGEST, SPREAD = 256, 0.63


@dataclass(frozen=True)
class Workload:
    """prompts: token ids of each group; lengths: completion tokens (groups, samples); dead: groups without signal."""

    model: Any
    prompts: list[list[int]]
    lengths: torch.Tensor
    dead: list[int]

    @property
    def row_lengths(self) -> list[int]:
        return self.lengths.flatten().tolist()


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


def workload(model: PreTrainedModel, prompt_tokens: int, seed: int = 0) -> Workload:
    """Random prompts of `prompt_tokens` tokens, and the lengths of `ragged_lengths`."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = model.config.get_text_config().vocab_size
    prompts = torch.randint(3, vocabulary, (GROUPS, prompt_tokens), generator=generator).tolist()
    return Workload(model, prompts, ragged_lengths(generator), list(range(DEAD_GROUPS)))


def ragged_lengths(generator: torch.Generator) -> torch.Tensor:
    """(groups, samples) integers in random order: the 64 mid-quantiles of a log-normal distribution, the longest of
    them LONGEST. They are fixed, not drawn, so that every seed gives the same amount of work (a mean of 67)."""
    rows = GROUPS * GROUP_SIZE
    normal = torch.special.ndtri((torch.arange(rows, dtype=torch.float64) + 0.5) / rows)
    lengths = (LONGEST * (SPREAD * (normal - normal.max())).exp()).round().long()
    return lengths[torch.randperm(rows, generator=generator)].view(GROUPS, GROUP_SIZE)


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
        stopping_criteria=StoppingCriteriaList([AtLength(width, work.row_lengths)]),
    )
    return [ids[:length] for ids, length in zip(output[:, width:].tolist(), work.row_lengths, strict=True)]


def by_judgefree(work: Workload) -> list[list[int]]:
    """The same completions by our sampler."""
    rows = [transformers_engine.Row(i // GROUP_SIZE, length) for i, length in enumerate(work.row_lengths)]
    settings = Sampling(temperature=1.0, max_completion_tokens=LONGEST)
    transformers_engine.complete(work.model, work.prompts, rows, settings, lambda ids: False, len(rows))
    return [row.ids for row in rows]


def alternate(first: Callable[[], object], second: Callable[[], object], repetitions: int) -> tuple[float, float]:
    """Median seconds of either, in turns, so that a change of the machine's load hits both."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repetitions):
        for function, times in zip((first, second), seconds, strict=True):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def compare_sampling(model: PreTrainedModel, prompt_tokens: int, repetitions: int) -> float:
    """Prints and returns how many times faster our sampler is than `generate`, after checking equal tokens."""
    work = workload(model, prompt_tokens)
    theirs, ours = by_generate(work), by_judgefree(work)
    different = sum(a != b for a, b in zip(theirs, ours, strict=True))
    if different:
        raise SystemExit(f"sampling, prompts of {prompt_tokens}: {different} of {len(ours)} completions differ")
    slow, fast = alternate(lambda: by_generate(work), lambda: by_judgefree(work), repetitions)
    print(
        f"sampling, prompts of {prompt_tokens:3d} tokens: generate {slow:6.2f} s, judgefree {fast:6.2f} s, "
        f"{slow / fast:.2f} times as fast; {sum(map(len, ours))} greedy tokens identical",
        flush=True,
    )
    return slow / fast


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny-bench", help="tiny-bench, or a model folder")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[60, 600])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.model == "tiny-bench":
        model = bench_model()
    else:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    for prompt_tokens in options.prompt_tokens:
        compare_sampling(model, prompt_tokens, options.repetitions)


if __name__ == "__main__":
    main()
