"""A project of its own in a temporary folder: the tiny profile made smaller still, prepared up to the first run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from judgefree.files import listing

REPOSITORY = Path(__file__).parents[2]
SMALL = {
    "training": {"steps": 8, "save_every": 4, "rollout_size": 16, "group_size": 4, "updates_per_rollout": 2,
                 "validation_items": 10},
    "data.arithmetic": {"train": 200, "validation": 20, "test": 30},
    "runs.warmup": {"options": {"batch_size": 16}, "training": {"steps": 8, "save_every": 4, "learning_rate": 1e-3}},
    "suites.arithmetic": {"samples": 2, "pass_at": [1, 2], "items": 30},
}  # fmt: skip


def write_params(root: Path, **sections: dict[str, Any]) -> None:
    """params.yaml of the tiny profile with sections (dotted paths) updated."""
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load((REPOSITORY / "profiles" / "tiny.yaml").read_text())
    for path, values in [*SMALL.items(), *sections.items()]:
        place = params
        for part in path.split("."):
            place = place[part]
        place.update(values)
    with (root / "params.yaml").open("w") as file:
        yaml.dump(params, file)


def command(root: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment in `root`, on this checkout's code."""
    result = subprocess.run(words, cwd=root, env=environment(), text=True, capture_output=True)
    if check and result.returncode:
        raise AssertionError(f"{' '.join(words)} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result


def environment() -> dict[str, str]:
    binaries = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY / "src"),
            "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "true"}  # fmt: skip


def copy_checkout(target: Path) -> Path:
    """This checkout's files, in a git repository of their own, with the small params.yaml."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, text=True, capture_output=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (REPOSITORY / name).is_file() and name.split("/")[0] not in ("tests", "docs", "dvc.lock"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target / name)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "start"],
    ):
        subprocess.run(["git", *words], cwd=target, check=True)
    write_params(target)
    return target


def hashes(folder: Path) -> dict[str, str]:
    return {name: facts["sha256"] for name, facts in listing(folder).items()}
