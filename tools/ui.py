"""MLflow's and Prefect's pages on the loopback address, until Ctrl-C: `make ui`.

Both servers run below guards, so that one Ctrl-C, or the end of this process in whatever way, ends both.
"""

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

from flows.project import run_command
from flows.server import ADDRESS, STARTUP_S, STOP_S, server_command
from judgefree.errors import JudgefreeError
from judgefree.registry.store import open_store
from tasks.process import environment, guarded

LOGS = Path(".work") / "logs"


def main(mlflow_port: int, prefect_port: int) -> int:
    """Start both, print where they are, wait. Raises JudgefreeError naming the log of the one that does not start."""
    open_store(Path("."))  # makes the store, or says what is wrong with it
    pages = {
        "MLflow": (mlflow_command(mlflow_port), mlflow_port, "health"),
        "Prefect": (server_command(prefect_port), prefect_port, "api/health"),
    }
    settings = {
        **environment(),
        "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{prefect_port}/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }
    print("starting MLflow and Prefect (half a minute)", flush=True)
    with ExitStack() as stack:
        guards = {
            name: stack.enter_context(guarded(command, Path.cwd(), log_of(name), STOP_S, env=settings))
            for name, (command, _, _) in pages.items()
        }
        for name, (_, port, health) in pages.items():
            deadline = time.monotonic() + STARTUP_S
            while not answers(f"http://127.0.0.1:{port}/{health}"):
                if guards[name].poll() is not None or time.monotonic() > deadline:
                    raise JudgefreeError(f"{name} did not start on port {port}; see {log_of(name)}",
                                         f"choose another port: python -m tools.ui --{name.lower()} PORT")  # fmt: skip
                time.sleep(0.3)
            print(f"{name:<8} http://127.0.0.1:{port}", flush=True)
        ADDRESS.write_text(f"http://127.0.0.1:{prefect_port}/api\n")  # where the flows find it
        stack.callback(ADDRESS.unlink, missing_ok=True)
        print("Ctrl-C ends both", flush=True)
        while all(guard.poll() is None for guard in guards.values()):
            time.sleep(0.3)
    ended = next(name for name, guard in guards.items() if guard.returncode is not None)
    raise JudgefreeError(f"{ended} ended by itself; see {log_of(ended)}", "repeat `make ui`")


def mlflow_command(port: int) -> list[str]:
    return [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
            "--backend-store-uri", "sqlite:///mlruns/mlflow.db", "--artifacts-destination", "mlruns/artifacts"]  # fmt: skip


def log_of(name: str) -> Path:
    return LOGS / f"{name.lower()}.log"


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.ui", description=__doc__.splitlines()[0])
    parser.add_argument("--mlflow", type=int, default=5000, help="port of MLflow (default 5000)")
    parser.add_argument("--prefect", type=int, default=4200, help="port of Prefect (default 4200)")
    arguments = parser.parse_args()
    run_command(lambda: main(arguments.mlflow, arguments.prefect))
