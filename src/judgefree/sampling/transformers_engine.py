"""Sampling on Transformers' public cache calls, without vLLM.

Three things make it faster than `generate` on ragged rollouts: a prompt is read once for all its samples and for those of
equal prompts (players who are told the same), and a long beginning once for all prompts of a batch that share it
(prefixes.py); a finished row leaves the batch at once; and only the last position's logits are computed.

Every row draws from a random stream of its own, seeded by (seed, step, prompt key, sample): neither the other rows,
nor the batch size, nor the order of the prompts changes a row's tokens, and any prompt can be sampled again alone.
Tokens are drawn by the Gumbel-max trick (argmax of logits plus Gumbel noise), not by inverting the cumulative
distribution: batches of different shapes differ in the last bits of their logits, and over a vocabulary of 8,192 these
flipped 4 in 10,000 inverted draws, but none in 200,000 Gumbel draws. Streams of CPU and GPU differ.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from judgefree import config
from judgefree.episodes import Completion, Prompt, stream_seed
from judgefree.errors import JudgefreeError
from judgefree.sampling import prefixes
from judgefree.sampling.rules import check_keys, completion, cut_at_stop, shown_text, token_limits


class NonFiniteLogits(JudgefreeError):
    """The model computes NaN or infinity: its weights are broken, and no token can be drawn."""


@dataclass
class Row:
    """One completion in the making: the index of its prompt, the most tokens it may have, and its random stream
    (None: the most likely token is taken)."""

    prompt: int
    limit: int
    stream: torch.Generator | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    n: int,
    *,
    seed: int,
    step: int,
    settings: config.Sampling,
    eos_ids: Collection[int],
    batch_rows: int,
    greedy: bool = False,
    stop: Sequence[str] = (),
    keep_logprobs: bool = False,
) -> list[list[Completion]]:
    """`n` completions of every prompt, in the prompts' order.

    At most `batch_rows` rows are computed at a time; a prompt's rows stay together where they fit. A completion ends
    with one of `eos_ids`, with the token that completes one of the `stop` strings, at `max_completion_tokens` or where
    the model's positions end (see `rules.completion` for its ids, text and reason). Log-probabilities are those of the
    distribution that was drawn from (temperature, top_k and top_p applied); with `greedy`, of the model's own.
    Gradients are off and the model is in eval mode meanwhile.

    Raises JudgefreeError for a prompt that is empty or too long, and NonFiniteLogits.
    """
    limits = token_limits(prompts, settings.max_completion_tokens, max_positions(model))
    if not greedy:
        check_keys(prompts)
    first: dict[tuple[int, ...], int] = {}  # equal prompts are read once, whatever their keys
    for index, prompt in enumerate(prompts):
        first.setdefault(tuple(prompt.ids), index)
    rows = [
        Row(first[tuple(prompt.ids)], limit, None if greedy else _stream(model.device, seed, step, *prompt.key, i))
        for prompt, limit in zip(prompts, limits, strict=True)
        for i in range(n)
    ]
    ended = _end_test(tokenizer, eos_ids, stop)
    complete(model, [prompt.ids for prompt in prompts], rows, settings, ended, batch_rows, keep_logprobs)
    done = [
        completion(
            row.ids,
            row.logprobs if keep_logprobs else None,
            tokenizer=tokenizer,
            eos_ids=eos_ids,
            stop=stop,
            limit=row.limit,
        )
        for row in rows
    ]
    return [done[start : start + n] for start in range(0, len(done), n)]


def complete(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    rows: Sequence[Row],
    settings: config.Sampling,
    ended: Callable[[list[int]], bool],
    batch_rows: int,
    keep_logprobs: bool = False,
) -> None:
    """Extends every row until `ended(ids)` or its limit; `prompts` are token ids, which rows name by index."""
    with _inference(model):
        for batch in batches(prompts, rows, batch_rows):
            _complete_batch(model, prompts, batch, settings, ended, keep_logprobs)


def batches(prompts: Sequence[list[int]], rows: Sequence[Row], batch_rows: int) -> Iterator[list[Row]]:
    """Rows in batches of at most `batch_rows`: prompts of like length together, a prompt split only when it alone has
    more rows. The longest prompts come first, so that memory runs out at once or never."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.prompt, []).append(row)
    batch: list[Row] = []
    for _, group in sorted(groups.items(), key=lambda item: -len(prompts[item[0]])):
        if batch and len(batch) + len(group) > batch_rows:
            yield batch
            batch = []
        while len(group) > batch_rows:
            yield group[:batch_rows]
            group = group[batch_rows:]
        batch = batch + group
    if batch:
        yield batch


def _complete_batch(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    rows: list[Row],
    settings: config.Sampling,
    ended: Callable[[list[int]], bool],
    keep_logprobs: bool,
) -> None:
    read = list(dict.fromkeys(row.prompt for row in rows))
    several = [prompts[index] for index in read]
    tokens, mask, position = _left_padded(several, max(row.limit for row in rows), model.device)
    cache = DynamicCache(config=model.config)
    width, start = tokens.shape[1], 0
    if prefixes.can_share(cache) and (reading := prefixes.plan(several)).heads:
        start, heads = width - reading.tail, reading.heads
        _last_logits(model, cache, tokens[heads, :start], mask[heads, :start], position[heads, :start])
        prefixes.share(cache, reading, [len(prompt) for prompt in several])
    logits = _last_logits(model, cache, tokens[:, start:], mask[:, :width], position[:, start:])
    position = position[:, -1:]

    select = torch.tensor([read.index(row.prompt) for row in rows], device=model.device)
    cache.batch_select_indices(select)
    logits, mask, position = logits[select], mask[select], position[select]
    while True:
        chosen, logprobs = choose(logits, settings, [row.stream for row in rows], keep_logprobs)
        going = _extend(rows, chosen, logprobs, ended)
        if not going:
            return
        if len(going) < len(rows):
            select = torch.tensor(going, device=model.device)
            cache.batch_select_indices(select)
            rows = [rows[i] for i in going]
            chosen, mask, position = chosen[select], mask[select], position[select]
        width, position = width + 1, position + 1
        logits = _last_logits(model, cache, chosen[:, None], mask[:, :width], position)


