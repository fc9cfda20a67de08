"""Prompts that begin alike share one reading: detectors of a game see the same source, then outputs in orders of their own.

    prompt = head + tail     the tail, of one length in a batch, is read for each prompt
                             a head with which a longer one begins is read with that one

The keys and values of a token depend on what stands before it alone, so a shorter head's are the first ones of the longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

LEAST = 64  # tokens; for a shorter common beginning, such as that of a chat template, a second pass does not pay


@dataclass(frozen=True)
class Reading:
    """How prompts are read. tail: tokens that each reads by itself. heads: the prompts whose heads are read, none where
    nothing is shared; head_of: by prompt, its place in `heads`. tokens: those read, padding included."""

    tail: int
    heads: list[int]
    head_of: list[int]
    tokens: int


def plan(prompts: Sequence[list[int]]) -> Reading:
    """The reading of fewest tokens; no tail is empty, since logits are those of the last token."""
    width = max(map(len, prompts))
    apart = Reading(width, [], [], width * len(prompts))
    order = sorted(range(len(prompts)), key=lambda i: prompts[i])
    common = [_common(prompts[a], prompts[b]) for a, b in pairwise(order)]
    tails = {
        max(1, min(len(prompts[a]), len(prompts[b])) - both)
        for (a, b), both in zip(pairwise(order), common, strict=True)
        if both >= LEAST
    }
    return min([apart, *(_grouped(prompts, order, common, tail) for tail in sorted(tails))], key=lambda one: one.tokens)


def _grouped(prompts: Sequence[list[int]], order: list[int], common: list[int], tail: int) -> Reading:
    """order: of the sorted prompts, so that heads of which one begins with the other are neighbours; common: tokens that
    each of them shares with the next."""
    lengths = [max(0, len(prompt) - tail) for prompt in prompts]
    heads, head_of = [order[0]], [0] * len(prompts)
    shared = len(prompts[order[0]])  # by the newest prompt with the family's longest head
    for i, both in zip(order[1:], common, strict=True):
        shared = min(shared, both)
        if shared < min(lengths[i], lengths[heads[-1]]):
            heads.append(i)
        if lengths[i] >= lengths[heads[-1]]:
            heads[-1], shared = i, len(prompts[i])
        head_of[i] = len(heads) - 1
    width = max(lengths)
    return Reading(tail, heads, head_of, width * len(heads) + tail * len(prompts))


def _common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def can_share(cache: DynamicCache) -> bool:
    """Whether every layer keeps the keys and values of all tokens: a window or a running state is of the last ones."""
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def share(cache: DynamicCache, reading: Reading, lengths: Sequence[int]) -> None:
    """From a row for every head to a row for every prompt; both end at the cache's last column, whatever their length.

    lengths: of the prompts, tokens. What stands left of a head is another's and has to be masked.
    """
    device = cache.layers[0].keys.device
    rows = torch.tensor(reading.head_of, device=device)
    longer = [max(0, lengths[reading.heads[head]] - reading.tail) for head in reading.head_of]
    by = torch.tensor([a - max(0, n - reading.tail) for a, n in zip(longer, lengths, strict=True)], device=device)
    width = cache.layers[0].keys.shape[2]
    columns = (torch.arange(width, device=device) - by[:, None]).clamp(min=0)[:, None, :, None]
    cache.batch_select_indices(rows)
    if by.any():
        for layer in cache.layers:
            layer.keys = layer.keys.gather(2, columns.expand_as(layer.keys))
            layer.values = layer.values.gather(2, columns.expand_as(layer.values))
