"""One process or several: `judgefree train` is the worker itself, or one `accelerate launch` of workers.

Nothing here opens a process group or session; the launcher and its workers stay in the caller's and die with it.
"""

import os
import sys
from pathlib import Path
from typing import Any

from judgefree.errors import JudgefreeError

WORKER = "JUDGEFREE_WORKER"


def launch(name: str, root: Path, settings: dict[str, Any]) -> None:
    """Train here when one process is asked for, else become `accelerate launch`, whose workers come back to here."""
    training = settings["training"]
    if training["processes"] > 1 and WORKER not in os.environ:
        os.execvpe(sys.executable, _command(name, root, training), {**os.environ, WORKER: "1"})
    from judgefree.training.run import train

    train(name, root)


def _command(name: str, root: Path, training: dict[str, Any]) -> list[str]:
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(training["processes"])]
    if "accelerate_config" in training:
        config = root / training["accelerate_config"]
        if not config.is_file():
            raise JudgefreeError(f"training.accelerate_config: {config} does not exist",
                                 "write it with `accelerate config --config_file ...`")  # fmt: skip
        command += ["--config_file", str(config)]
    else:
        command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--multi_gpu"]
        if training["device"] == "cpu":
            command[-1:] = ["--cpu"]
    return [*command, "-m", "judgefree", "train", name]
