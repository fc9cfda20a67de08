"""What every flow shares: the project's lock and settings around its tasks, and the command line around the flow."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.flows import Flow
from prefect.states import Cancelled, State

from flows.server import server
from judgefree.config import Pipeline
from judgefree.errors import JudgefreeError
from judgefree.outside import replaced
from judgefree.params import load_params
from tasks.graph import stages
from tasks.lock import ProjectBusy, project_lock
from tasks.process import MARGIN_S
from tasks.report import report_stages
from tasks.stage import GPU, options, run_stage

SKIPPED = 75  # exit status: another flow works in this project, try again later


@contextmanager
def project(root: str) -> Iterator[Pipeline]:
    """Hold the project while a flow works in it, with the `gpu` limit in place; yields the flow's settings.

    Raises JudgefreeError for parameters that are refused, ProjectBusy when another flow keeps the project.
    """
    pipeline = load_params(Path(root) / "params.yaml").pipeline
    saving_s = pipeline.grace_s + MARGIN_S
    with project_lock(Path(root), pipeline.lock_wait_s, saving_s, get_run_logger().warning):
        with get_client(sync_client=True) as client:
            client.upsert_global_concurrency_limit_by_name(GPU, pipeline.gpu_slots)
        yield pipeline


def skip(busy: ProjectBusy) -> State[Any]:
    """The end of a flow that found the project taken."""
    get_run_logger().warning(str(busy))
    return Cancelled(message=str(busy))


def run_stages(kind: str, root: str) -> None:
    """Bring all stages of a kind up to date, one after the other in the graph's order; a failure ends the flow.

    What was made from sources that DVC does not see, and that were replaced since, is made again.
    """
    with project(root) as pipeline:
        timeout_s = getattr(pipeline.timeout_s, kind)
        task = run_stage.with_options(**options(pipeline))
        changed = dict(replaced(load_params(Path(root) / "params.yaml"), Path(root))) if kind == "prepare" else {}
        for name, file in changed.items():
            get_run_logger().warning(f"{file} is not what {name} read; it is made again")
        names = stages(Path(root), kind)
        rows = [task(name, root, timeout_s, pipeline.grace_s, name in changed) for name in names]
        report_stages(f"stages-{kind}", rows)


def main(flow: Flow[..., Any]) -> NoReturn:
    """Run a flow once from the command line, with a temporary server where none is set up.

    Exit status: 0 done, 1 failed, 2 refused input, 75 another flow works here, 143 stopped by SIGTERM.
    """
    run_command(lambda: once(flow))


def run_command(action: Callable[[], int]) -> NoReturn:
    """Call `action` and end with its status. SIGTERM becomes an exception, so that whatever was started is ended."""

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        status = action()
    except JudgefreeError as error:
        print(f"judgefree: {error}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    sys.exit(status)


def once(flow: Flow[..., Any]) -> int:
    with server() as temporary:
        if temporary:
            free_slots()
        state: Any = flow(return_state=True)
        if state.is_completed():
            return 0
        if state.is_cancelled():
            print(f"judgefree: {state.message}", file=sys.stderr)
            return SKIPPED
        error: Any = state.result(raise_on_failure=False)
        print(error if isinstance(error, JudgefreeError) else f"judgefree: {error}", file=sys.stderr)
        return 2 if isinstance(error, JudgefreeError) else 1


def free_slots() -> None:
    """A temporary server is this run's alone: a slot that is taken there is what a killed run left."""
    with get_client(sync_client=True) as client:
        if any(limit.name == GPU for limit in client.read_global_concurrency_limits(limit=100)):
            client.update_global_concurrency_limit(GPU, GlobalConcurrencyLimitUpdate(active_slots=0))
