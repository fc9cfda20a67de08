"""A DVC project with stages that are a few lines of Python: the same process handling in a fraction of the time."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from ruamel.yaml import YAML

REPOSITORY = Path(__file__).parents[2]
PIPELINE = {
    "timeout_s": {"prepare": 600, "train": 600, "evaluate": 600, "registry": 600},
    "grace_s": 20, "lock_wait_s": 1, "retries": 2, "retry_delay_s": 0, "gpu_slots": 1,
}  # fmt: skip

# Saves on SIGTERM like training does, after a moment; exits with its status.
LONG = """
import pathlib, signal, sys, time
def stop(number, frame):
    time.sleep(1)
    pathlib.Path("saved").write_text("checkpoint")
    print("saved, stopping", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
pathlib.Path("started").touch()
print("training", flush=True)
if pathlib.Path("saved").exists():
    print("going on from the checkpoint", flush=True)
else:
    time.sleep(60)
"""


def make(root: Path, stages: dict[str, str], **pipeline: object) -> Path:
    """A project in `root` whose stages are the given Python programs, with the tiny profile's parameters."""
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load((REPOSITORY / "profiles" / "tiny.yaml").read_text())
    params["pipeline"] = {**PIPELINE, **pipeline}
    with (root / "params.yaml").open("w") as file:
        yaml.dump(params, file)
    table: dict[str, dict[str, object]] = {}
    for name, program in stages.items():
        (root / f"{name}.py").write_text(textwrap.dedent(program))
        table[name] = {"cmd": f"{sys.executable} {name}.py", "deps": [f"{name}.py"], "outs": [f"{name}.out"]}
    with (root / "dvc.yaml").open("w") as file:
        yaml.dump({"stages": table}, file)
    environment = {**os.environ, "DVC_NO_ANALYTICS": "true"}
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=root, env=environment, check=True)
    return root


def write(name: str) -> str:
    """A program that makes the stage's output."""
    return f"import pathlib\nprint('making {name}')\npathlib.Path('{name}.out').write_text('{name}')\n"
