"""Where things lie in the folders of a project, for those who must agree on it."""

from pathlib import Path

INSIDE = "reward_model"  # the folder of a run's own reward model, inside of the run's


def reward_model_in(folder: Path) -> Path:
    """Where the reward model of a folder in models/ lies: inside of a run's that has one, else the folder itself."""
    inside = folder / INSIDE
    return inside if inside.is_dir() else folder
