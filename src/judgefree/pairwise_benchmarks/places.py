"""Where a benchmark's files lie: a folder, the mirror, or the hub at a pinned revision."""

import os
from collections.abc import Sequence
from pathlib import Path

from judgefree.data.sources import MIRROR, download, mirror_folder
from judgefree.errors import JudgefreeError
from judgefree.pinned import is_folder


def folder_of(identity: str, revision: str | None, files: Sequence[str], mirror: str, root: Path) -> Path:
    """The folder that holds a benchmark's files.

    identity: the id of a hub's data set, or a folder (`/...`, `./...`, the latter below root); files: what is fetched
    from the hub; mirror: the folder's name in the mirror, which goes before the hub.
    Raises JudgefreeError when the place is missing or the hub cannot be reached.
    """
    if is_folder(identity):
        folder = root / identity
    elif os.environ.get(MIRROR):
        folder = mirror_folder() / mirror
    else:
        return download(identity, revision, files, [f"{mirror}/"])
    if not folder.is_dir():
        raise JudgefreeError(
            f"the benchmark's folder {folder} does not exist", f"add it, or unset {MIRROR} to use the hub"
        )
    return folder
