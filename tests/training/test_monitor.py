"""The collapse monitor: its figures by hand, its alarms on histories of the known kinds, and what a run does about them."""

import math
from pathlib import Path
from typing import Any

import pytest
from harness import PLAIN, Given, load
from world import make_turns, training

from judgefree.config import Monitor
from judgefree.episodes import Completion, Example, Prompt, Rollout
from judgefree.errors import JudgefreeError
from judgefree.methods import Setting
from judgefree.methods.rlif import Options, Rlif
from judgefree.training.arguments import episode_arguments
from judgefree.training.callbacks import RunCallback, RunState
from judgefree.training.checkpoints import checkpoints, step_of
from judgefree.training.history import VALIDATION, History, signal_of
from judgefree.training.monitor import (
    RULES,
    alarm_counts,
    alarms,
    collapse_facts,
    covariance_is_idle,
    has_collapsed,
    variety,
)
from judgefree.training.progress import Progress
from judgefree.training.records import Records
from judgefree.training.trainer import EpisodeTrainer

LIMITS = {
    "window": 2, "entropy_low": 0.1, "length_low": 0.2, "length_high": 3.0, "distinct_low": 0.25, "answers_low": 0.3,
    "grad_norm_high": 20.0, "cluster_entropy_high": 1.5, "repetition_high": 0.5, "clipped_high": 0.3,
    "unparsed_high": 0.5, "kl_high": 1.0, "validation_low": 0.5, "alarms_of_collapse": 2,
    "unreadable_votes_high": 0.1,
}  # fmt: skip
GOOD = {
    "entropy": 0.8, "completions/mean_length": 20.0, "completions/distinct_2": 0.4, "answers/entropy": 2.0,
    "cluster/entropy": 0.6, "completions/repetition": 0.05, "completions/clipped_ratio": 0.02,
    "completions/unparsed_ratio": 0.1, "kl": 0.01, "grad_norm": 0.5,
    "votes/unreadable": 0.02,
}  # fmt: skip


def limits(**changes: object) -> Monitor:
    return Monitor.model_validate({**LIMITS, **changes})


def rows(*rollouts: dict[str, float]) -> dict[int, dict[str, float]]:
    return {step: {**GOOD, **rollout} for step, rollout in enumerate(rollouts, 1)}


# ------------------------------------------------------------------------------------------------------------- figures


def test_variety_by_hand() -> None:
    """Pairs 12, 23, 34 and 12, 23, 35: 4 distinct of 6. One token said eight times: 5 sequences of four, 4 are repeats."""
    assert variety([[1, 2, 3, 4], [1, 2, 3, 5]]) == {
        "completions/distinct_2": pytest.approx(4 / 6), "completions/repetition": 0.0,
    }  # fmt: skip
    assert variety([[9] * 8]) == {
        "completions/distinct_2": pytest.approx(1 / 7), "completions/repetition": pytest.approx(4 / 5),
    }  # fmt: skip
    assert variety([[1, 2, 1, 2, 1, 2], [3]])["completions/repetition"] == pytest.approx(0.5 / 3 + 0.5 / 3 - 1 / 6)
    assert variety([[1], []]) == {"completions/distinct_2": 0.0, "completions/repetition": 0.0}
    assert variety([]) == {"completions/distinct_2": 0.0, "completions/repetition": 0.0}


def test_the_papers_figures_by_hand() -> None:
    """Peak 0.8 first at step 4; below 0.4 first at step 12; at the end 0.2 of 0.8. Step 0 is no checkpoint."""
    scores = {0: 0.9, 2: 0.3, 4: 0.8, 6: 0.8, 8: 0.4, 10: 0.7, 12: 0.39, 14: 0.1, 16: 0.2}
    history = {step: {VALIDATION: value} for step, value in scores.items()} | {15: {"loss": 1.0}}
    assert collapse_facts(history) == {
        "peak": 0.8, "peak_step": 4, "collapse_step": 12, "retention": pytest.approx(0.25),
    }  # fmt: skip
    rising = {step: {VALIDATION: step / 10} for step in (1, 2, 3)}
    assert collapse_facts(rising) == {"peak": 0.3, "peak_step": 3, "collapse_step": None, "retention": 1.0}
    assert collapse_facts({1: {VALIDATION: 0.0}}) == {
        "peak": 0.0, "peak_step": 1, "collapse_step": None, "retention": None,
    }  # fmt: skip
    assert collapse_facts({0: {VALIDATION: 0.5}, 1: {"loss": 0.1}}) is None


