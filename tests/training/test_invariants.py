"""What must not change the gradient: the micro-batch split, dropped rows, row order, padding, group order."""

import random
from pathlib import Path

import pytest
import torch
from harness import ours, relative_difference
from hypothesis import given
from hypothesis import strategies as st
from world import make_turns, training

from judgefree.episodes import Turn
from judgefree.training.batches import Row, balanced_chunks, pad_batch, split_updates

LOSSES = [{"kl_weight": 0.0}, {"kl_weight": 0.05}, {"kl_cov": {"share": 0.1, "weight": 1.0}}]


def mixed() -> list[Turn]:
    """Sampled turns, one group dead, and two turns to imitate."""
    turns = make_turns()
    half = Turn([5, 6], [7, 8, 1], "distil", "d", imitation_weight=0.5)
    whole = Turn([4], [9, 1], "distil", "d", imitation_weight=1.0)
    return [*turns, half, whole]


@pytest.mark.parametrize("loss", LOSSES)
def test_micro_batch_split(tiny: Path, tmp_path: Path, loss: dict) -> None:
    gradients = []
    for number in (1, 5):
        settings = training(micro_batches=number, updates_per_rollout=2, steps=4, loss=loss)
        gradients.append(ours(tiny, tmp_path / str(number), settings, mixed)[0])
    for one, other in zip(*gradients, strict=True):
        assert relative_difference(one, other) < 1e-5


def test_row_and_group_order(tiny: Path, tmp_path: Path) -> None:
    """One update a rollout, so that the order cannot decide which rows learn together."""

    def shuffled() -> list[Turn]:
        turns = mixed()
        random.Random(3).shuffle(turns)
        return turns

    settings = training(steps=2, save_every=2, loss={"kl_weight": 0.05})
    one = ours(tiny, tmp_path / "a", settings, mixed)[0]
    other = ours(tiny, tmp_path / "b", settings, shuffled)[0]
    assert max(relative_difference(a, b) for a, b in zip(one, other, strict=True)) < 1e-5


def test_dead_rows_are_dropped_without_trace(tiny: Path, tmp_path: Path) -> None:
    """A zero advantage that is kept (by an advantage of 1e-30) gives the gradient of the row that was dropped."""

    def kept() -> list[Turn]:
        turns = make_turns()
        for turn in turns:
            turn.advantage = turn.advantage or 1e-30
        return turns

    settings = training(steps=1, save_every=1)
    dropped, trainer = ours(tiny, tmp_path / "a", settings, make_turns)
    all_rows, whole = ours(tiny, tmp_path / "b", settings, kept)

    def rows(one: object) -> int:
        return sum(len(batch["mask"]) for batch in one._updates[0][0])  # type: ignore[attr-defined]

    assert (rows(trainer), rows(whole)) == (12, 16)
    assert relative_difference(dropped[0], all_rows[0]) < 1e-6


def test_nothing_to_learn_gives_a_zero_gradient(tiny: Path, tmp_path: Path) -> None:
    settings = training(steps=1, save_every=1)
    gradients, _ = ours(tiny, tmp_path, settings, lambda: make_turns(dead_groups=(0, 1, 2, 3)))
    assert gradients[0] and all(not gradient.any() for gradient in gradients[0].values())


def test_truncated_completions_under_mask(tiny: Path, tmp_path: Path) -> None:
    """Under `mask` a truncated row has no gradient and no tokens in the denominator: as if it were not there."""

    def cut(remove: bool) -> list[Turn]:
        turns = make_turns(dead_groups=())
        for turn in turns[:3]:
            turn.finish_reason = "length"
        return turns[3:] if remove else turns

    settings = training(steps=1, save_every=1, truncated="mask")
    masked = ours(tiny, tmp_path / "a", settings, lambda: cut(False))[0][0]
    removed = ours(tiny, tmp_path / "b", settings, lambda: cut(True))[0][0]
    kept = ours(tiny, tmp_path / "c", training(steps=1, save_every=1), lambda: cut(False))[0][0]
    assert relative_difference(masked, removed) < 1e-6
    assert relative_difference(kept, removed) > 1e-2


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=40), st.integers(1, 8))
def test_chunks_hold_every_row_once_in_order_of_length(sizes: list[tuple[int, int]], count: int) -> None:
    chunks = balanced_chunks(sizes, count)
    flat = [row for chunk in chunks for row in chunk]
    assert len(chunks) == count and sorted(flat) == list(range(len(sizes)))
    lengths = [sum(sizes[row]) for row in flat]
    assert lengths == sorted(lengths)


def test_chunks_are_balanced() -> None:
    """One row of 100 and ten of 10: alone and together, not 6 and 5."""
    chunks = balanced_chunks([(0, 10)] * 10 + [(0, 100)], 2)
    assert [len(chunk) for chunk in chunks] == [10, 1]


def test_no_rows_still_make_every_micro_batch() -> None:
    assert balanced_chunks([], 3) == [[], [], []]
    batch = pad_batch([], 0, torch.device("cpu"))
    assert batch["mask"].shape == (1, 1) and not batch["mask"].any()


def test_padding_sides() -> None:
    rows = [Row(Turn([5], [6, 7], "a", "g", advantage=[1.0, 2.0])), Row(Turn([8, 9], [3], "a", "g", advantage=-1.0))]
    batch = pad_batch(rows, 0, torch.device("cpu"))
    assert batch["prompt_ids"].tolist() == [[0, 5], [8, 9]]
    assert batch["completion_ids"].tolist() == [[6, 7], [3, 0]]
    assert batch["mask"].tolist() == [[1, 1], [1, 0]]
    assert batch["advantages"].tolist() == [[1, 2], [-1, 0]]


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 5), st.integers(0, 3))
def test_updates_do_not_depend_on_the_number_of_processes(rows: int, updates: int, processes: int, seed: int) -> None:
    alone = split_updates(0, rows, rows, updates, seed, 7)
    assert sorted(row for members in alone for row in members) == list(range(rows))
    assert max(map(len, alone)) - min(map(len, alone)) <= 1
    bounds = [rows * rank // processes for rank in range(processes + 1)]
    shared: list[list[int]] = [[] for _ in range(updates)]
    for low, high in zip(bounds, bounds[1:], strict=False):
        for update, members in enumerate(split_updates(low, high - low, rows, updates, seed, 7)):
            shared[update] += [low + row for row in members]
    assert shared == alone
