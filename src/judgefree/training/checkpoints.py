"""Checkpoints that are whole or not there: a manifest with the sha256 of every file is written last."""

import logging
import re
import shutil
from pathlib import Path

from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, seal, verify

KEPT = 3  # checkpoints at most, once one is sealed: see `prune`
FOLDER = re.compile(r"^checkpoint-(\d+)$")

log = logging.getLogger(__name__)


def step_of(folder: Path) -> int:
    match = FOLDER.match(folder.name)
    assert match, folder
    return int(match.group(1))


def checkpoints(work: Path) -> list[Path]:
    """Checkpoint folders below `work`, sealed or not, by step."""
    found = [path for path in work.glob("checkpoint-*") if FOLDER.match(path.name)]
    return sorted(found, key=step_of)


def seal_checkpoint(folder: Path) -> None:
    seal(folder, {"step": step_of(folder)})


def newest_valid(work: Path) -> Path | None:
    """The newest checkpoint whose every file is as written; newer ones that are not are removed, and said so."""
    for folder in reversed(checkpoints(work)):
        if not (folder / MANIFEST).is_file():
            log.warning("%s was not finished; passed over and removed", folder)
        else:
            try:
                verify(folder)
                return folder
            except JudgefreeError as error:
                log.warning("%s is corrupted (%s); passed over and removed", folder, error.problem)
        shutil.rmtree(folder)
    return None


def prune(work: Path, best_step: int | None) -> None:
    """Keep the two newest sealed checkpoints, so that one may be corrupted, and the best one."""
    sealed = [folder for folder in checkpoints(work) if (folder / MANIFEST).is_file()]
    for folder in sealed[:-2]:
        if step_of(folder) != best_step:
            shutil.rmtree(folder)
