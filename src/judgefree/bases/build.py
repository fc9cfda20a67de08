"""The base stage: settings of one base in, `models/<name>/` out."""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open

from judgefree.bases import gguf, hub, scratch
from judgefree.config_data import Base, FolderBase, GgufBase, HubBase, ScratchBase
from judgefree.errors import JudgefreeError
from judgefree.files import key_of, listing, publish, seal, writing

_BASE: TypeAdapter[ScratchBase | GgufBase | HubBase | FolderBase] = TypeAdapter(Base)


def build_base(name: str, resolved: Mapping[str, Any], root: Path) -> Path:
    """Make `models/<name>/` below `root` from `{"base": settings}` and return its path.

    The folder holds configuration, safetensors weights, tokenizer and a manifest (kind, source, parameters, key), the
    same bytes every time. It is made in `.work/base/<name>/` and moved into place in one rename. Raises JudgefreeError
    when the source cannot be reached or is not what was pinned.
    """
    settings = _BASE.validate_python({"suites": [], **resolved["base"]})
    work = root / ".work" / "base" / name
    folder, downloads = work / "model", work / "download"
    shutil.rmtree(folder, ignore_errors=True)
    for path in (folder, downloads):
        path.mkdir(parents=True, exist_ok=True)
    with writing(work):
        match settings:
            case ScratchBase():
                source = scratch.build(settings, folder)
            case GgufBase():
                source = gguf.build(settings, folder, downloads)
            case HubBase():
                source = hub.build_hub(settings, folder)
            case FolderBase():
                source = hub.build_folder(settings, folder, root)
    facts = {"kind": settings.kind, "source": source, "parameters": parameter_count(folder)}
    seal(folder, {**facts, "key": key_of("base", facts, listing(folder))})
    target = root / "models" / name
    publish(folder, target)
    return target


def parameter_count(folder: Path) -> int:
    """Numbers in all tensors of a folder's safetensors files; tied weights are stored, and counted, once."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                total += sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
        except SafetensorError as error:
            raise JudgefreeError(f"{path.name} is not a safetensors file: {error}", "copy the model again") from error
    return total
