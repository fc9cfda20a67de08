"""Run a DVC stage, or a `judgefree` command, as a Prefect task: one process group, its output in the run's log."""

import re
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.concurrency.sync import concurrency

from judgefree.config import Pipeline
from judgefree.dvc_locks import clear_stale_dvc_locks
from tasks.graph import kind_of
from tasks.lock import held
from tasks.process import TimedOut, run

GPU = "gpu"
LEASE_S = 60  # the shortest that Prefect takes: as long does a killed flow keep others from the GPU
MAY_PASS = 75  # exit status of `judgefree` for a fault that may be gone later, such as a network's time-out
LAST_LINES = 200  # of a command's output, in which its message is looked for
BUSY = re.compile(r"Unable to acquire lock|is busy, it is being blocked by")
STATUS = re.compile(r"failed to run: .*, exited with (-?\d+)")
OUTCOMES = {"Running stage": "made", "is cached": "from cache"}
HINTS = re.compile(r"To track the changes|\s*git add|To enable auto staging|\s*dvc config|Use `dvc push`")
NOISE = re.compile(r"Running stage|Stage |> |ERROR: failed to reproduce|Generating lock file|Updating lock file")


class StageFailed(Exception):
    """The command of a task failed; the message is the command's own. `may_pass`: worth another try."""

    def __init__(self, message: str, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


def worth_a_retry(task: Any, task_run: Any, state: Any) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, StageFailed) and error.may_pass


@task(task_run_name="{name}", persist_result=False)
def run_stage(name: str, root: str, timeout_s: float, grace_s: float, force: bool = False) -> dict[str, str | float]:
    """Bring one stage up to date (`dvc repro --single-item`), or with `force` make it whatever DVC thinks; returns its
    row of the report: stage, outcome, seconds.

    Raises StageFailed with the stage's own message.
    """
    outcomes = ["unchanged"]

    def watch(line: str) -> None:
        outcomes.extend(outcome for mark, outcome in OUTCOMES.items() if mark in line)

    began = time.monotonic()
    slot: AbstractContextManager[None] = nullcontext()
    if kind_of(name) != "prepare":
        slot = concurrency(GPU, occupy=1, strict=True, lease_duration=LEASE_S, raise_on_lease_renewal_failure=False)
    with slot:
        command = [sys.executable, "-m", "dvc", "repro", "--single-item", *(["--force"] if force else []), name]
        execute(name, command, Path(root), timeout_s, grace_s, spare=True, watch=watch)
    return {"stage": name, "outcome": outcomes[-1], "seconds": round(time.monotonic() - began, 1)}


def execute(
    name: str,
    command: list[str],
    root: Path,
    timeout_s: float,
    grace_s: float,
    *,
    spare: bool = False,
    watch: Callable[[str], None] = lambda line: None,
) -> None:
    """Run a command for the current task; its lines go to the run's log.

    Raises StageFailed; a cancel passes through once the command's process group is empty.
    """
    log = get_run_logger()
    lines: deque[str] = deque(maxlen=LAST_LINES)

    def on_line(line: str) -> None:
        if HINTS.match(line):
            return  # dvc's advice, the same after every stage
        log.info(line)
        lines.append(line)
        watch(line)

    output = root / ".work" / "logs" / f"{name}.log"
    clear_stale_dvc_locks(root, log.warning)
    try:
        status = run(command, root, output, timeout_s, grace_s, on_line, spare=spare, keep=held(root))
    except TimedOut:
        raise StageFailed(f"{name} was stopped after {timeout_s:g} s (pipeline.timeout_s in params.yaml); what it saved "
                          "is kept, the next run goes on from there") from None  # fmt: skip
    finally:
        clear_stale_dvc_locks(root, log.warning)
    if status:
        raise failure(name, list(lines), status)


def failure(name: str, lines: list[str], status: int) -> StageFailed:
    """What a person has to know of a failed command: its own message, found in its output.

    dvc ends with 255 whatever happened; the status of the stage's own command stands in its message.
    """
    text = "\n".join(lines)
    inner = STATUS.findall(text)
    if inner:
        status = int(inner[-1])
    may_pass = status == MAY_PASS or (not inner and BUSY.search(text) is not None)
    starts = [number for number, line in enumerate(lines) if line.startswith("judgefree: ")]
    said = lines[starts[-1] :] if starts else lines[-8:]
    message = "\n".join(line for line in said if not NOISE.match(line)) or text
    return StageFailed(f"{name} failed with status {status}: {message}", may_pass)


def options(pipeline: Pipeline) -> dict[str, Any]:
    """Retries of a task as the parameters want them."""
    return {
        "retries": pipeline.retries,
        "retry_delay_seconds": pipeline.retry_delay_s,
        "retry_condition_fn": worth_a_retry,
    }
