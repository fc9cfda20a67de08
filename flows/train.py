"""Train every run of params.yaml, each after the model that it starts from; what is up to date is left alone."""

from typing import Any

from prefect import flow
from prefect.states import State

from flows.project import main, run_stages, skip
from tasks.lock import ProjectBusy


@flow
def train(root: str = ".") -> State[Any] | None:
    try:
        run_stages("train", root)
    except ProjectBusy as busy:
        return skip(busy)
    return None


if __name__ == "__main__":
    main(train)
