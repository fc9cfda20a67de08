"""How much faster a reward model scores JudgeBench's rows sorted and batched by tokens than in their own order in batches
of a fixed number of rows, with equal scores.

    JUDGEFREE_MIRROR=... python benchmarks/reward_scoring.py --model FOLDER          # of it the tokenizer alone is used
    JUDGEFREE_MIRROR=... python benchmarks/reward_scoring.py --rows 16 --every 3

The model is a small Llama with random weights and one label. Both ways see the same token ids, pad on the right to the
longest row of a batch and mask the padding. They take turns; times are CPU seconds of this process, so that a machine
that is busy otherwise changes little, and the figure is the ratio of medians. Fixed batches hold `--rows` rows; the token
budget is what they hold in the mean after padding (`--budget` sets another), so that neither has the larger batches.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

from judgefree.config_rewards import Place
from judgefree.reward_benchmarks.loaders import load_set
from judgefree.reward_model.scoring import encode, last_token_scores, token_batches

Rows = list[list[int]]


def random_model(vocabulary: int, max_tokens: int) -> LlamaForSequenceClassification:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=344, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=max_tokens, num_labels=1, pad_token_id=0,
    )  # fmt: skip
    return LlamaForSequenceClassification(config).eval()


def in_order(count: int, rows: int) -> list[list[int]]:
    return [list(range(start, min(start + rows, count))) for start in range(0, count, rows)]


def padded(batches: list[list[int]], ids: Rows) -> int:
    """Tokens that are computed, padding included."""
    return sum(len(batch) * max(len(ids[i]) for i in batch) for batch in batches)


def score(model: LlamaForSequenceClassification, batches: list[list[int]], ids: Rows) -> list[float]:
    scores = [0.0] * len(ids)
    for batch in batches:
        for place, value in zip(batch, last_token_scores(model, [ids[i] for i in batch]), strict=True):
            scores[place] = value
    return scores


def timed(function: Callable[[], list[float]]) -> tuple[list[float], float]:
    start = time.process_time()
    scores = function()
    return scores, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/smollm2"), help="a folder with a chat tokenizer")
    parser.add_argument("--max-tokens", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=16, help="rows of a fixed batch")
    parser.add_argument("--budget", type=int, help="tokens per batch of ours")
    parser.add_argument("--every", type=int, default=1, help="only every n-th pair, for a quick look")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    items = load_set("judge_bench", Place(), False, Path()).items[:: options.every]
    talks = [talk for item in items for talk in item.conversations()]
    encoded = [encode(tokenizer, talk, options.max_tokens) for talk in talks]
    ids = [row for row, _ in encoded]
    model = random_model(len(tokenizer), options.max_tokens)
    fixed = in_order(len(ids), options.rows)
    sorted_ = token_batches([len(row) for row in ids], options.budget or padded(fixed, ids) // len(fixed))
    print(
        f"{len(ids)} conversations, {sum(map(len, ids)):,} tokens, {sum(cut for _, cut in encoded)} cut; computed with "
        f"padding: fixed {padded(fixed, ids):,}, by tokens {padded(sorted_, ids):,}",
        flush=True,
    )
    times, apart = [], 0.0
    for _ in range(options.repetitions):
        slow, slow_s = timed(lambda: score(model, fixed, ids))
        fast, fast_s = timed(lambda: score(model, sorted_, ids))
        apart = max(abs(a - b) for a, b in zip(slow, fast, strict=True))
        if apart > 1e-5:
            raise SystemExit(f"scores differ by up to {apart:.2g}")
        times.append((slow_s, fast_s))
    slow_s, fast_s = (statistics.median(side) for side in zip(*times, strict=True))
    print(
        f"fixed {slow_s:.2f} s, by tokens {fast_s:.2f} s: {slow_s / fast_s:.2f} times the throughput; "
        f"scores equal within {apart:.1e}"
    )


if __name__ == "__main__":
    main()