# -------------------------------------------------------------------------------------------------------------- alarms


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_alarm_at_its_limit(rule: Any) -> None:
    """The last two rollouts' mean against the limit: a hair inside is silent, a hair outside is an alarm."""
    edge = getattr(limits(), rule.name) * (GOOD[rule.metric] if rule.relative else 1.0)
    out = 1.01 if rule.side == "above" else 0.99
    for factor, expected in ((out, [rule.name]), (2 - out, [])):
        history = rows({}, {}, {rule.metric: edge * factor * 0.5}, {rule.metric: edge * factor * 1.5})
        assert alarms(history, limits()) == expected


def test_alarms_wait_for_their_window_and_skip_what_was_not_measured() -> None:
    bad = {"entropy": 0.01, "completions/clipped_ratio": 1.0}
    assert alarms(rows(bad), limits()) == []
    assert alarms(rows(bad, bad), limits()) == ["clipped_high"]  # a relative limit has nothing to compare with yet
    assert alarms(rows({}, {}, bad, {**bad, "entropy": math.nan}, {**bad, "kl": math.inf}), limits()) == [
        "entropy_low", "clipped_high",
    ]  # fmt: skip
    assert alarms(rows(*[{"votes/unreadable": 1.0}] * 2), limits(unreadable_votes_high=None)) == []
    assert alarms({1: {"loss": 1.0}, 2: {"entropy": 0.1}}, limits()) == []  # no rollout at all: supervised training


def test_reward_up_and_gradients_far_up() -> None:
    """Faults A28."""
    history = {k: {**GOOD, "reward": k / 20, "grad_norm": 0.5 * 50 ** (k / 20)} for k in range(1, 21)}
    assert alarms(history, limits()) == ["grad_norm_high"]


def test_validation() -> None:
    history = rows({}, {}, {}, {})
    for step, value in ((0, 0.9), (1, 0.6), (2, 0.4), (4, 0.29)):
        history.setdefault(step, {})[VALIDATION] = value
    assert alarms(history, limits()) == ["validation_low"]
    assert has_collapsed(history, limits(), labels=True)
    assert not has_collapsed(history, limits(), labels=False), "a run without labels must not be ended by them"


DEGENERATE = {
    "constant": ([5, 6, 5, 6, 5, 6, 5, 1], None, "stop"),
    "empty": ([1], None, "stop"),
    "box": ([7, 8, 9, 1], "7", "stop"),
    "copy": (None, None, "stop"),
    "line": ([5, 6] * 6, None, "length"),
}


@pytest.mark.parametrize("reward", ["multi", "cluster", "certainty"])
@pytest.mark.parametrize("name", DEGENERATE)
def test_rewards_that_can_be_gamed_trip_the_monitor(name: str, reward: str, tiny: Path, tmp_path: Path) -> None:
    """Four rollouts of honest completions, then one degenerate policy; RLIF and the trainer measure for themselves.
    Ids 4.. are words, 1 ends a text; an honest text holds the answer of its question."""
    size = 4
    options = {"reward": reward, "final_batch_norm": False}
    options |= {"alpha": 0.5, "beta": 0.5} if reward == "multi" else {}
    options |= {"format_weight": 0.1} if reward in ("multi", "cluster") else {}
    settings = training(steps=8, save_every=8, learning_rate=1e-6, micro_batches=1, rollout_size=32,
                        monitor=LIMITS)  # fmt: skip

    def engine(prompts: list[Prompt], n: int, seed: int, step: int, *_: Any) -> list[list[Completion]]:
        return [[say(prompt, sample, step) for sample in range(n)] for prompt in prompts]

    def say(prompt: Prompt, sample: int, step: int) -> Completion:
        number = int(str(prompt.key[0])[1:])
        if step < 4:
            answer = number if (number + sample) % size else number + 1  # three of four agree
            ids = [(number * 7 + 3 * sample + i * i) % 26 + 4 for i in range(6 + sample)] + [1]
            return Completion(ids, f"\\boxed{{{answer}}}", "stop")
        ids, answer, finish = DEGENERATE[name]
        return Completion(ids or [*prompt.ids, 1], f"\\boxed{{{answer}}}" if answer else "w1 w2", finish)  # type: ignore

    state, trainer = run(
        tiny, tmp_path, Rlif(Options.model_validate(options), Setting(settings, PLAIN, None, 0)), settings,  # type: ignore
        make_engine=lambda *_: engine, examples=[Example(f"e{i}", f"w{i % 26} w{i * 5 % 26} w3") for i in range(64)],
    )  # fmt: skip
    history = state.history.rows
    assert history[4]["monitor/alarms"] == 0 and history[8]["monitor/alarms"] >= 2
    assert not history[4]["monitor/collapsed"] and history[8]["monitor/collapsed"]
    assert history[8]["own_signal/rollout"] == 0.0 < history[4]["own_signal/rollout"]
    counted = alarm_counts(history)
    assert sum(counted.values()) == sum(row["monitor/alarms"] for row in history.values() if "monitor/alarms" in row)