def _left_padded(
    prompts: list[list[int]], limit: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids (prompts, width), attention mask (prompts, width + limit) and positions (prompts, width).

    The padding's id is 0: it is masked, so any id of the vocabulary does, and a tokenizer without one is no trouble.
    """
    width = max(map(len, prompts))
    tokens = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.ones(len(prompts), width + limit, dtype=torch.long)
    for i, prompt in enumerate(prompts):
        tokens[i, width - len(prompt) :] = torch.tensor(prompt)
        mask[i, : width - len(prompt)] = 0
    position = (mask[:, :width].cumsum(-1) - 1).clamp(min=0)
    return tokens.to(device), mask.to(device), position.to(device)


def _last_logits(
    model: PreTrainedModel, cache: DynamicCache, tokens: torch.Tensor, mask: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """Logits after the last of `tokens` (rows, tokens), in fp32: (rows, vocabulary); the cache grows by `tokens`."""
    output = model(
        input_ids=tokens, attention_mask=mask, position_ids=position, cache=cache, use_cache=True, logits_to_keep=1
    )
    return output.logits[:, -1].float()


def _extend(
    rows: list[Row], chosen: torch.Tensor, logprobs: torch.Tensor | None, ended: Callable[[list[int]], bool]
) -> list[int]:
    """Gives every row its token; the indices of the rows that go on."""
    going = []
    for i, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
        row.ids.append(token)
        if len(row.ids) < row.limit and not ended(row.ids):
            going.append(i)
    if logprobs is not None:
        for row, logprob in zip(rows, logprobs.tolist(), strict=True):
            row.logprobs.append(logprob)
    return going


def choose(
    logits: torch.Tensor,
    settings: config.Sampling,
    streams: Sequence[torch.Generator | None],
    keep_logprobs: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One token per row of `logits` (rows, vocabulary; fp32), drawn from the row's stream or, for rows all without
    one, the most likely; and its log-probability (rows,) under the distribution it comes from, where asked for.

    Raises NonFiniteLogits.
    """
    if streams[0] is None:
        best, chosen = logits.max(-1)
    else:
        logits = truncate(logits / settings.temperature, settings.top_k, settings.top_p)
        best, chosen = (logits + _gumbel(streams, logits)).max(-1)
    # max passes NaN on, so one look at the winners shows whether any logit was NaN or infinite
    if not torch.isfinite(best).all():
        raise NonFiniteLogits(
            "the model's logits are not finite, so no token can be drawn: its weights hold NaN or infinity",
            "start again from an earlier checkpoint with a lower learning_rate or max_grad_norm",
        )
    if not keep_logprobs:
        return chosen, None
    return chosen, logits.gather(-1, chosen[:, None])[:, 0] - logits.logsumexp(-1)


def truncate(logits: torch.Tensor, top_k: int | None, top_p: float | None) -> torch.Tensor:
    """Sets to -inf what is not among the `top_k` largest, then what lies outside the nucleus: the smallest set of most
    likely tokens whose probabilities, renormalised after top_k, sum to at least `top_p` (Holtzman et al. 2020)."""
    if top_k is None and top_p is None:
        return logits
    ordered, index = logits.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[:, top_k:] = -math.inf
    if top_p is not None:
        probability = ordered.softmax(-1)
        before = probability.cumsum(-1) - probability
        before[:, 0] = -math.inf  # the most likely token always stays
        ordered[before >= top_p] = -math.inf
    return torch.empty_like(logits).scatter_(-1, index, ordered)


def _gumbel(streams: Sequence[torch.Generator | None], like: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, a row from each stream. The uniform numbers have 53 bits: with 24, the tail of a
    vocabulary of 100,000 would be coarse."""
    noise = torch.empty(like.shape, dtype=torch.float64, device=like.device)
    for row, stream in zip(noise, streams, strict=True):
        torch.rand(row.shape, generator=stream, out=row)
    return noise.log_().neg_().float().log_().neg_()


def _stream(device: torch.device, *key: str | int) -> torch.Generator:
    return torch.Generator(device).manual_seed(stream_seed(*key))


def _end_test(
    tokenizer: PreTrainedTokenizerBase, eos_ids: Collection[int], stop: Sequence[str]
) -> Callable[[list[int]], bool]:
    """Whether a completion's newest token ends it: an end token, or one that completes a stop string."""
    # a character takes at most four tokens (the bytes of UTF-8), so older tokens cannot be part of a new stop string
    window = 4 * max(map(len, stop), default=0) + 4

    def ended(ids: list[int]) -> bool:
        if ids[-1] in eos_ids:
            return True
        if not stop:
            return False
        text = shown_text(tokenizer, ids[-window:])
        return text != cut_at_stop(text, stop)

    return ended


def max_positions(model: PreTrainedModel) -> int | None:
    """The tokens of prompt and completion together that the model can read; None where it knows no bound."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


@contextmanager
def _inference(model: PreTrainedModel) -> Iterator[None]:
    """No gradient and eval mode; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
