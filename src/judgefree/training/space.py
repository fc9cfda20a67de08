"""How much of the disk a run takes: asked when it starts, and by `judgefree doctor`."""

import math
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open

from judgefree.config import Lora, Training
from judgefree.errors import JudgefreeError
from judgefree.training.checkpoints import KEPT

WEIGHT = 4  # bytes of a parameter of the published model, and of one that is trained
TRAINED = 3 * WEIGHT  # in a checkpoint: the weight and AdamW's two moments


def space_of(start: Path, training: Training, beside: Sequence[Path] = ()) -> int:
    """Bytes of a run's work folder at its fullest: when a checkpoint is written beside those that stay, or at the end,
    when the model to be published is. Records and logs, small beside them, are left out.

    start: the folder of the model that it starts from; beside: those of models that its method trains as well, whole, and
    keeps in checkpoints and in what is published. Raises JudgefreeError for weights that cannot be read.
    """
    shapes = shapes_of(start)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    trained = parameters if training.lora is None else adapter_size(shapes, training.lora)
    others = sum(math.prod(shape) for folder in beside for shape in shapes_of(folder).values())
    checkpoint = TRAINED * (trained + others)
    saved = math.ceil(training.steps / training.save_every)
    return max(min(saved, KEPT + 1) * checkpoint, min(saved, KEPT) * checkpoint + WEIGHT * (parameters + others))


def space_held(work: Path) -> int:
    """Bytes of the checkpoints that are there already."""
    return sum(file.stat().st_size for file in work.glob("checkpoint-*/*"))


def shapes_of(folder: Path) -> dict[str, list[int]]:
    """The shape of every tensor of a folder's safetensors files, from their headers."""
    shapes: dict[str, list[int]] = {}
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="np") as file:
                shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise JudgefreeError(f"{path} is not a safetensors file: {error}", "copy the model again") from error
    return shapes


def adapter_size(shapes: dict[str, list[int]], lora: Lora) -> int:
    """Parameters of a LoRA adapter: rank x (in + out) for every module whose name ends with one of the targets."""
    modules = {name.removesuffix(".weight"): shape for name, shape in shapes.items() if name.endswith(".weight")}
    return sum(
        lora.rank * sum(shape)
        for name, shape in modules.items()
        if any(name == target or name.endswith(f".{target}") for target in lora.target_modules)
    )
