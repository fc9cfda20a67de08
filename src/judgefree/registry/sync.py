"""`judgefree sync`: MLflow runs from files, for every model that is here, so that the UI is complete after `dvc pull`
or a cache hit, and whatever a training process did or did not live to tell."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from mlflow.entities import Run

from judgefree.evaluation import plots
from judgefree.files import MANIFEST, key_of, read_json
from judgefree.registry.benchmarks import benchmarks_of, log_benchmark
from judgefree.registry.catalogue import markdown, split_finite
from judgefree.registry.facts import REWARD_MODEL, ModelFacts, pairs_of, read_model, reports_of
from judgefree.registry.runs import Rows, log_dataset, log_latest, log_rows, open_run, step_times
from judgefree.registry.store import Store, find_run, open_store
from judgefree.registry.tables import log_tables
from judgefree.registry.transcript import questions_of, records_of, transcript
from judgefree.training.history import VALIDATIONS

SYNCED = "judgefree.synced"
LAYOUT = 5  # of what a run in MLflow holds; a higher number makes every run be written again
CURVES = (*VALIDATIONS, "reward")
WITH_TRANSCRIPT = ("spyrl", "srrl")  # methods whose completions are read in each other's context


def sync(root: Path) -> dict[str, str]:
    """Make MLflow show every model of models/ as its files say; returns `logged` or `unchanged` by model name.

    Raises JudgefreeError where the store or a model's files cannot be read.
    """
    store = open_store(root)
    names = sorted(path.parent.name for path in (root / "models").glob(f"[!.]*/{MANIFEST}"))
    return {name: "logged" if sync_model(store, name) else "unchanged" for name in names}


def sync_model(store: Store, name: str) -> bool:
    """One model's run; False where MLflow has all of it already."""
    root, model = store.root, read_model(store.root, name)
    reports, pairs, benchmarks = reports_of(root, name), pairs_of(root, name), benchmarks_of(root, name)
    work = root / ".work" / "train" / model.key
    content = key_of(
        LAYOUT, read_json(root / "models" / name / MANIFEST), {suite: facts["key"] for suite, facts in reports.items()},
        *([{pair: facts["key"] for pair, facts in pairs.items()}] if pairs else []),
        *([benchmarks] if benchmarks else []),
    )  # fmt: skip
    with store.locked(f"sync-{name}"):
        run = find_run(store, model.key, name)
        if run and run.data.tags.get(SYNCED) == content:
            return False
        run = open_run(store, model)
        if (history := root / "models" / name / "history.parquet").is_file():
            _log_history(store, run, history, step_times(work))
            _log_collapse(store, run, read_json(history.parent / MANIFEST))
        if model.kind == REWARD_MODEL:
            _log_training(store, run, read_json(root / "models" / name / MANIFEST))
        for suite, facts in reports.items():
            _log_report(store, run, model, suite, facts)
        for pair, facts in pairs.items():
            _log_pair(store, run, model, pair, facts["pair"])
        for benchmark, facts in benchmarks.items():
            log_benchmark(store, run, model, benchmark, facts)
        items = {suite: root / "reports" / "runs" / name / suite / "items.parquet" for suite in reports}
        log_tables(store, run, root / "models" / name, questions_of(root, model), items)
        if model.method in WITH_TRANSCRIPT and (records := records_of(root / "models" / name)):
            store.client.log_text(run.info.run_id, transcript(root, model, records), "transcript.html")
        names = store.client.get_run(run.info.run_id).data.metrics
        store.client.log_text(run.info.run_id, markdown(names), "metrics.md")
        store.client.set_terminated(run.info.run_id, "FAILED" if model.status == "collapsed" else "FINISHED")
        store.client.set_tag(run.info.run_id, SYNCED, content)
    return True


def read_history(path: Path) -> dict[int, dict[str, float | None]]:
    """Rows by step; None where a step did not measure a metric, NaN where it measured that."""
    return {row.pop("step"): row for row in pq.read_table(path).to_pylist()}


def _log_history(store: Store, run: Run, path: Path, times: Rows) -> None:
    rows = {step: {**times.get(step, {}), **row} for step, row in read_history(path).items()}
    log_rows(store, run.info.run_id, rows)
    store.client.log_artifact(run.info.run_id, str(path))
    bad = [{"step": step, "metric": name, "value": str(value)}
           for step, row in rows.items() for name, value in split_finite(row)[1].items()]  # fmt: skip
    if bad:
        store.client.log_dict(run.info.run_id, {"left out": bad}, "nonfinite.json")
    name, frame = str(run.info.run_name), pd.read_parquet(path)
    with tempfile.TemporaryDirectory() as folder:
        (plot := Path(folder) / "curves.png").write_bytes(plots.curves({name: (name, frame)}, CURVES))
        store.client.log_artifact(run.info.run_id, str(plot), "plots")


def _log_collapse(store: Store, run: Run, manifest: Mapping[str, Any]) -> None:
    """Peak, retention and the steps of peak and collapse, as columns to compare runs by."""
    facts = manifest.get("collapse") or {}
    log_latest(store, run, {f"collapse/{name}": value for name, value in facts.items()}, manifest["steps"])


def _log_training(store: Store, run: Run, manifest: Mapping[str, Any]) -> None:
    """What was measured while a reward model was made."""
    facts = {name: value for name, value in manifest.items() if isinstance(value, int | float)}
    log_latest(store, run, {f"reward_training/{name}": value for name, value in facts.items()}, 0)


def _log_report(store: Store, run: Run, model: ModelFacts, suite: str, facts: Mapping[str, Any]) -> None:
    folder = store.root / "reports" / "runs" / model.name / suite
    metrics = read_json(folder / "metrics.json")
    log_latest(store, run, {f"eval/{suite}/{name}": value for name, value in metrics.items()}, model.selected_step)
    for file in ("metrics.json", "items.parquet", MANIFEST):
        store.client.log_artifact(run.info.run_id, str(folder / file), f"evaluation/{suite}")
    dataset = facts["suite"]["dataset"]
    log_dataset(store, run, dataset, f"data/{dataset}/test.parquet", facts["test_sha256"], "evaluation")


def _log_pair(store: Store, run: Run, model: ModelFacts, name: str, pair: Mapping[str, Any]) -> None:
    """Under the name of what it was compared with and by whom: models that met the same opponent share a metric, and no two
    judges do."""
    folder = store.root / "reports" / "pairwise" / name
    prefix = f"pairwise/{pair['suite']}/{pair['against']}-by-{pair['judge']}"
    metrics = read_json(folder / "metrics.json")
    log_latest(store, run, {f"{prefix}/{metric}": value for metric, value in metrics.items()}, model.selected_step)
    for file in ("metrics.json", "items.parquet", MANIFEST):
        store.client.log_artifact(run.info.run_id, str(folder / file), f"pairwise/{name}")
