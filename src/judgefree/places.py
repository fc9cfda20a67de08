"""Where things lie in the folders of a project, for those who must agree on it."""

from pathlib import Path

from judgefree.errors import JudgefreeError

INSIDE = "reward_model"  # the folder of a run's own reward model, inside of the run's


def reward_model_in(folder: Path) -> Path:
    """Where the reward model of a folder in models/ lies: inside of a run's that has one, else the folder itself."""
    inside = folder / INSIDE
    return inside if inside.is_dir() else folder


def require_clone(root: Path) -> None:
    """Raises JudgefreeError for a folder in which no stage can run: without dvc.yaml there is neither profile nor prompt."""
    if not (root / "dvc.yaml").is_file():
        raise JudgefreeError(
            f"{root.absolute()} has no dvc.yaml, so it is no project of judgefree",
            "run the command in a clone of the repository, or in a copy of its files",
        )
