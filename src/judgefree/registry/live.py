"""Training metrics in MLflow while a run trains, a batch at every checkpoint. A run never fails for it."""

import logging
from pathlib import Path
from typing import Any, Literal

from judgefree.errors import JudgefreeError
from judgefree.registry.facts import read_training

log = logging.getLogger(__name__)


class LiveLog:
    """What a training process tells MLflow; nothing that a stage writes depends on it.

    The first failure (MLflow not installed, its store moved, taken or broken) is logged and ends the telling;
    `judgefree sync` adds later what is missing. One process of a run may have one, no more.
    """

    def __init__(self, root: Path, name: str, key: str, work: Path) -> None:
        """key: of the run, as its manifest will have it; work: its folder below .work, which has the step times."""
        self.root, self.name, self.key, self.work = root, name, key, work
        self.broken = False
        self.logged: dict[str, set[int]] | None = None
        self._run: tuple[Any, str] | None = None

    def checkpoint(self, history: dict[int, dict[str, float]]) -> None:
        """Log what the history (step -> metric -> value) has and MLflow has not. To be called once a checkpoint is
        saved: steps that a kill undoes are then never logged."""
        self._guarded(history, "RUNNING")

    def end(self, history: dict[int, dict[str, float]], status: Literal["FINISHED", "FAILED", "KILLED"]) -> None:
        """The last rows, and how it ended: FAILED for a collapse, KILLED for a stop that the same command goes on from."""
        self._guarded(history, status)

    def _guarded(self, history: dict[int, dict[str, float]], status: str) -> None:
        if self.broken:
            return
        try:
            self._log(history, status)
        except (ImportError, JudgefreeError) as error:
            self._give_up(error)
        except Exception as error:  # whatever MLflow, SQLAlchemy or the disk raise: training is not lost to a chart
            self._give_up(error, exc_info=True)

    def _give_up(self, error: Exception, exc_info: bool = False) -> None:
        self.broken = True
        why = error.problem if isinstance(error, JudgefreeError) else error
        log.warning("%s: MLflow gets no more metrics while this run trains, `judgefree sync` adds them afterwards (%s)",
                    self.name, why, exc_info=exc_info)  # fmt: skip

    def _log(self, history: dict[int, dict[str, float]], status: str) -> None:
        from judgefree.registry.runs import log_rows, open_run, step_times
        from judgefree.registry.store import open_store

        if self._run is None:
            store = open_store(self.root)
            model = read_training(self.root, self.name, self.key)
            self._run = store, open_run(store, model, live=True).info.run_id
        store, run_id = self._run
        times = step_times(self.work)
        rows = {step: {**times.get(step, {}), **row} for step, row in history.items()}
        self.logged = log_rows(store, run_id, rows, self.logged)
        if status == "RUNNING":
            store.client.update_run(run_id, status)
        else:
            store.client.set_terminated(run_id, status)
