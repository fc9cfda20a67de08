"""Log all runs in MLflow, then let each task's best run, and its best reward model, try to become champion; the gates
decide. A task that cannot be decided on keeps no other from its verdict."""

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.states import State

from flows.project import main, project, skip
from judgefree.params import load_params
from judgefree.registry.kinds import registered
from tasks.lock import ProjectBusy
from tasks.registry import register_task, sync_runs
from tasks.stage import StageFailed, options


@flow
def register(root: str = ".") -> State[Any] | None:
    try:
        with project(root) as pipeline:
            limits = (pipeline.timeout_s.registry, pipeline.grace_s)
            sync_runs.with_options(**options(pipeline))(root, *limits)
            params = load_params(Path(root) / "params.yaml")
            failed = []
            for kind, dataset in registered(params):
                try:
                    register_task.with_options(**options(pipeline))(dataset, kind, root, *limits)
                except StageFailed as error:
                    failed.append(str(error))
            if failed:
                raise StageFailed("\n".join(failed))
    except ProjectBusy as busy:
        return skip(busy)
    return None


if __name__ == "__main__":
    main(register)
