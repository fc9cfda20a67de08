"""The steps at MLflow: missing runs logged from files, and each task's best model put to the gate."""

import sys
from pathlib import Path

from prefect import task
from prefect.artifacts import create_markdown_artifact

from tasks.stage import execute


@task
def sync_runs(root: str, timeout_s: float, grace_s: float) -> None:
    """Make MLflow complete: every run that exists as files, logged under its key."""
    execute("sync", [sys.executable, "-m", "judgefree", "sync"], Path(root), timeout_s, grace_s)


@task(task_run_name="register {dataset}")
def register_task(dataset: str, root: str, timeout_s: float, grace_s: float) -> None:
    """Put the best run of a data set to the gate; the verdict with its ledger becomes an artifact."""
    ledger = Path(".work") / "registry" / f"{dataset}.md"
    command = [sys.executable, "-m", "judgefree", "register", dataset, "--ledger", str(ledger)]
    execute(f"register@{dataset}", command, Path(root), timeout_s, grace_s)
    markdown = (Path(root) / ledger).read_text(encoding="utf-8")
    create_markdown_artifact(key=f"verdict-{dataset.replace('_', '-')}", markdown=markdown)
