"""One process or several: `judgefree train` is the worker itself, or starts one worker a rank and waits for them.

Workers stay in the caller's process group and session, where tasks/guard.py finds them, and die with their launcher.
torch's and accelerate's launchers give each worker a session of its own, so they are used only where a file of
`training.accelerate_config` asks for one; the workers die with it all the same.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from judgefree.errors import JudgefreeError
from judgefree.processes import die_with

WORKER = "JUDGEFREE_WORKER"  # the launcher's process id, in its workers' environment
STOPPED = 128 + signal.SIGTERM  # the exit status of a run that SIGTERM ended after its checkpoint was saved
GRACE_S = 30.0  # for the other ranks when one has failed
_POLL_S = 0.1


def launch(name: str, root: Path, settings: dict[str, Any], tell: Callable[..., Any] | None = None) -> None:
    """Train here when one process is asked for, else start the workers, which come back to here.

    Raises SystemExit with the status of a worker that did not end well.
    """
    training = settings["training"]
    if WORKER in os.environ:
        die_with(int(os.environ[WORKER]))
    elif training["processes"] > 1:
        worker = ["-m", "judgefree", "train", name]
        if "accelerate_config" in training:
            accelerate(root / training["accelerate_config"], training["processes"], worker)
        if status := run_ranks([sys.executable, *worker], training["processes"]):
            raise SystemExit(status)
        return
    from judgefree.training.run import train

    train(name, root, tell)


def run_ranks(words: list[str], processes: int) -> int:
    """Run a command once a rank, with the variables that torch.distributed reads; returns the exit status: 0, or that of
    the first rank that did not end well.

    SIGTERM and SIGINT are passed on. A rank that fails stops the others, since they would wait for it for ever; one that
    ends because it was asked to (STOPPED) does not: all ranks have agreed on that, and another may still be saving.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {WORKER: os.getpid(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
              "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}  # fmt: skip
    ranks = []
    for rank in range(processes):
        own = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        ranks.append(subprocess.Popen(words, env={**os.environ, **own}))

    def pass_on(number: int, frame: FrameType | None) -> None:
        for process in ranks:
            process.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    while not (status := _first_failure(ranks)) and any(process.poll() is None for process in ranks):
        time.sleep(_POLL_S)
    if status not in (0, STOPPED):
        _stop(ranks)
    for process in ranks:
        process.wait()
    return status or _first_failure(ranks)


def _first_failure(ranks: list[subprocess.Popen[bytes]]) -> int:
    codes = [code for process in ranks if (code := process.poll())]
    return 0 if not codes else codes[0] if codes[0] > 0 else 128 - codes[0]


def _stop(ranks: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + GRACE_S
    for process in ranks:
        process.terminate()
    while any(process.poll() is None for process in ranks) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for process in ranks:
        process.kill()


def accelerate(config: Path, processes: int, worker: list[str]) -> None:
    """Become `accelerate launch`. Raises JudgefreeError when its file is missing."""
    if not config.is_file():
        raise JudgefreeError(f"training.accelerate_config: {config} does not exist",
                             "write it with `accelerate config --config_file ...`")  # fmt: skip
    words = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    words += ["--num_processes", str(processes), *worker]
    # It would kill its workers 30 s after a SIGTERM; whoever sent it knows how long a save may take.
    patience = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(24 * 3600)}
    os.execvpe(sys.executable, words, {**patience, **os.environ, WORKER: str(os.getpid())})
