"""The steps at MLflow: missing runs logged from files, and each task's best model put to the gate."""

import sys
from pathlib import Path

from prefect import task
from prefect.artifacts import create_markdown_artifact

from judgefree.config_rewards import reward_model_name
from judgefree.registry.kinds import Kind
from tasks.stage import execute


@task
def sync_runs(root: str, timeout_s: float, grace_s: float) -> None:
    """Make MLflow complete: every run that exists as files, logged under its key."""
    execute("sync", [sys.executable, "-m", "judgefree", "sync"], Path(root), timeout_s, grace_s)


@task(task_run_name="register {dataset} {kind}")
def register_task(dataset: str, kind: Kind, root: str, timeout_s: float, grace_s: float) -> None:
    """Put the best run, or the best reward model, of a data set to the gate; the verdict with its ledger becomes an
    artifact."""
    name = dataset if kind == "policies" else reward_model_name(dataset)
    ledger = Path(".work") / "registry" / f"{name}.md"
    command = [sys.executable, "-m", "judgefree", "register", dataset, "--only", kind, "--ledger", str(ledger)]
    execute(f"register@{name}", command, Path(root), timeout_s, grace_s)
    markdown = (Path(root) / ledger).read_text(encoding="utf-8")
    create_markdown_artifact(key=f"verdict-{name.replace('_', '-')}", markdown=markdown)
