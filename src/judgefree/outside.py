"""Sources that DVC does not track, because they lie outside the project: folders that bases and data sets name, and the
mirror. What was made says by sha256 what it was made from, so that `judgefree check` can see whether that still stands.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from judgefree.config_data import FolderBase
from judgefree.files import MANIFEST, read_json, sha256_file
from judgefree.params import Params, resolve


def replaced(params: Params, root: Path) -> Iterator[tuple[str, Path]]:
    """Stages whose result was made from other files than now lie at its source, each with the first such file.

    A result whose settings have changed since is left to DVC. So is a source that is not on this machine, since what was
    made from it may have come with `dvc pull`; and the hub, where a revision names the content.
    """
    resolved = resolve(params, root)
    for name, base in params.bases.items():
        if isinstance(base, FolderBase) and _current(root, f"base/{name}.json", resolved):
            made = _manifest(root / "models" / name).get("files", {})
            wanted = {file: facts["sha256"] for file, facts in made.items()}
            yield from _first(f"base@{name}", root / base.path, wanted)
    for name in params.data:
        if _current(root, f"data/{name}.json", resolved):
            for source in _manifest(root / "data" / name).get("sources", {}).values():
                if folder := _folder(source, root):
                    yield from _first(f"prepare@{name}", folder, source["files"])


def _current(root: Path, name: str, resolved: Mapping[str, Any]) -> bool:
    path = root / "resolved" / name
    return path.is_file() and read_json(path) == resolved[name]


def _manifest(folder: Path) -> dict[str, Any]:
    return dict(read_json(folder / MANIFEST)) if (folder / MANIFEST).is_file() else {}


def _folder(source: Mapping[str, Any], root: Path) -> Path | None:
    if source.get("kind") == "folder":
        return root / source["id"]
    if source.get("kind") == "mirror":
        from judgefree.data.sources import MIRROR  # pyarrow takes its time to import

        return Path(os.environ[MIRROR]) if os.environ.get(MIRROR) else None
    return None


def _first(stage: str, folder: Path, sha256: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if folder.is_dir():
        for name, expected in sha256.items():
            if not (folder / name).is_file() or sha256_file(folder / name) != expected:
                yield stage, folder / name
                return
