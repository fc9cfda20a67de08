"""The Prefect server that a flow talks to: one that is set up, the one of `make ui`, or a temporary one of its own."""

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import HOME
from judgefree.errors import JudgefreeError
from tasks.process import environment, guarded

STARTUP_S = 120.0
STOP_S = 5.0
FLUSH_S = 5.0
ADDRESS = HOME / "api_url"  # `make ui` writes its server's address there
TEMPORARY = {
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
}


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def configured() -> str | None:
    """Address of a running server's API: PREFECT_API_URL, else that of this project's `make ui` if it runs.

    Raises JudgefreeError when PREFECT_API_URL is set and nothing answers there.
    """
    if url := PREFECT_API_URL.value():
        if not healthy(url):
            raise JudgefreeError(f"PREFECT_API_URL is {url}, and no Prefect server answers there",
                                 "start it, or unset PREFECT_API_URL to run with a temporary server")  # fmt: skip
        return url
    if ADDRESS.is_file() and healthy(url := ADDRESS.read_text().strip()):
        return url
    return None


@contextmanager
def server() -> Iterator[bool]:
    """Point Prefect at a running server, or at a temporary one that ends with the block; yields whether it is temporary.

    The temporary server runs below a guard, so that it ends with this process even when that is killed.
    """
    url = configured()
    if url:
        with temporary_settings({PREFECT_API_URL: url}):
            yield False
        return
    with temporary_server() as url, temporary_settings({PREFECT_API_URL: url}):
        try:
            yield True
        finally:  # states of tasks and log lines are on their way still
            EventsWorker.drain_all(timeout=FLUSH_S)
            APILogWorker.drain_all(timeout=FLUSH_S)


@contextmanager
def temporary_server() -> Iterator[str]:
    """Start a server on a free port of the loopback address; yields its API's address. Raises JudgefreeError."""
    port = free_port()
    url, log = f"http://127.0.0.1:{port}/api", HOME / f"server-{port}.log"
    with guarded(server_command(port), Path.cwd(), log, STOP_S, env={**environment(), **TEMPORARY}) as guard:
        deadline = time.monotonic() + STARTUP_S
        while not healthy(url):
            if guard.poll() is not None or time.monotonic() > deadline:
                raise JudgefreeError(f"Prefect's temporary server did not start; see {log}",
                                     "start one with `make ui`, then repeat")  # fmt: skip
            time.sleep(0.2)
        yield url
    log.unlink()


def server_command(port: int) -> list[str]:
    return [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
