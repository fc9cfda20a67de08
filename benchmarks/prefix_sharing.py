"""How often a long document is read when a spy game is played about it.

    python benchmarks/prefix_sharing.py                  # our engine against `generate`, which reads every player's prompt
    python benchmarks/prefix_sharing.py --engine vllm    # in its environment: vLLM with its prefix cache against without

Real games (rlsvr/game.py, prompts/spyrl-summary.yaml) are played once on a report, from JUDGEFREE_MIRROR where it is set and
of random words otherwise, by a small random model. Then both sides continue the prompts that came up, greedily, and must
give the same tokens. Seconds are medians. What is read went through the model before a first token was drawn, padding
included. One thread. vLLM on CPU wants VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_CPU_KVCACHE_SPACE=1.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from judgefree.config import Sampling
from judgefree.episodes import Completion, Example, Prompt
from judgefree.rlsvr.game import Rules, SpyGame
from judgefree.sampling.transformers_engine import sample
from judgefree.texts import read_texts

ROOT = Path(__file__).parents[1]
HALVES = ("performing", "detecting")
END = 1
Ids = list[list[int]]
Continue = Callable[[Sequence[Prompt], int], tuple[Ids, int]]  # prompts and tokens to draw -> completions, tokens read


def document(tokens: int, seed: int) -> str:
    """A report of about so many tokens (words and signs)."""
    if mirror := os.environ.get("JUDGEFREE_MIRROR"):
        file = Path(mirror) / "govreport" / "leval_gov_report_summ.jsonl"
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        text = max((row["input"] for row in rows), key=len)
    else:
        draw = random.Random(seed)
        text = " ".join(f"w{draw.randrange(2000)}" for _ in range(tokens))
    spans = Whitespace().pre_tokenize_str(text)[:tokens]
    return text[: spans[-1][1][1]]


def small_model(texts: Sequence[str]) -> tuple[Any, Any]:
    """A random Llama of two layers that reads 16,384 positions, and a tokenizer of the words of these texts."""
    split = Whitespace().pre_tokenize_str
    words = ["<pad>", "<eos>", "<unk>", *sorted({word for text in texts for word, _ in split(text)})]
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=16384, initializer_range=0.2, pad_token_id=0, eos_token_id=END,
        bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), tokenizer


class Player:
    """The policy that plays, once, and keeps the prompts of each half."""

    def __init__(self, model: Any, tokenizer: Any, tokens: int) -> None:
        self.model, self.tokenizer, self.tokens = model, tokenizer, tokens
        self.asked: list[list[Prompt]] = []

    def encode_message(self, text: str) -> list[int]:
        return list(self.tokenizer(text)["input_ids"])

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        self.asked.append(list(prompts))
        settings = Sampling(temperature=1.0, max_completion_tokens=self.tokens)
        return sample(
            self.model, self.tokenizer, prompts, n, seed=0, step=0, settings=settings, eos_ids={END}, batch_rows=128
        )

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(values)


def games_played(player: Player, sources: Sequence[str], players: int) -> dict[str, list[Prompt]]:
    rules = Rules(players, "whole", "words", 0.2, None, True, False, 0.1, 0.1)
    game = SpyGame(rules, read_texts(ROOT, "prompts/spyrl-summary.yaml", "prompts"), seed=0)
    policy: Any = player
    games = game.inject([Example(f"report-{i}", source) for i, source in enumerate(sources)], 0)
    game.interact(game.execute(games, policy), policy)
    return dict(zip(HALVES, player.asked, strict=True))


# ---------------------------------------------------------------------------------------------------------------- engines


def counted(model: Any, work: Callable[[], Ids]) -> tuple[Ids, int]:
    """What `work` gives, and the tokens of its passes over more than one position."""
    read = [0]

    def count(module: Any, args: Any, given: dict[str, Any]) -> None:
        rows, width = given["input_ids"].shape
        read[0] += rows * width if width > 1 else 0

    hook = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        return work(), read[0]
    finally:
        hook.remove()


def by_judgefree(model: Any, tokenizer: Any) -> Continue:
    def go_on(prompts: Sequence[Prompt], tokens: int) -> Ids:
        done = sample(
            model, tokenizer, prompts, 1, seed=0, step=0, settings=Sampling(temperature=1.0, max_completion_tokens=tokens),
            eos_ids=set(), batch_rows=128, greedy=True,
        )  # fmt: skip
        return [one.ids for [one] in done]

    return lambda prompts, tokens: counted(model, lambda: go_on(prompts, tokens))


def by_generate(model: Any) -> Continue:
    """One row a player."""

    def go_on(prompts: Sequence[Prompt], tokens: int) -> Ids:
        width = max(len(one.ids) for one in prompts)
        rows = torch.tensor([[0] * (width - len(one.ids)) + one.ids for one in prompts])
        mask = torch.tensor([[0] * (width - len(one.ids)) + [1] * len(one.ids) for one in prompts])
        made = model.generate(
            rows, attention_mask=mask, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
        return made[:, width:].tolist()

    return lambda prompts, tokens: counted(model, lambda: go_on(prompts, tokens))


def by_vllm(folder: str, cache: bool) -> Continue:
    """With the prefix cache as vLLM has it by default, which TRL and so the engine `vllm` leave alone; or without it."""
    from vllm import LLM, SamplingParams

    off = {} if cache else {"enable_prefix_caching": False}
    llm = LLM(model=folder, dtype="float32", max_model_len=16384, enforce_eager=True, gpu_memory_utilization=0.3, **off)

    def go_on(prompts: Sequence[Prompt], tokens: int) -> tuple[Ids, int]:
        if prompts[0].key[1] == "performer":
            llm.reset_prefix_cache()  # as after every copy of the weights; detectors find what performers left
        outputs = llm.generate(
            [{"prompt_token_ids": one.ids} for one in prompts],
            SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True),
            use_tqdm=False,
        )
        read = sum(len(one.ids) for one in prompts) - sum(output.num_cached_tokens or 0 for output in outputs)
        return [list(output.outputs[0].token_ids) for output in outputs], read

    return go_on


# ----------------------------------------------------------------------------------------------------------- measurement


def measure(
    name: str, engine: Continue, halves: dict[str, list[Prompt]], tokens: int
) -> dict[str, tuple[Ids, int, float]]:
    """Of each half: completions, tokens read, seconds."""
    found = {}
    for half in HALVES:
        start = time.perf_counter()
        ids, read = engine(halves[half], tokens)
        found[half] = (ids, read, time.perf_counter() - start)
    return found


def compare(
    peer: tuple[str, Continue], ours: tuple[str, Continue], halves: dict[str, list[Prompt]], tokens: int, times: int
) -> None:
    """Both in turns; the first round warms up and is not counted."""
    rounds = [[measure(name, engine, halves, tokens) for name, engine in (peer, ours)] for _ in range(times + 1)]
    total = [0, 0.0, 0, 0.0]
    for half in HALVES:
        (theirs, their_read, _), (mine, read, _) = (side[half] for side in rounds[-1])
        if different := sum(a != b for a, b in zip(theirs, mine, strict=True)):
            raise SystemExit(f"{half}: {different} of {len(mine)} completions differ")
        slow, fast = (statistics.median(one[side][half][2] for one in rounds[1:]) for side in (0, 1))
        prompts = [len(one.ids) for one in halves[half]]
        print(
            f"{half:10s} {len(prompts)} prompts, {sum(prompts):,} tokens: {peer[0]} reads {their_read:,} in {slow:.2f} s, "
            f"{ours[0]} {read:,} in {fast:.2f} s: {their_read / read:.2f} times fewer, {slow / fast:.2f} times as fast; "
            f"{sum(map(len, mine))} greedy tokens identical", flush=True,
        )  # fmt: skip
        total = [total[0] + their_read, total[1] + slow, total[2] + read, total[3] + fast]
    print(f"{'both':10s} {total[0] / total[2]:.2f} times fewer tokens read, {total[1] / total[3]:.2f} times as fast")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--tokens", type=int, default=8000, help="of the document")
    parser.add_argument("--completion", type=int, default=16, help="tokens of an output")
    parser.add_argument("--games", type=int, default=1)
    parser.add_argument("--players", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    sources = [document(options.tokens - 37 * game, game) for game in range(options.games)]
    words = [*sources, (ROOT / "prompts" / "spyrl-summary.yaml").read_text(), "1 2 3 4 5 6 7 8 9 20 *"]
    model, tokenizer = small_model(words)
    halves = games_played(Player(model, tokenizer, options.completion), sources, options.players)
    if options.engine == "transformers":
        peer, ours = ("generate", by_generate(model)), ("judgefree", by_judgefree(model, tokenizer))
        compare(peer, ours, halves, options.completion, options.repetitions)
        return
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        without, cached = by_vllm(folder, cache=False), by_vllm(folder, cache=True)
        compare(("vLLM without", without), ("with its cache", cached), halves, options.completion, options.repetitions)


if __name__ == "__main__":
    main()
