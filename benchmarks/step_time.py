"""How much faster a training step is than with the neighbours' code, on one workload, in one process.

    python benchmarks/step_time.py                                # everything, on a small random model
    python benchmarks/step_time.py --model FOLDER --settings dead # on real weights, e.g. models/smollm2

Sampling is measured against `generate` alone, and a whole step against TRL's GRPOTrainer: with 3 of 8 groups dead (all
rewards equal), with none, and with a KL term, which leaves no row out. Both sides take turns; figures are medians of
the repetitions. Tokens and gradients are checked to be equal first. The workload is in workload.py. One thread.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging
from whole_step import SETTINGS, compare_steps
from workload import bench_model, by_generate, by_judgefree, workload


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
    parser.add_argument("--prompt-tokens", type=int, nargs="*", default=[60, 600], help="prompts for sampling alone")
    parser.add_argument("--settings", nargs="*", choices=list(SETTINGS), default=list(SETTINGS), help="of whole steps")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore", FutureWarning)  # TRL's use of old argument names
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if options.model == "tiny-bench":
        model = bench_model()
    else:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    for prompt_tokens in options.prompt_tokens:
        compare_sampling(model, prompt_tokens, options.repetitions)
    for name in options.settings:
        compare_steps(model, SETTINGS[name], options.repetitions)


if __name__ == "__main__":
    main()
