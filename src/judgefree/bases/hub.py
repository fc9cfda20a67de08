"""Models that exist already: a hub id at a pinned revision, or a local folder. Weights from safetensors only, and no
code that comes with a model is ever copied or run."""

import json
import shutil
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from huggingface_hub.utils import httpx

from judgefree.config_data import FolderBase, HubBase
from judgefree.errors import JudgefreeError, MayPass, first_line
from judgefree.files import read_json

WANTED = ["*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "chat_template.*",
          "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt"]  # fmt: skip
INDEX = "model.safetensors.index.json"


def build_hub(settings: HubBase, folder: Path) -> str:
    """Fetch the model's files at the pinned revision into `folder`. Returns the source for the manifest.

    Raises JudgefreeError when the hub cannot be reached, or knows neither the model nor the revision.
    """
    where = f"{settings.id} at revision {settings.revision}"
    try:
        snapshot_download(settings.id, revision=settings.revision, local_dir=folder, allow_patterns=WANTED)
    except (HFValidationError, httpx.HTTPError, OSError) as error:
        silent = isinstance(error, (LocalEntryNotFoundError, httpx.TransportError, TimeoutError, ConnectionError))
        raise (MayPass if silent else JudgefreeError)(
            f"cannot fetch {where} from the hub: {first_line(error)}",
            "check id, revision and network (HF_ENDPOINT names a mirror of the hub), or copy the model's files to this "
            "machine and use `kind: folder` with their path",
        ) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the client's book-keeping, with times in it
    check_model(folder, where)
    return where


def build_folder(settings: FolderBase, folder: Path, root: Path) -> str:
    """Copy a local model's files into `folder`; a relative path starts at `root`. Returns the source for the manifest.

    Raises JudgefreeError naming the folder or the file that is missing.
    """
    source = root / settings.path
    if not source.is_dir():
        raise JudgefreeError(f"the model folder {source} does not exist", "correct the base's path")
    check_model(source, str(source))
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        if file.is_file() and any(fnmatch(file.name, pattern) for pattern in WANTED):
            shutil.copyfile(file, folder / file.name)
    return "local folder"


def check_model(folder: Path, where: str) -> None:
    """That a folder holds a configuration, a tokenizer and every shard of its safetensors weights.

    Raises JudgefreeError naming what is missing in `where`.
    """
    config = folder / "config.json"
    if not config.is_file():
        raise JudgefreeError(f"{where} has no config.json", "point to a folder with a model in Transformers' layout")
    try:
        json.loads(config.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise JudgefreeError(f"config.json of {where} is not valid JSON: {error}", "copy the model again") from error
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise JudgefreeError(f"{where} has no tokenizer.json", "copy the tokenizer's files beside the weights")
    if (folder / INDEX).is_file():
        shards = set(read_json(folder / INDEX)["weight_map"].values())
        if missing := sorted(shard for shard in shards if not (folder / shard).is_file()):
            raise JudgefreeError(f"{where} has no {missing[0]}, though {INDEX} names it", "copy the missing file")
    elif not list(folder.glob("*.safetensors")):
        raise JudgefreeError(
            f"{where} has no *.safetensors file (other formats can run code and are not read)",
            "convert the weights, e.g. with save_pretrained of a trusted installation",
        )
