"""What Arena-Hard v2 is made of: prompts by category, and the answers of each category's baseline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from judgefree.config_benchmarks import ArenaHard
from judgefree.data.sources import RawRow, read_jsonl
from judgefree.errors import JudgefreeError
from judgefree.files import sha256_file
from judgefree.pairwise_benchmarks.arena_hard import BASELINES
from judgefree.pairwise_benchmarks.places import folder_of

VERSION = "arena-hard-v2.0"


def load_prompts(settings: ArenaHard, root: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Prompts of the settings' categories (id, category, instruction, baseline_text) and the sha256 of the files read.

    Raises JudgefreeError naming the file and row that is missing or malformed.
    """
    names = ["question.jsonl", *(f"model_answer/{BASELINES[category]}.jsonl" for category in settings.categories)]
    inside = f"data/{VERSION}"
    folder = folder_of(settings.id, settings.revision, [f"{inside}/{name}" for name in names], "arena-hard", root)
    if (folder / inside).is_dir():
        folder = folder / inside
    questions = _rows(folder / names[0], ("uid", "category", "prompt"))
    tables = []
    for category, file in zip(settings.categories, names[1:], strict=True):
        rows = [row for row in questions if row["category"] == category]
        if not rows:
            raise JudgefreeError(f"{folder / names[0]} has no prompt of category {category}", "correct categories")
        answers = {row["uid"]: _answer(row, folder / file) for row in _rows(folder / file, ("uid", "messages"))}
        for row in rows:
            if row["uid"] not in answers:
                raise JudgefreeError(f"{folder / file} has no answer to prompt {row['uid']}", "get the file again")
        tables.append(pd.DataFrame({
            "id": [row["uid"] for row in rows], "category": category, "instruction": [row["prompt"] for row in rows],
            "baseline_text": [answers[row["uid"]] for row in rows],
        }))  # fmt: skip
    prompts = pd.concat(tables, ignore_index=True)
    if len(twice := prompts[prompts["id"].duplicated()]):
        raise JudgefreeError(f"prompt {twice['id'].iloc[0]} stands in {folder / names[0]} twice", "get the file again")
    return prompts, {"files": {name: sha256_file(folder / name) for name in names}}


def _rows(path: Path, fields: Sequence[str]) -> list[dict[str, Any]]:
    rows: list[RawRow] = read_jsonl(path)
    found = []
    for row in rows:
        if row.fields is None:
            raise JudgefreeError(f"{path}: row {row.place}: {row.fault}", "get the file again")
        if lacking := [name for name in fields if not row.fields.get(name)]:
            raise JudgefreeError(f"{path}: row {row.place} has no {lacking[0]}", "get the file again")
        found.append(row.fields)
    return found


def _answer(row: dict[str, Any], path: Path) -> str:
    content = row["messages"][-1].get("content")
    answer = content.get("answer") if isinstance(content, dict) else content
    if not isinstance(answer, str):
        raise JudgefreeError(f"{path}: the answer to prompt {row['uid']} is no text", "get the file again")
    return answer
