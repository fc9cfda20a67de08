"""Texts to read in the UI: completions of training and answers to test items, as tables of MLflow.

A table is the JSON that MLflow's `log_table` writes, made here because that one appends when it is called again.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from mlflow.entities import Run

from judgefree.files import read_json
from judgefree.registry.store import Store

PROMPTS_PER_STEP = 2  # whole groups of completions that a table shows; all of them are in models/<run>/records
ITEMS_SHOWN = 200
TEXT_CHARS = 4000
TABLES_SHOWN = 80  # their names share one tag, of which MLflow takes 8000 characters


def log_tables(store: Store, run: Run, model: Path, questions: Mapping[str, str], items: Mapping[str, Path]) -> None:
    """A table per records file (`completions/`), one per list in the method's state (`state/`: SRRL's memory) and one per
    suite's items file (`evaluation/<suite>/items.json`), in place of those that an earlier call wrote.

    model: its folder, in which a base has neither records nor state; questions: by prompt id, as far as known.
    """
    tables = {f"evaluation/{suite}/items.json": pq.read_table(path).slice(0, ITEMS_SHOWN).to_pylist()
              for suite, path in items.items()}  # fmt: skip
    if (state := model / "method_state.json").is_file():
        kept = read_json(state)["method"].items()
        tables |= {f"state/{name}.json": rows for name, rows in kept if isinstance(rows, list) and rows}
    for path in sorted((model / "records").glob("*.parquet")):
        rows = first_prompts(pq.read_table(path).to_pylist())
        tables[f"completions/{path.stem}.json"] = [
            {"question": questions[row["prompt_id"]], **row} if row["prompt_id"] in questions else row for row in rows
        ]
    for name, rows in tables.items():
        store.client.log_dict(run.info.run_id, as_table(rows), name)
    shown = [{"path": name, "type": "table"} for name in list(tables)[:TABLES_SHOWN]]
    store.client.set_tag(run.info.run_id, "mlflow.loggedArtifacts", json.dumps(shown))


def first_prompts(rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Of every step the rows of the first PROMPTS_PER_STEP prompts."""
    shown: dict[int, set[str]] = {}
    for row in rows:
        prompts = shown.setdefault(row["step"], set())
        if row["prompt_id"] in prompts or len(prompts) < PROMPTS_PER_STEP:
            prompts.add(row["prompt_id"])
            yield row


def as_table(rows: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns in order of first appearance; numbers that JSON has not become text, long texts lose their middle."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": columns, "data": [[_cell(row.get(name)) for name in columns] for row in rows]}


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str) and len(value) > TEXT_CHARS:
        half = TEXT_CHARS // 2
        return f"{value[:half]} [... {len(value) - 2 * half} characters ...] {value[-half:]}"
    return value
