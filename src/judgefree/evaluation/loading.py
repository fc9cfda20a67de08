"""A model folder as a model and its tokenizer, ready to be asked."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgefree.devices import device_of
from judgefree.errors import JudgefreeError

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_model(folder: Path, device: str, precision: str, setting: str) -> tuple[Any, Any]:
    """Model in evaluation mode and tokenizer, from safetensors in a local folder and nowhere else.

    device: cpu, cuda or auto (cuda where there is one), as `setting` of params.yaml says; precision: fp32 or bf16.

    Raises JudgefreeError naming the folder; as `device_of` does.
    """
    place = device_of(device, setting)
    safe = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **safe)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, use_safetensors=True, dtype=_DTYPES[precision], **safe
        )
    except (OSError, ValueError) as error:
        raise JudgefreeError(
            f"{folder} cannot be loaded as a model with tokenizer: {error}", "run `dvc repro` to make it again"
        ) from error
    return model.eval().to(place), tokenizer
