"""Steps that are not finite: skipped, counted, and the end of the run when there are too many."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import PLAIN, Given, load
from transformers import TrainerCallback
from world import make_turns, training

from judgefree.config import Training
from judgefree.episodes import Example, Rollout, Turn
from judgefree.training.arguments import episode_arguments
from judgefree.training.callbacks import RunCallback, RunState, load_run_state
from judgefree.training.checkpoints import newest_valid
from judgefree.training.progress import Progress
from judgefree.training.records import Records
from judgefree.training.trainer import EpisodeTrainer

Weights = dict[str, torch.Tensor]


class Remember(TrainerCallback):
    """The weights after every step."""

    def __init__(self) -> None:
        self.weights: list[Weights] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})


class Breaking(Given):
    """Plays good turns but at the rollouts named: there the reward, or one advantage, is not finite."""

    def __init__(self, rewards: set[int], advantages: set[int]) -> None:
        super().__init__(make_turns)
        self.rewards, self.advantages, self.rollout = rewards, advantages, -1

    def play(self, examples: Any, policy: Any) -> Rollout:
        self.rollout += 1
        turns: list[Turn] = make_turns()
        if self.rollout in self.advantages:
            turns[0].advantage = math.inf
        return Rollout(turns, [], {"reward": math.nan if self.rollout in self.rewards else 0.5})


def run(tiny: Path, work: Path, method: Breaking, settings: Training) -> tuple[RunState, Remember, EpisodeTrainer]:
    model, tokenizer = load(tiny)
    state, remember = RunState(), Remember()
    callback = RunCallback(
        state, work, Records(work / "records"), save_every=settings.save_every, boundary=settings.updates_per_rollout,
        max_bad_steps=settings.max_bad_steps, validate=dict, method_state=dict, select="last",
        progress=Progress("test", lambda: 0),
    )  # fmt: skip
    trainer = EpisodeTrainer(
        model, method=method, examples=[Example(f"e{i}", "w1") for i in range(64)], training=settings, prompt=PLAIN, seed=0,
        make_engine=lambda *_: None, on_rollout=lambda *_: None, args=episode_arguments(settings, work, 0),
        tokenizer=tokenizer, callbacks=[callback, remember],
    )  # fmt: skip
    trainer.train()
    return state, remember, trainer


def moved(before: Weights, after: Weights) -> bool:
    return any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("rewards", "advantages"), [({1}, set()), (set(), {1})], ids=["reward", "advantage"])
def test_a_broken_rollout_moves_nothing_and_the_run_goes_on(
    tiny: Path, tmp_path: Path, rewards: set[int], advantages: set[int]
) -> None:
    """The third of four steps has Adam's momentum to move by, were it not skipped."""
    settings = training(steps=4, save_every=4, learning_rate=1e-3, max_bad_steps=2)
    state, remember, _ = run(tiny, tmp_path, Breaking(rewards, advantages), settings)
    assert state.bad_steps == 1 and not state.collapsed
    assert not moved(remember.weights[0], remember.weights[1])
    assert moved(remember.weights[1], remember.weights[2]) and len(remember.weights) == 4
    assert [state.history.rows[step]["bad_steps"] for step in (1, 2, 3, 4)] == [0, 1, 1, 1]


def test_too_many_end_the_run_as_collapsed_with_finite_weights(tiny: Path, tmp_path: Path) -> None:
    settings = training(steps=8, save_every=2, learning_rate=1e-3, max_bad_steps=1)
    state, remember, trainer = run(tiny, tmp_path, Breaking({2, 3}, set()), settings)
    assert state.collapsed and state.bad_steps == 2 and trainer.state.global_step == 4
    assert all(torch.isfinite(value).all() for value in remember.weights[-1].values())
    kept = newest_valid(tmp_path)
    assert kept is not None and kept.name == "checkpoint-4"
    saved, _ = load_run_state(kept)
    assert saved.collapsed and saved.bad_steps == 2  # a kill before the result is published cannot make it "finished"


def test_bf16_computes_in_bf16_and_trains_weights_that_can_move(tiny: Path, tmp_path: Path) -> None:
    """A step of the papers' size, 1e-6 on weights around 0.1, is lost in bf16 weights."""
    from judgefree.training.run import load_policy

    settings = training(steps=1, save_every=1, learning_rate=1e-6, precision="bf16")
    assert next(load_policy(tiny, settings).parameters()).dtype == torch.float32
    before = {name: value.clone() for name, value in load(tiny)[0].state_dict().items()}
    _, remember, trainer = run(tiny, tmp_path, Breaking(set(), set()), settings)
    assert trainer.args.bf16 and moved(before, remember.weights[0])


class Saturated(Breaking):
    """A second rollout in which every group is dead."""

    def play(self, examples: Any, policy: Any) -> Rollout:
        self.rollout += 1
        dead = (0, 1, 2, 3) if self.rollout == 1 else ()
        return Rollout(make_turns(dead_groups=dead), [], {"reward": 0.5})


def test_a_rollout_without_signal_has_no_entropy(tiny: Path, tmp_path: Path) -> None:
    """Of no tokens there is no mean; a 0 would look like a collapse."""
    settings = training(steps=3, save_every=3, learning_rate=1e-3)
    state, _, _ = run(tiny, tmp_path, Saturated(set(), set()), settings)
    entropies = {step: row.get("entropy") for step, row in state.history.rows.items() if step > 0}
    assert entropies[2] is None and entropies[1] > 1 and entropies[3] > 1  # type: ignore[operator]
