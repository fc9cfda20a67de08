"""One MLflow run per model: opened once, fed with what is missing, so that nothing is logged twice."""

import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run

from judgefree.registry.catalogue import NONFINITE, mlflow_name, split_finite
from judgefree.registry.facts import ModelFacts
from judgefree.registry.store import Store, find_or_create_run, find_run

BATCH = 1000  # MLflow's limit for one call
Rows = Mapping[int, Mapping[str, float | None]]


def open_run(store: Store, model: ModelFacts, live: bool = False) -> Run:
    """The model's run with its tags, parameters and data sets; whoever comes later adds what an earlier one, killed
    half-way, did not log. live: the caller trains the model at this moment, so the code that it is made by is here."""
    kind = {"judgefree.kind": model.kind}
    run = find_or_create_run(store, model.key, model.name, {**kind, **(_source(store.root) if live else {})})
    client, run_id = store.client, run.info.run_id
    client.set_tag(run_id, "mlflow.note.content", model.title)
    client.set_tag(run_id, "judgefree.status", model.status)
    params = {mlflow_name(name): value for name, value in model.short_params().items()}
    missing = [Param(name, value) for name, value in params.items() if name not in run.data.params]
    with store.locked():
        for start in range(0, len(missing), 100):  # MLflow's limit for one call
            client.log_batch(run_id, params=missing[start : start + 100])
    if model.settings:
        client.log_dict(run_id, dict(model.settings), "parameters.json")
    for file, sha256 in model.data_sha256.items():
        context = "validation" if file == "validation.parquet" else "training"
        log_dataset(store, run, f"{model.dataset}", f"data/{model.dataset}/{file}", sha256, context)
    return run


def find_model_run(store: Store, model: ModelFacts) -> Run:
    """The run of a synced model."""
    run = find_run(store, model.key, model.name)
    assert run, f"{model.name} is not synced"
    return run


def log_dataset(store: Store, run: Run, dataset: str, uri: str, sha256: str, context: str) -> None:
    """Name what lies at `uri` as an input of the run, by the beginning of its sha256 (MLflow takes 36 characters)."""
    digest = sha256[:36]
    known = run.inputs.dataset_inputs if run.inputs else []
    if any((one.dataset.name, one.dataset.digest) == (dataset, digest) for one in known):
        return
    entry = Dataset(dataset, digest, "local", json.dumps({"uri": uri}))
    with store.locked():
        store.client.log_inputs(run.info.run_id, [DatasetInput(entry, [InputTag("mlflow.data.context", context)])])


def log_rows(store: Store, run_id: str, rows: Rows, logged: dict[str, set[int]] | None = None) -> dict[str, set[int]]:
    """Log the values of `rows` (step -> metric -> value) that are not there yet, step by step.

    logged: MLflow name -> steps, as an earlier call of this process returned it; asked from the store without it.
    Values that are not finite are left out and counted in `nonfinite_values`. Returns what is logged now.
    """
    finite, bad = {}, 0
    for step in sorted(rows):
        finite[step], other = split_finite(rows[step])
        bad += len(other)
        if other:
            finite[step][NONFINITE] = float(bad)
    if logged is None:
        names = {name for row in finite.values() for name in row}
        logged = {name: {m.step for m in store.client.get_metric_history(run_id, name)} for name in names}
    now = time.time_ns() // 1_000_000
    new = [Metric(name, value, now, step) for step, row in finite.items() for name, value in row.items()
           if step not in logged.setdefault(name, set())]  # fmt: skip
    log_metrics(store, run_id, new)
    for metric in new:
        logged[metric.key].add(metric.step)
    return logged


def log_metrics(store: Store, run_id: str, metrics: list[Metric]) -> None:
    for start in range(0, len(metrics), BATCH):
        with store.locked():
            store.client.log_batch(run_id, metrics=metrics[start : start + BATCH])


def log_latest(store: Store, run: Run, values: Mapping[str, float | None], step: int) -> None:
    """Log values that replace what an earlier evaluation found; equal ones are not logged again."""
    now = time.time_ns() // 1_000_000
    finite, _ = split_finite(values)
    changed = {name: value for name, value in finite.items() if run.data.metrics.get(name) != value}
    log_metrics(store, run.info.run_id, [Metric(name, value, now, step) for name, value in changed.items()])


def step_times(work: Path) -> dict[int, dict[str, float | None]]:
    """Seconds per step from a run's timings.jsonl; a step right after a resume, whose clock starts anew, has none."""
    path = work / "timings.jsonl"
    if not path.is_file():
        return {}
    times: dict[int, dict[str, float | None]] = {}
    before = {"step": 0, "seconds": 0.0}
    for line in _json_lines(path):
        if line["step"] == before["step"] + 1 and line["seconds"] > before["seconds"]:
            times[line["step"]] = {"step_time": round(line["seconds"] - before["seconds"], 3)}
        before = line
    return times


def _json_lines(path: Path) -> Iterable[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.endswith("}"):  # a kill may have cut the last one
            yield json.loads(line)


def _source(root: Path) -> dict[str, str]:
    """The git commit of the code that trains, `-dirty` where files differ from it; nothing outside of git."""
    commit = _git(root, "rev-parse", "HEAD")
    if not commit:
        return {}
    dirty = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"mlflow.source.name": "judgefree", "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": commit + ("-dirty" if dirty else "")}  # fmt: skip


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
