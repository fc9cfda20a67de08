"""Is every dependency of pyproject.toml pinned in constraints.txt, within its range, and installed as pinned?"""

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def problems() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for line in project["dependencies"] + extras["pipeline"] + extras["dev"]]
    lines = (ROOT / "constraints.txt").read_text().split()
    pins = {canonicalize_name(name): pinned for name, pinned in (line.split("==") for line in lines)}
    found = []
    for requirement in wanted:
        pinned = pins.get(canonicalize_name(requirement.name))
        if pinned is None:
            found.append(f"{requirement.name}: not in constraints.txt; run `make lock`")
        elif not requirement.specifier.contains(pinned):
            found.append(f"{requirement.name}: {pinned} is outside {requirement.specifier}; run `make lock`")
    for name, pinned in pins.items():
        try:
            installed = version(name).split("+")[0]
        except PackageNotFoundError:
            continue
        if installed != pinned:
            found.append(f"{name}: {installed} installed, {pinned} pinned; remove .venv and run `make env`")
    return found


if __name__ == "__main__":
    for line in problems():
        print(line, file=sys.stderr)
    sys.exit(bool(problems()))
