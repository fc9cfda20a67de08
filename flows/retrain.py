"""The nightly chain: prepare, train, evaluate and compare, register. What is up to date is not made again.

python -m flows.retrain                            once, with no server set up beforehand
python -m flows.retrain --serve --cron "0 2 * * *" every night (UTC) against a running server, such as `make ui`
"""

import argparse
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.schedules import Cron
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import State

from flows.evaluate import evaluate
from flows.prepare import prepare
from flows.project import once, project, run_command, skip
from flows.register import register
from flows.server import configured
from flows.train import train
from judgefree.errors import JudgefreeError
from tasks.lock import ProjectBusy
from tasks.registry import sync_runs
from tasks.stage import options


@flow
def retrain(root: str = ".") -> State[Any] | None:
    try:
        with project(root) as pipeline:
            prepare(root)
            # Training tells MLflow only where a store is there, so it is made before. A store that is broken stops the
            # night at the registry, not here.
            sync = sync_runs.with_options(**options(pipeline))
            sync(root, pipeline.timeout_s.registry, pipeline.grace_s, return_state=True)
            train(root)
            evaluate(root)
            register(root)
    except ProjectBusy as busy:
        return skip(busy)
    return None


def serve(cron: str) -> int:
    """Schedule the chain (cron in UTC, so that no night is skipped or doubled by summer time) until stopped.

    A run that comes due while another works is cancelled, with that as its reason. Raises JudgefreeError without a
    server.
    """
    url = configured()
    if url is None:
        raise JudgefreeError("a schedule needs a running Prefect server", "start `make ui` in another terminal, or set "
                             "PREFECT_API_URL")  # fmt: skip
    with temporary_settings({PREFECT_API_URL: url}):
        retrain.serve(
            name="nightly",
            schedule=Cron(cron, timezone="UTC"),
            global_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        )
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m flows.retrain", description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help="schedule it against a running server")
    parser.add_argument("--cron", default="0 2 * * *", help="when, in UTC (default: every night at two)")
    arguments = parser.parse_args()
    run_command((lambda: serve(arguments.cron)) if arguments.serve else (lambda: once(retrain)))
