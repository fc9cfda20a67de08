"""Checkpoints that are whole or passed over; history, selection, order of examples, records: what resume stands on."""

import logging
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from judgefree.errors import JudgefreeError
from judgefree.training.callbacks import RunState, load_run_state, save_run_state
from judgefree.training.checkpoints import checkpoints, newest_valid, prune, seal_checkpoint
from judgefree.training.history import History, selected_step
from judgefree.training.order import examples_at
from judgefree.training.records import Records


def make(work: Path, *steps: int) -> None:
    for step in steps:
        folder = work / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(bytes(100))
        seal_checkpoint(folder)


def test_newest_valid_passes_over_what_is_broken_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path, 4, 8, 12)
    (tmp_path / "checkpoint-16").mkdir()  # killed before it was sealed
    (tmp_path / "checkpoint-12" / "model.safetensors").write_bytes(bytes(50))  # truncated on disk
    with caplog.at_level(logging.WARNING):
        assert newest_valid(tmp_path) == tmp_path / "checkpoint-8"
    assert "checkpoint-16 was not finished" in caplog.text and "checkpoint-12 is corrupted" in caplog.text
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-4", "checkpoint-8"]


def test_no_checkpoint(tmp_path: Path) -> None:
    assert newest_valid(tmp_path) is None


def test_prune_keeps_two_and_the_best(tmp_path: Path) -> None:
    make(tmp_path, 4, 8, 12, 16)
    prune(tmp_path, best_step=4)
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-4", "checkpoint-12", "checkpoint-16"]


def test_state_survives_a_checkpoint(tmp_path: Path) -> None:
    history = History()
    history.add(4, {"reward": 0.1, "validation/pass@1": 0.30000000000000004})
    save_run_state(tmp_path, RunState(history, bad_steps=2), {"memory": ["a"], "baseline": torch.tensor([0.1, 0.2])})
    state, method = load_run_state(tmp_path)
    assert state.history == history and state.bad_steps == 2
    assert method["memory"] == ["a"] and torch.equal(method["baseline"], torch.tensor([0.1, 0.2]))


def test_history_keeps_the_clock_out() -> None:
    history = History()
    history.add(1, {"loss": 0.5, "step_time": 0.1, "epoch": 0.1, "train_runtime": 3.0})
    assert history.rows == {1: {"loss": 0.5}}


def test_selection() -> None:
    """The first of equal bests; step 0 (where the run started) is never handed on."""
    history = History({0: {"validation/pass@1": 0.9}, 4: {"validation/pass@1": 0.6}, 8: {"validation/pass@1": 0.7},
                       12: {"validation/pass@1": 0.7}, 16: {"validation/pass@1": 0.2}})  # fmt: skip
    assert selected_step(history, "validation", 16) == 8
    assert selected_step(history, "last", 16) == 16
    assert selected_step(history, "own_signal", 16) == 16  # no such signal was measured


def test_examples_are_a_function_of_seed_and_rollout() -> None:
    """10 examples in rollouts of 4: two rollouts an epoch, no example twice in a rollout, each epoch in its own order."""
    rollouts = [examples_at(k, 10, 4, seed=3) for k in range(40)]
    assert all(len(set(rollout)) == 4 for rollout in rollouts)
    assert (
        rollouts == [examples_at(k, 10, 4, seed=3) for k in range(40)] != [examples_at(k, 10, 4, 4) for k in range(40)]
    )
    for epoch in range(20):
        assert len(set(rollouts[2 * epoch] + rollouts[2 * epoch + 1])) == 8
    counts = Counter(i for rollout in rollouts for i in rollout)
    assert set(counts) == set(range(10)) and max(counts.values()) <= 20
    with pytest.raises(JudgefreeError, match="wants 16 examples .* has 10"):
        examples_at(0, 10, 16, 0)


def test_records_are_the_same_wherever_the_run_was_interrupted(tmp_path: Path) -> None:
    def play(folder: Path, stops: list[int]) -> list[dict]:
        records = Records(folder)
        for step in range(0, 16, 4):
            records.add(step, [{"text": f"t{step}", "reward": 1.0}])
            if step + 4 in stops:
                records.flush(step + 4)
        records.cut(8)  # killed after the last flush, going on from the checkpoint of step 8
        for step in (8, 12):
            records.add(step, [{"text": f"t{step}", "reward": 1.0}])
        records.flush(16)
        records.publish(folder / "out", every=8)
        files = sorted((folder / "out").iterdir())
        assert [file.name for file in files] == ["steps-0000000.parquet", "steps-0000008.parquet"]
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    one = play(tmp_path / "a", [8, 16])
    assert one == play(tmp_path / "b", [4, 8, 12]) and [row["step"] for row in one] == [0, 4, 8, 12]
