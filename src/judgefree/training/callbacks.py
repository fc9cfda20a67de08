"""What happens around the steps of a run: stop signals, bad steps, validation, history, sealing, progress.

One callback serves both trainers, so that every method is interrupted, resumed and watched in the same way.
"""

import json
import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from judgefree.config import Monitor
from judgefree.errors import JudgefreeError
from judgefree.files import write_atomic
from judgefree.training.checkpoints import prune, seal_checkpoint
from judgefree.training.history import OWN_SIGNAL, ROLLOUT_SIGNAL, History, signal_of
from judgefree.training.monitor import ROLLOUT, alarms, covariance_is_idle, has_collapsed
from judgefree.training.progress import Progress
from judgefree.training.records import Records

log = logging.getLogger(__name__)

HISTORY, STATE, TENSORS, TIMINGS = "history.jsonl", "method_state.json", "method_state.safetensors", "timings.jsonl"
ALARMS, COLLAPSED = "monitor/alarms", "monitor/collapsed"


@dataclass
class RunState:
    """All that a run knows beside the trainer's own state; saved with every checkpoint."""

    history: History = field(default_factory=History)
    bad_steps: int = 0
    collapsed: bool = False
    stop_requested: bool = False


class LiveLog(Protocol):
    """What hears of a run while it trains; registry/live.py tells MLflow. Nothing that a stage writes depends on it."""

    def checkpoint(self, history: dict[int, dict[str, float]]) -> None: ...

    def end(self, history: dict[int, dict[str, float]], status: Literal["FINISHED", "FAILED", "KILLED"]) -> None: ...


