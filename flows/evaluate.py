"""Evaluate every model on its suites and compare them all."""

from typing import Any

from prefect import flow
from prefect.states import State

from flows.project import main, run_stages, skip
from tasks.lock import ProjectBusy
from tasks.report import report_comparison


@flow
def evaluate(root: str = ".") -> State[Any] | None:
    try:
        run_stages("evaluate", root)
        report_comparison(root)
    except ProjectBusy as busy:
        return skip(busy)
    return None


if __name__ == "__main__":
    main(evaluate)
