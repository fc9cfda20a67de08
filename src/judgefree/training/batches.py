"""From turns to micro-batches: who learns at which update, which tokens are selected, what is dropped, how it is padded.

Everything that is a statistic of the optimizer batch is computed on all its rows first; only then rows that cannot move
the weights are dropped. None of what happens here may change the gradient (tests/training/test_invariants.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from judgefree.config import Loss
from judgefree.episodes import Turn, stream_seed
from judgefree.training.loss import covariance, select_clip_cov, select_kl_cov

Gather = Callable[[Sequence[Any]], list[Any]]


@dataclass
class Row:
    """A turn with what the loss needs beside it, one value per completion token.

    counts: whether its tokens enter loss and denominators (not so for a truncated completion under `truncated: mask`).
    importance: weights that correct for a sampling engine whose probabilities differ from the trainer's.
    """

    turn: Turn
    counts: bool = True
    ref_logprobs: list[float] | None = None
    importance: list[float] | None = None
    selected: Tensor | None = None

    @property
    def is_policy(self) -> bool:
        return self.turn.imitation_weight == 0.0

    @property
    def tokens(self) -> int:
        return len(self.turn.completion_ids) if self.counts else 0

    def advantages(self) -> list[float]:
        value = self.turn.advantage
        return list(value) if isinstance(value, list) else [float(value)] * len(self.turn.completion_ids)

    def moves(self, kl_weight: float) -> bool:
        """Whether the row can have a gradient. A zero advantage makes the surrogate constant, whatever the ratio."""
        if not self.counts:
            return False
        if not self.is_policy:
            return True
        chosen = self.selected is not None and bool(self.selected.any())
        return kl_weight > 0 or chosen or any(self.advantages())


def split_updates(
    rows_before: int, rows_here: int, rows_all: int, updates: int, seed: int, step: int
) -> list[list[int]]:
    """Which of this process's rows learn at which update of the rollout that begins at `step`.

    One permutation over the rows of all processes decides, so the assignment does not depend on their number;
    `rows_before` counts the rows of the processes before this one.
    """
    order = np.random.default_rng(stream_seed(seed, step, "updates")).permutation(rows_all)
    update_of = np.empty(rows_all, dtype=np.int64)
    for update, members in enumerate(np.array_split(order, updates)):
        update_of[members] = update
    mine = update_of[rows_before : rows_before + rows_here]
    return [[int(row) for row in np.flatnonzero(mine == update)] for update in range(updates)]


def select_tokens(rows: Sequence[Row], settings: Loss, gather: Gather, rank: int, seed: int, step: int) -> None:
    """Mark the tokens of KL-Cov or Clip-Cov over the optimizer batch of all processes, by the old log-probs.

    Ties go to the earlier row and position. Rows that do not count, and turns to imitate, take no part. `gather` joins
    lists over the processes in order; this process is number `rank` of them.
    """
    if settings.kl_cov is None and settings.clip_cov is None:
        return
    taking_part = [row for row in rows if row.counts and row.is_policy]
    everyone = gather([[(row.turn.old_logprobs, row.advantages()) for row in taking_part]])
    before = sum(len(logprobs) for other in everyone[:rank] for logprobs, _ in other)
    pairs = [pair for other in everyone for pair in other]
    if not pairs:
        return
    logprobs = torch.tensor([x for pair in pairs for x in pair[0]], dtype=torch.float64)
    advantages = torch.tensor([x for pair in pairs for x in pair[1]], dtype=torch.float64)
    covariances = covariance(logprobs, advantages)
    if settings.kl_cov is not None:
        chosen = select_kl_cov(covariances, settings.kl_cov.share)
    else:
        assert settings.clip_cov is not None
        generator = torch.Generator().manual_seed(stream_seed(seed, step, "clip-cov"))
        clip = settings.clip_cov
        chosen = select_clip_cov(covariances, clip.share, clip.low, clip.high, generator)
    for row in taking_part:
        row.selected = chosen[before : before + len(row.turn.completion_ids)]
        before += len(row.turn.completion_ids)


def balanced_chunks(sizes: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
    """Row numbers in at most `count` chunks, ordered by length, so that the largest padded chunk is as small as can be.

    sizes: (prompt, completion) tokens of each row. A chunk costs rows * (longest prompt + longest completion). Always
    returns `count` chunks, the last ones empty where fewer suffice.
    """
    order = sorted(range(len(sizes)), key=lambda row: (sum(sizes[row]), sizes[row], row))

    def fill(capacity: int) -> list[list[int]] | None:
        chunks: list[list[int]] = [[]]
        prompt = completion = 0
        for row in order:
            prompt, completion = max(prompt, sizes[row][0]), max(completion, sizes[row][1])
            if chunks[-1] and (len(chunks[-1]) + 1) * (prompt + completion) > capacity:
                chunks.append([])
                prompt, completion = sizes[row]
            chunks[-1].append(row)
        return chunks if len(chunks) <= count else None

    low, high = 1, max(1, len(sizes) * sum(max((size[part] for size in sizes), default=1) for part in (0, 1)))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fill(middle) else (middle + 1, high)
    chunks = fill(high) or [[]]
    return chunks + [[] for _ in range(count - len(chunks))]


def pad_batch(rows: Sequence[Row], pad_id: int, device: torch.device, first_update: bool = False) -> dict[str, Tensor]:
    """One micro-batch, trimmed to its own longest prompt (padded left) and completion (padded right).

    On the first update after a rollout the old policy *is* the current one. Its log-probs are left out then, so that the
    ratio is exactly 1: a last-bit difference between two passes has a sign, and KL-Cov's |log rho| would turn it into
    a full-sized gradient. No row at all gives a single masked position, so that every process makes the same number of
    passes.
    """
    width = max((len(row.turn.prompt_ids) for row in rows), default=1)
    length = max((len(row.turn.completion_ids) for row in rows), default=1)
    shape = (max(len(rows), 1), length)
    batch = {
        "prompt_ids": torch.full((shape[0], width), pad_id),
        "prompt_mask": torch.zeros((shape[0], width), dtype=torch.long),
        "completion_ids": torch.full(shape, pad_id),
        "attention_mask": torch.zeros(shape, dtype=torch.long),
        "mask": torch.zeros(shape),
        "advantages": torch.zeros(shape),
        "policy_rows": torch.zeros((shape[0], 1)),
        "imitation_weight": torch.zeros((shape[0], 1)),
    }
    if not rows:
        batch["prompt_mask"][:] = 1
        batch["attention_mask"][:] = 1
    for number, row in enumerate(rows):
        prompt, completion = row.turn.prompt_ids, row.turn.completion_ids
        batch["prompt_ids"][number, width - len(prompt) :] = torch.tensor(prompt)
        batch["prompt_mask"][number, width - len(prompt) :] = 1
        batch["completion_ids"][number, : len(completion)] = torch.tensor(completion)
        batch["attention_mask"][number, : len(completion)] = 1
        batch["mask"][number, : len(completion)] = float(row.counts)
        batch["advantages"][number, : len(completion)] = torch.tensor(row.advantages())
        batch["policy_rows"][number] = float(row.is_policy)
        batch["imitation_weight"][number] = row.turn.imitation_weight
    for name, values in _optional(rows).items():
        if name == "old_logprobs" and first_update:
            continue
        batch[name] = torch.zeros(shape, dtype=torch.bool if name == "selected" else torch.float32)
        for number, value in enumerate(values):
            batch[name][number, : len(value)] = torch.as_tensor(value)
    return {name: tensor.to(device) for name, tensor in batch.items()}


def _optional(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Columns that any row has: they decide which parts of the loss take part. Turns to imitate lack them all."""
    columns: dict[str, list[Any]] = {
        "old_logprobs": [row.turn.old_logprobs for row in rows],
        "ref_logprobs": [row.ref_logprobs for row in rows],
        "importance": [row.importance for row in rows],
        "selected": [row.selected for row in rows],
    }
    kept = {}
    for name, values in columns.items():
        present = [value is not None for value in values]
        if any(present):
            kept[name] = [value if value is not None else [] for value in values]
    return kept