class RunCallback(TrainerCallback):
    """validate: measures the policy on the validation rows; called at step 0 and at every checkpoint.
    method_state: what lives in the method between steps, a flat dict of JSON values and tensors.
    boundary: optimizer steps a rollout feeds; checkpoints and stops fall between rollouts only.
    monitor: limits whose breach is an alarm; None watches nothing.
    """

    def __init__(
        self,
        state: RunState,
        work: Path,
        records: Records,
        *,
        save_every: int,
        boundary: int,
        max_bad_steps: int,
        validate: Callable[[], dict[str, float]],
        method_state: Callable[[], dict[str, Any]],
        select: str,
        progress: Progress,
        monitor: Monitor | None = None,
        live: LiveLog | None = None,
    ) -> None:
        self.run = state
        self.work = work
        self.records = records
        self.save_every = save_every
        self.boundary = boundary
        self.max_bad_steps = max_bad_steps
        self.validate = validate
        self.method_state = method_state
        self.select = select
        self.progress = progress
        self.monitor = monitor
        self.live = live
        self.started = time.perf_counter()

    # -------------------------------------------------------------------------------------------------------- stop signals

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._stop)
            signal.signal(signal.SIGINT, self._stop)
        if state.global_step == 0:
            self.run.history.add(0, self.validate())
        if state.is_world_process_zero:
            self.progress.start(state.global_step, state.max_steps)

    def _stop(self, number: int, frame: Any) -> None:
        log.warning("%s: saving at the next rollout boundary, then stopping", signal.Signals(number).name)
        self.run.stop_requested = True

    # ----------------------------------------------------------------------------------------------------------- bad steps

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        if all(torch.isfinite(gradient).all() for gradient in gradients):
            return
        self.run.bad_steps += 1
        log.warning("step %d: a loss, reward or gradient is not finite; step skipped (%d of %d allowed)",
                    state.global_step + 1, self.run.bad_steps, self.max_bad_steps)  # fmt: skip
        for parameter in model.parameters():
            parameter.grad = None  # the optimizer passes over parameters without a gradient: no momentum, no decay

    # --------------------------------------------------------------------------------------------------------- each step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step = state.global_step
        self.run.history.add(step, {"bad_steps": float(self.run.bad_steps)})
        if self.run.bad_steps > self.max_bad_steps:
            log.error("more than %d bad steps: the run ends as collapsed", self.max_bad_steps)
            self.run.collapsed = True
            control.should_training_stop = True
        if step % self.boundary == 0 and step < state.max_steps:
            asked = gather_object([(self.run.stop_requested, self._is_to_end())])  # all processes or none
            self.run.stop_requested, collapsed = (any(flags) for flags in zip(*asked, strict=True))
            if self.run.stop_requested or collapsed:
                self.run.collapsed |= collapsed
                control.should_training_stop = True
                control.should_save = True
        if self._is_checkpoint(step, state.max_steps):
            control.should_save = True
            self.run.history.add(step, self.validate())

    def _is_checkpoint(self, step: int, steps: int) -> bool:
        return step % self.save_every == 0 or step >= steps

    def _is_to_end(self) -> bool:
        """Whether the monitor found a collapse in an earlier step and the run is to end by it; known to the main process
        only. It is read from the history, so a run that goes on from a checkpoint ends where it would have ended."""
        return bool(self.monitor and self.monitor.stop and has_ended(self.run.history))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        logs = logs or {}
        if "train_runtime" in logs or not state.is_world_process_zero:
            return
        self.run.history.add(state.global_step, logs)
        self._watch(state.global_step)
        if self._is_checkpoint(state.global_step, state.max_steps):
            self._judge(state.global_step)
        self.progress.update(state.global_step, self.run.history.rows.get(state.global_step, {}))
        seconds = time.perf_counter() - self.started
        with (self.work / TIMINGS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, "seconds": round(seconds, 3)}) + "\n")

    def _watch(self, step: int) -> None:
        """Raise or clear alarms, once a rollout; a collapse stays declared."""
        history = self.run.history
        if self.monitor is None or ROLLOUT not in history.rows.get(step, {}):
            return
        before = history.last(ALARMS) or 0.0
        standing = alarms(history.rows, self.monitor)
        collapsed = has_ended(history) or has_collapsed(history.rows, self.monitor, labels=self.select == "validation")
        history.add(step, {ALARMS: len(standing), COLLAPSED: collapsed, **{f"monitor/{name}": 1 for name in standing}})
        if len(standing) > before:
            log.warning("step %d: collapse monitor: %s", step, ", ".join(standing))

    def _judge(self, step: int) -> None:
        """What is known at a checkpoint only: the method's own signal since the last one, and whether KL-Cov does anything.

        Raises JudgefreeError where it does not.
        """
        history = self.run.history
        signal = history.mean_between(ROLLOUT_SIGNAL, (step - 1) // self.save_every * self.save_every, step)
        if signal is not None:
            history.add(step, {OWN_SIGNAL: signal})
        if covariance_is_idle(history.rows, self.boundary):
            raise JudgefreeError(
                f"loss.kl_cov or loss.clip_cov has had no effect up to step {step}: on the selected tokens mean |log rho| "
                "is 0 but for rounding after every update",
                "raise learning_rate, or remove kl_cov and clip_cov",
            )

    # -------------------------------------------------------------------------------------------------------- checkpoints

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()  # each process has its own random state in the checkpoint
        if not state.is_world_process_zero:
            return
        folder = self.work / f"checkpoint-{state.global_step}"
        save_run_state(folder, self.run, self.method_state())
        self.records.flush(state.global_step)
        seal_checkpoint(folder)
        prune(self.work, self.run.history.best(signal_of(self.run.history, self.select)))
        if self.live:
            self.live.checkpoint(self.run.history.rows)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.progress.stop()
        if self.live and state.is_world_process_zero:
            collapsed = self.run.collapsed or has_ended(self.run.history)
            stopped = self.run.stop_requested
            self.live.end(self.run.history.rows, "FAILED" if collapsed else "KILLED" if stopped else "FINISHED")


def has_ended(history: History) -> bool:
    """Whether the monitor has declared a collapse."""
    return bool(history.last(COLLAPSED))


def save_run_state(folder: Path, run: RunState, method: dict[str, Any]) -> None:
    write_atomic(folder / HISTORY, run.history.to_text())
    tensors = {key: value for key, value in method.items() if isinstance(value, torch.Tensor)}
    plain = {key: value for key, value in method.items() if key not in tensors}
    facts = {"bad_steps": run.bad_steps, "collapsed": run.collapsed, "method": plain}
    write_atomic(folder / STATE, json.dumps(facts, sort_keys=True))
    if tensors:
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / TENSORS)


def load_run_state(folder: Path) -> tuple[RunState, dict[str, Any]]:
    saved = json.loads((folder / STATE).read_text(encoding="utf-8"))
    history = History.from_text((folder / HISTORY).read_text(encoding="utf-8"))
    tensors = load_file(folder / TENSORS) if (folder / TENSORS).is_file() else {}
    return RunState(history, saved["bad_steps"], saved["collapsed"]), {**saved["method"], **tensors}
