"""What happens around the steps of stage 1: progress, checkpoints by the clock, stops that save first."""

import logging
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from judgefree.training.checkpoints import checkpoints, seal_checkpoint
from judgefree.training.progress import Progress

SECONDS_BETWEEN_CHECKPOINTS = 300.0  # about what a kill costs; the result is the same whenever one is written
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger(__name__)


class PairsCallback(TrainerCallback):
    """asked: whether a signal asked for a stop. Training ends after that step, with a checkpoint unless it is the last."""

    def __init__(self, name: str, work: Path) -> None:
        self.work = work
        self.progress = Progress(f"{name}: pairs", lambda: 0)
        self.asked = False
        self.saved = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals ask for a stop inside, and mean afterwards what they meant before."""
        here = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, self._ask) for number in here}
        try:
            yield
        finally:
            self.progress.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.saved = time.monotonic()
        self.progress.start(state.global_step, state.max_steps)

    def _ask(self, number: int, frame: Any) -> None:
        log.warning("%s: saving after this step, then stopping", signal.Signals(number).name)
        self.asked = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        last = next((row for row in reversed(state.log_history) if "loss" in row), None)
        self.progress.update(state.global_step, {"loss": last["loss"]} if last else {})
        if state.global_step < state.max_steps:
            control.should_training_stop = self.asked
            control.should_save = self.asked or time.monotonic() - self.saved > SECONDS_BETWEEN_CHECKPOINTS

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        *older, newest = checkpoints(self.work)
        seal_checkpoint(newest)
        for folder in older:
            shutil.rmtree(folder)
        self.saved = time.monotonic()
