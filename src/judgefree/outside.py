"""Sources that DVC does not track, because they lie outside the project or only params.yaml names them: folders of bases,
data sets and reward benchmarks, the mirror, configurations of accelerate. What was made says by sha256 what it was made
from, so that `judgefree check` and the flows can see whether that still stands.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from judgefree.config_data import FolderBase
from judgefree.files import MANIFEST, read_json, sha256_file
from judgefree.params import Params, resolve

CONFIG = "accelerate_config_sha256"


def replaced(params: Params, root: Path) -> Iterator[tuple[str, Path]]:
    """Stages whose result was made from other files than now lie at its source, each with the first such file: changed,
    gone, or new.

    A result whose settings have changed since is left to DVC. So is a source that is not on this machine, since what was
    made from it may have come with `dvc pull`; and the hub, where a revision names the content.
    """
    resolved = resolve(params, root)
    for name in params.runs:
        now, made = resolved[f"train/{name}.json"], _read(root / "resolved" / "train" / f"{name}.json")
        if CONFIG in now and made != now == {**made, CONFIG: now[CONFIG]}:
            yield "resolve", root / now["training"]["accelerate_config"]
    for name, base in params.bases.items():
        if isinstance(base, FolderBase) and _current(root, f"base/{name}.json", resolved):
            from judgefree.bases.hub import WANTED  # the hub's client takes its time to import

            folder = root / base.path
            if made := _read(root / "models" / name / MANIFEST):
                wanted = {file: facts["sha256"] for file, facts in made["files"].items()}
                present = {path.name for pattern in WANTED for path in folder.glob(pattern) if path.is_file()}
                yield from _first(f"base@{name}", folder, wanted, present)
    for name in params.reward_benchmarks.models if params.reward_benchmarks else ():
        if _current(root, f"reward_bench/{name}.json", resolved):
            made = _read(root / "reports" / "reward-bench" / name / MANIFEST)
            sets = {one: facts for own in made.get("sources", {}).values() for one, facts in own.items()}
            for one, source in sets.items():
                if place := _folder(source, root):
                    yield from _first(f"reward_bench@{name}", place, source["files"], _files_of_set(one, source, place))
    for name in params.data:
        if _current(root, f"data/{name}.json", resolved):
            for source in _read(root / "data" / name / MANIFEST).get("sources", {}).values():
                if place := _folder(source, root):
                    from judgefree.data.sources import matching  # pyarrow takes its time to import

                    found = {path.relative_to(place).as_posix() for path in matching(place, source.get("patterns", ()))}
                    yield from _first(f"prepare@{name}", place, source["files"], found)


def _files_of_set(name: str, source: Mapping[str, Any], place: Path) -> set[str]:
    """What would be read of a reward benchmark's set now."""
    from judgefree.data.sources import matching
    from judgefree.reward_benchmarks.loaders import FILES

    layouts, mirror = FILES[name]  # type: ignore[index]
    return {
        path.relative_to(place).as_posix()
        for path in matching(place, mirror if source["kind"] == "mirror" else layouts)
    }


def _current(root: Path, name: str, resolved: Mapping[str, Any]) -> bool:
    return _read(root / "resolved" / name) == resolved[name]


def _read(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.is_file() else {}


def _folder(source: Mapping[str, Any], root: Path) -> Path | None:
    if source.get("kind") == "folder":
        return root / source["id"]
    if source.get("kind") == "mirror":
        from judgefree.data.sources import MIRROR

        return Path(os.environ[MIRROR]) if os.environ.get(MIRROR) else None
    return None


def _first(stage: str, folder: Path, sha256: Mapping[str, str], present: Collection[str]) -> Iterator[tuple[str, Path]]:
    if folder.is_dir():
        for name in sorted({*sha256, *present}):
            if name not in present or sha256_file(folder / name) != sha256.get(name):
                yield stage, folder / name
                return