def test_a_base_that_never_answers_has_alarms_but_has_not_collapsed() -> None:
    bad = {"completions/unparsed_ratio": 0.95, "completions/clipped_ratio": 0.9}
    history = rows(*[bad] * 8)
    assert alarms(history, limits()) == ["clipped_high", "unparsed_high"]
    assert not has_collapsed(history, limits(), labels=False)
    history = rows(*[bad] * 8, *[{**bad, "entropy": 0.01, "completions/distinct_2": 0.01}] * 2)
    assert has_collapsed(history, limits(), labels=False)


# --------------------------------------------------------------------------------------------------- what a run does


def run(tiny: Path, work: Path, method: Any, settings: Any, **changes: Any) -> tuple[RunState, EpisodeTrainer]:
    model, tokenizer = load(tiny)
    state = changes.pop("state", RunState())
    select, resume = changes.pop("select", "last"), changes.pop("resume", None)
    callback = RunCallback(
        state, work, Records(work / "records"), save_every=settings.save_every, boundary=settings.updates_per_rollout,
        max_bad_steps=settings.max_bad_steps, validate=dict, method_state=method.state_dict, select=select,
        progress=Progress("test", lambda: 0), monitor=settings.monitor,
    )  # fmt: skip
    arguments = {
        "make_engine": lambda *_: None, "examples": [Example(f"e{i}", "w1") for i in range(64)], **changes,
    }  # fmt: skip
    trainer = EpisodeTrainer(
        model, method=method, training=settings, prompt=PLAIN, seed=0, on_rollout=lambda *_: None,
        args=episode_arguments(settings, work, 0), tokenizer=tokenizer, callbacks=[callback], **arguments,
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=resume)
    return state, trainer


class Falling(Given):
    """Two good rollouts, then all completions are one token said over and over; the signal is the rollout's number."""

    def __init__(self) -> None:
        super().__init__(make_turns)
        self.played = 0

    def play(self, examples: Any, policy: Any) -> Rollout:
        self.played = policy.step // 2 + 1
        turns = make_turns()
        for turn in turns if self.played > 2 else ():
            turn.completion_ids = [5] * 11 + [1]
        signal = {1: 0.5, 2: 0.9}.get(self.played, 0.1)
        return Rollout(turns, [], {"reward": 0.5, "own_signal/rollout": signal})


FALL = {**LIMITS, "window": 1, "distinct_low": 0.5, "repetition_high": 0.5}


def falling(stop: bool) -> Any:
    monitor = {**FALL, "stop": True} if stop else FALL
    return training(steps=12, save_every=2, updates_per_rollout=2, learning_rate=1e-4, monitor=monitor)


def test_a_collapsed_run_stops_and_keeps_its_best_checkpoint(tiny: Path, tmp_path: Path) -> None:
    """The third rollout (steps 5 and 6) shows it; the run ends at the next boundary. Its best checkpoint is that of
    step 4, whose rollout had the highest signal."""
    state, trainer = run(tiny, tmp_path, Falling(), falling(stop=True))
    assert state.collapsed and trainer.state.global_step == 6
    assert [step_of(folder) for folder in checkpoints(tmp_path)] == [4, 6]
    history = state.history
    assert history.rows[5]["monitor/repetition_high"] == history.rows[5]["monitor/distinct_low"] == 1
    assert history.rows[5]["monitor/collapsed"] == 1 and history.rows[3]["monitor/collapsed"] == 0
    assert history.best(signal_of(history, "last")) == 4


def test_without_stop_it_goes_on_and_stays_marked(tiny: Path, tmp_path: Path) -> None:
    """Of six checkpoints the two newest are kept, and the best by the run's own signal, also under `select: last`."""
    state, trainer = run(tiny, tmp_path, Falling(), falling(stop=False))
    assert not state.collapsed and trainer.state.global_step == 12
    assert state.history.last("monitor/collapsed") == 1
    assert [step_of(folder) for folder in checkpoints(tmp_path)] == [4, 10, 12]
    assert [state.history.rows[step]["own_signal"] for step in (2, 4, 6)] == [0.5, 0.9, 0.1]


