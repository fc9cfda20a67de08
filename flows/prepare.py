"""Bring bases and data sets up to date: resolve the parameters, make, read, check."""

from typing import Any

from prefect import flow
from prefect.states import State

from flows.project import main, run_stages, skip
from tasks.lock import ProjectBusy


@flow
def prepare(root: str = ".") -> State[Any] | None:
    try:
        run_stages("prepare", root)
    except ProjectBusy as busy:
        return skip(busy)
    return None


if __name__ == "__main__":
    main(prepare)
