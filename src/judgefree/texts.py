"""Prompt files: the texts that a method, or a suite that tries again, puts to the policy, as YAML that a user can edit.

A run names its file in `options.prompts`, a suite in `retry.prompts` or `game.prompts`. What the file says is a setting
like any other: `judgefree resolve` writes the texts into resolved/train/<run>.json or resolved/evaluate/<model>.json, and
what is made with them is stale when they change. A method lists its texts and the slots that each must have
(`methods.TEXTS`), those of suites and judges are below; `judgefree.prompting.fill` puts values into them.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from judgefree.errors import JudgefreeError

FOLDER = "prompts"
Slots = Mapping[str, tuple[str, ...]]  # names of the slots that a text must have, by the text's key

# What the prompt file of a suite's `retry` must hold, by procedure (evaluation/retry.py).
RETRY_TEXTS: Mapping[str, Slots] = {
    "reflexion": {
        "reflect": ("question", "attempt", "reflections"),
        "reflection": ("reflection",),
        "retry": ("reflections", "question"),
    },
    "self_refine": {"feedback": ("question", "attempt"), "refine": ("feedback", "question"), "stop": ()},
}

# What the prompt file of a judge must hold (judging/words.py).
JUDGE_TEXTS: Slots = {
    "criteria": (),
    "compare": ("criteria", "instruction", "first", "second"),
    "rate": ("criteria", "instruction", "text"),
}


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML 1.2 file (`1e-5` is a number) that holds a mapping. Raises JudgefreeError naming the file."""
    try:
        raw = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except DuplicateKeyError as error:
        line, key = error.problem_mark.line + 1, str(error.problem).split('"')[1]
        raise JudgefreeError(
            f"{path}: {key} stands twice, again in line {line}", "put its entries under the first one"
        ) from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise JudgefreeError(f"{path} is not readable as YAML: {error}", "mend the line that it names") from error
    if not isinstance(raw, dict):
        raise JudgefreeError(f"{path} holds no mapping of settings", f"start from a file in profiles/ or {FOLDER}/")
    return raw


def read_texts(root: Path, file: str, key: str) -> dict[str, str]:
    """The texts of a prompt file by key.

    root: the project's folder; key: the setting that names the file, for messages. Raises JudgefreeError for a file that
    is missing, unreadable, or outside prompts/ (the folder whose changes DVC sees), and for a value that is no text.
    """
    parts = PurePosixPath(file).parts
    if parts[:1] != (FOLDER,) or ".." in parts:
        raise JudgefreeError(
            f"{key}: {file} is not below {FOLDER}/", f"move it there: DVC watches {FOLDER}/ for changes"
        )
    path = root / file
    if not path.is_file():
        known = ", ".join(sorted(f"{FOLDER}/{one.name}" for one in (root / FOLDER).glob("*.yaml"))) or "none"
        raise JudgefreeError(f"{key}: {path} does not exist", f"write it, or name one that is there: {known}")
    texts = read_mapping(path)
    for name, text in texts.items():
        if not isinstance(text, str):
            raise JudgefreeError(f"{path}: {name}: {text!r} is no text", "put it into quotes")
    return texts


def read_judge_texts(root: Path, prompts: str | Mapping[str, str], key: str) -> dict[str, Any]:
    """The texts of a prompt file, or of several by category. Raises JudgefreeError as `read_texts`."""
    if isinstance(prompts, str):
        return read_texts(root, prompts, key)
    return {category: read_texts(root, file, f"{key}.{category}") for category, file in prompts.items()}


def check_texts(texts: Mapping[str, str], wanted: Slots, origin: str) -> None:
    """Raises JudgefreeError naming `origin` and every text that is missing, unknown, or lacks one of its slots, and for
    a `stop` without a word."""
    wrong = [f"{name}: unknown text; remove it" for name in texts if name not in wanted]
    if "stop" in wanted and not any(map(str.isalnum, texts.get("stop", "x"))):
        wrong.append("stop: holds no word; add one")
    for name, slots in wanted.items():
        if name not in texts:
            wrong.append(f"{name}: missing; add it")
        else:
            lacking = [f"{{{slot}}}" for slot in slots if f"{{{slot}}}" not in texts[name]]
            wrong += [f"{name}: has no {slot}; add it where that goes" for slot in lacking]
    if wrong:
        raise JudgefreeError(f"{origin} is refused:\n  - " + "\n  - ".join(wrong), f"known texts: {', '.join(wanted)}")