def test_the_end_is_the_same_after_an_interruption(tiny: Path, tmp_path: Path) -> None:
    """The alarm is raised at step 5 and acted on at step 6, also by a run that goes on from the checkpoint between."""
    from judgefree.training.callbacks import load_run_state

    settings = falling(stop=True)
    whole, trainer = run(tiny, tmp_path / "whole", Falling(), settings)
    folder = tmp_path / "whole" / "checkpoint-4"
    state, _ = load_run_state(folder)
    assert not state.collapsed
    again, resumed = run(tiny, tmp_path / "again", Falling(), settings, state=state, resume=str(folder))
    assert resumed.state.global_step == trainer.state.global_step == 6
    assert again.collapsed and again.history.rows == whole.history.rows


# ------------------------------------------------------------------------------------------------------ own signal


def test_own_signal_of_a_checkpoint_is_the_mean_since_the_last_one(tiny: Path, tmp_path: Path) -> None:
    """Four rollouts of one update: signals 1, 2 | 6, 4. Rollouts between checkpoints cannot be chosen."""

    class Telling(Given):
        def play(self, examples: Any, policy: Any) -> Rollout:
            return Rollout(make_turns(), [], {"reward": 0.5, "own_signal/rollout": [1.0, 2.0, 6.0, 4.0][policy.step]})

    settings = training(steps=4, save_every=2, learning_rate=1e-4)
    state, _ = run(tiny, tmp_path, Telling(make_turns), settings, select="own_signal")
    assert {step: row["own_signal"] for step, row in state.history.rows.items() if "own_signal" in row} == {
        2: 1.5,
        4: 5.0,
    }
    assert state.history.best("own_signal") == 4


def test_which_signal_knows_the_best_checkpoint() -> None:
    own = History({2: {"own_signal": 0.5, VALIDATION: 0.1}})
    assert [signal_of(own, rule) for rule in ("validation", "own_signal", "last")] == [
        VALIDATION, "own_signal", "own_signal",
    ]  # fmt: skip
    assert signal_of(History({2: {VALIDATION: 0.1}}), "last") == VALIDATION


# ---------------------------------------------------------------------------------------------------------- KL-Cov idle


def test_idle_covariance_by_hand() -> None:
    """Two updates a rollout. The first of a rollout cannot have moved; nor can one after a step without learning rate."""
    warm = {"grad_norm": 1.0, "learning_rate": 1e-6, "cov/abs_log_ratio": 0.0}
    cold = {**warm, "learning_rate": 0.0}
    assert not covariance_is_idle({}, 2)
    assert not covariance_is_idle({1: cold, 2: warm, 3: warm}, 2)
    assert covariance_is_idle({1: cold, 2: warm, 3: warm, 4: {**warm, "cov/abs_log_ratio": 2e-7}}, 2)
    assert not covariance_is_idle({1: warm, 2: {**warm, "cov/abs_log_ratio": 1e-5}, 3: warm, 4: warm}, 2)
    assert not covariance_is_idle({1: {**warm, "grad_norm": 0.0}, 2: warm}, 2)
    assert not covariance_is_idle({1: {"grad_norm": 1.0, "learning_rate": 1e-6}, 2: {"grad_norm": 1.0}}, 2)


COV = {"kl_cov": {"share": 0.1, "weight": 1.0}}


def test_a_run_whose_kl_cov_does_nothing_fails(tiny: Path, tmp_path: Path) -> None:
    """A learning rate that the weights' precision swallows: from update to update the policy differs by rounding only."""
    settings = training(steps=4, save_every=4, updates_per_rollout=2, learning_rate=1e-30, loss=COV)
    with pytest.raises(JudgefreeError, match=r"no effect up to step 4"):
        run(tiny, tmp_path, Given(make_turns), settings)
    assert not checkpoints(tmp_path) or not (tmp_path / "checkpoint-4" / "manifest.json").is_file()


def test_a_run_whose_kl_cov_works_does_not(tiny: Path, tmp_path: Path) -> None:
    settings = training(steps=4, save_every=4, updates_per_rollout=2, learning_rate=1e-3, loss=COV)
    state, _ = run(tiny, tmp_path, Given(make_turns), settings)
    values = [state.history.rows[step]["cov/abs_log_ratio"] for step in (1, 2, 3, 4)]
    assert values[0] == values[2] == 0.0 and values[1] > 0 and values[3] > 0
