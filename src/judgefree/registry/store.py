"""MLflow's store of the project: `mlruns/mlflow.db` and `mlruns/artifacts`, one experiment for all models.

The database holds absolute paths, so it is opened in the place that it names and nowhere else (place.py). Everything
that searches and then creates stands under a file lock, which the system frees when a process dies.
"""

import logging
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")

import mlflow
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from judgefree.errors import JudgefreeError
from judgefree.registry.place import EXPERIMENT, artifacts_uri, database, locked, moved_from

KEY, NAME = "judgefree.key", "judgefree.name"
_NOTE = (
    "All models of the project, bases included. To compare, tick runs and press *Compare*: method, data set, base and "
    "seed stand among the parameters. `metrics.md` among a run's artifacts says what its metrics mean, `completions/` "
    "holds texts to read, `registry/` the verdicts on it."
)

for _quiet in ("mlflow.store.db.utils", "alembic", "mlflow.tracking.fluent"):
    logging.getLogger(_quiet).setLevel(logging.WARNING)


@dataclass(frozen=True)
class Store:
    """The open store; `locked` guards what must be one step for all processes."""

    root: Path
    client: mlflow.MlflowClient
    experiment_id: str

    def locked(self, name: str = "store") -> AbstractContextManager[None]:
        return locked(self.root, name)


def tracking_uri(root: Path) -> str:
    return f"sqlite:///{database(root.resolve())}"


def open_store(root: Path) -> Store:
    """The project's store, made on first use.

    Raises JudgefreeError after the folder was moved, for a schema of another MLflow, or when the lock stays taken.
    """
    (root / "mlruns").mkdir(parents=True, exist_ok=True)
    with locked(root, "store"):
        if old := moved_from(root):
            raise JudgefreeError(
                f"this folder was moved or copied: {database(root)} names {old} for its artifacts",
                "run `judgefree doctor --fix`, which writes the present place into the store",
            )
        mlflow.set_tracking_uri(tracking_uri(root))
        mlflow.set_registry_uri(tracking_uri(root))
        try:
            client = mlflow.MlflowClient()
            experiment = client.get_experiment_by_name(EXPERIMENT)
        except MlflowException as error:
            if "schema" not in str(error):
                raise
            raise JudgefreeError(
                f"{database(root)} was written by another version of MLflow: {error}",
                f"run `mlflow db upgrade {tracking_uri(root)}` (keep a copy of the file first)",
            ) from error
        if experiment is None:
            note = {"mlflow.note.content": _NOTE}
            return Store(root, client, client.create_experiment(EXPERIMENT, artifacts_uri(root), note))
    return Store(root, client, experiment.experiment_id)


def find_run(store: Store, key: str, name: str) -> Run | None:
    """The MLflow run of the model `name` with this key. Two models of one key (equal settings) have a run each."""
    runs = store.client.search_runs(
        [store.experiment_id], f"tags.`{KEY}` = '{key}' AND tags.`{NAME}` = '{name}'", max_results=1
    )
    return runs[0] if runs else None


def find_or_create_run(store: Store, key: str, name: str, tags: dict[str, str]) -> Run:
    """The run of a model, created with these tags where there is none; one for all processes that ask at once."""
    with store.locked():
        if run := find_run(store, key, name):
            return run
        return store.client.create_run(store.experiment_id, tags={**tags, KEY: key, NAME: name}, run_name=name)
