"""What a person looks at after a run: tables and Markdown among the artifacts of the flow run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from judgefree.files import read_json


@task
def report_stages(key: str, rows: Sequence[dict[str, Any]]) -> None:
    """Which stages were made, taken from DVC's cache or left unchanged, and how long each took."""
    create_table_artifact(key=key, table=list(rows), description="What this run made, and what it left unchanged")


@task
def report_comparison(root: str) -> None:
    """The comparison of all models: scores as a table, the whole report as Markdown."""
    folder = Path(root) / "reports" / "compare"
    table = read_json(folder / "table.json")
    rows = [
        {"suite": suite, "arm": row["arm"], "method": row["method"], "seeds": len(row["seeds"]), **row["metrics"]}
        for suite, result in table["suites"].items()
        for row in result["arms"]
    ]
    create_table_artifact(key="scores", table=rows, description="Metrics of all models; shares between 0 and 1")
    create_markdown_artifact(key="comparison", markdown=(folder / "table.md").read_text(encoding="utf-8"))
