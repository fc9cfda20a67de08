"""One process or several: `judgefree train` is the worker itself, or one `accelerate launch` of workers.

Nothing here opens a process group or session; the launcher and its workers stay in the caller's and die with it.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from judgefree.errors import JudgefreeError

WORKER = "JUDGEFREE_WORKER"


def launch(name: str, root: Path, settings: dict[str, Any], tell: Callable[..., Any] | None = None) -> None:
    """Train here when one process is asked for, else become `accelerate launch`, whose workers come back to here."""
    training = settings["training"]
    if training["processes"] > 1 and WORKER not in os.environ:
        words = command(root, training, ["-m", "judgefree", "train", name])
        # The launcher would kill its workers 30 s after a SIGTERM; whoever sent it knows how long a save may take.
        patience = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(24 * 3600)}
        os.execvpe(sys.executable, words, {**patience, **os.environ, WORKER: "1"})
    from judgefree.training.run import train

    train(name, root, tell)


def command(root: Path, training: dict[str, Any], worker: list[str]) -> list[str]:
    """The launcher's command line. On CPU it is torch's own launcher, since `accelerate launch --cpu` starts one process
    whatever number it is given."""
    processes = str(training["processes"])
    if "accelerate_config" in training:
        config = root / training["accelerate_config"]
        if not config.is_file():
            raise JudgefreeError(f"training.accelerate_config: {config} does not exist",
                                 "write it with `accelerate config --config_file ...`")  # fmt: skip
        options = ["--config_file", str(config), "--num_processes", processes]
    elif training["device"] == "cpu":
        launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", processes]
        return [sys.executable, "-m", *launcher, *worker]
    else:
        options = ["--multi_gpu", "--num_machines", "1", "--num_processes", processes]
        options += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    return [sys.executable, "-m", "accelerate.commands.launch", *options, *worker]
