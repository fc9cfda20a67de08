"""`judgefree check` and `judgefree resolve`: params.yaml read, refused or explained, and cut into one file per stage."""

import shutil
from pathlib import Path

from judgefree.files import pretty_json, publish, write_atomic
from judgefree.methods import options_of
from judgefree.params import Params, load_params, resolve


def checked(path: Path) -> Params:
    """Settings that every part accepts, the methods' own options included. Raises JudgefreeError."""
    params = load_params(path)
    for name, run in params.runs.items():
        options_of(name, run)
    return params


def check_params(path: Path, quiet: bool) -> None:
    """Print the settings as they take effect, stage by stage; with `quiet` the last line only."""
    params = checked(path)
    for name, content in () if quiet else resolve(params).items():
        print(f"# {name}\n{pretty_json(content)}")
    chains = [" <- ".join(params.ancestry(name)) for name in params.runs]
    print(f"{path}: {len(params.bases)} bases, {len(params.data)} data sets, {len(params.runs)} runs "
          f"({'; '.join(chains)}), {len(params.suites)} suites: all right")  # fmt: skip


def write_resolved(root: Path) -> None:
    files = resolve(checked(root / "params.yaml"))
    fresh = root / ".work" / "resolved"
    shutil.rmtree(fresh, ignore_errors=True)
    for name, content in files.items():
        write_atomic(fresh / name, pretty_json(content))
    publish(fresh, root / "resolved")
