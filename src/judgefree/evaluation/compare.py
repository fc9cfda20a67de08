"""`judgefree compare`: all models of the parameters side by side, suite by suite, with paired bootstrap intervals.

Runs of one arm differ by seed only and are pooled. Each arm is compared with what its runs started from, with the bases
at the end of their chains, and with every other arm. Results go to `reports/compare/`: table.json holds every number,
table.md and the plots show them, metrics.json is for `dvc metrics`.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from judgefree.errors import JudgefreeError
from judgefree.evaluation import plots, tables
from judgefree.evaluation.measures import VALIDATIONS, item_scores, validation_of
from judgefree.evaluation.stage import HISTORY, ITEMS, METRICS, TRAINING
from judgefree.evaluation.statistics import ENOUGH_ITEMS, Scores, bootstrap_means, difference, interval, mean_and_error
from judgefree.files import MANIFEST, pretty_json, publish, read_json, verify, write_atomic

_DIGITS = 6  # of the numbers in files: beyond them sums depend on the order that a machine's library adds in


@dataclass(frozen=True)
class Report:
    """What a model's evaluation left: metrics and items by suite; of a run also facts and history of its training."""

    metrics: dict[str, dict[str, float]]
    items: dict[str, pd.DataFrame]
    training: dict[str, Any]
    history: pd.DataFrame | None


def compare(root: Path) -> None:
    """Compare the models that `resolved/compare.json` lists and publish `reports/compare/`.

    Raises JudgefreeError for a missing, damaged or outdated report and for items that do not match between models.
    """
    settings = read_json(root / "resolved" / "compare.json")
    models, options = ancestors_first(settings["models"]), settings["compare"]
    reports = {name: read_report(root, name, model["suites"], settings["suites"]) for name, model in models.items()}
    suites = {}
    for suite in settings["suites"]:
        members = {name: model for name, model in models.items() if suite in model["suites"]}
        if members:
            suites[suite] = compare_suite(suite, models, {name: reports[name] for name in members}, options)
            if retry := settings["suites"][suite].get("retry"):
                suites[suite]["retry"] = retry["procedure"]
    training = {name: _training(models[name], report) for name, report in reports.items() if report.training}
    table = _rounded({**options, "suites": suites, "training": training})
    curves = {name: (models[name]["arm"], report.history) for name, report in reports.items()
              if report.history is not None}  # fmt: skip

    finished = root / ".work" / "compare" / "report"
    shutil.rmtree(finished, ignore_errors=True)
    write_atomic(finished / "table.json", pretty_json(table))
    write_atomic(finished / "table.md", tables.markdown(table))
    write_atomic(finished / "metrics.json", pretty_json(_metrics(table)))
    write_atomic(finished / "plots" / "curves.png", plots.curves(curves, (*VALIDATIONS, "reward")))
    for suite, result in table["suites"].items():
        write_atomic(finished / "plots" / f"bars-{suite}.png", plots.bars(suite, result, table["confidence"]))
    publish(finished, root / "reports" / "compare")


def ancestors_first(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The models with bases first, then what starts from them, and so on; by name within a generation."""
    return {name: models[name] for name in sorted(models, key=lambda name: (len(_chain(name, models)), name))}


def _chain(name: str, models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """From a model over its starts to its base."""
    start = models[name]["start_from"]
    return [name] if start is None else [name, *_chain(start, models)]


def read_report(root: Path, name: str, suites: Sequence[str], settings: Mapping[str, Any]) -> Report:
    """The verified report of one model. Raises JudgefreeError if it lacks a suite or was made with other settings."""
    folder = root / "reports" / "runs" / name
    verify(folder)
    metrics, items = {}, {}
    for suite in suites:
        if read_json(folder / suite / MANIFEST)["suite"] != settings[suite]:
            raise JudgefreeError(f"{folder / suite} was made with other settings of suite {suite}", "run `dvc repro`")
        metrics[suite] = read_json(folder / suite / METRICS)
        items[suite] = pd.read_parquet(folder / suite / ITEMS)
    training = read_json(folder / TRAINING) if (folder / TRAINING).is_file() else {}
    history = pd.read_parquet(folder / HISTORY) if (folder / HISTORY).is_file() else None
    return Report(metrics, items, training, history)


def compare_suite(
    suite: str, models: Mapping[str, Mapping[str, Any]], reports: Mapping[str, Report], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Arms and pairs of arms of one suite.

    models: all models of the parameters (start_from leads through them); reports: those with this suite; options:
    resamples, seed and confidence. Differences are arm minus the other, positive where the arm is better; a difference
    to a start or base that has no result in this suite is None.
    """
    items = align(suite, {name: report.items[suite] for name, report in reports.items()})
    scores = _scores(items)
    arms: dict[str, list[str]] = {}
    for name in items:
        arms.setdefault(models[name]["arm"], []).append(name)
    rows = [_arm(arm, names, models, [reports[name].metrics[suite] for name in names]) for arm, names in arms.items()]
    pairs = [{"arm": b, "against": a, "differences": {}} for a, b in combinations(arms, 2)]
    for measure, by_model in scores.items():
        _add_measure(measure, by_model, arms, rows, pairs, options)
    count = len(next(iter(items.values())))
    return {"items": count, "rough": count < ENOUGH_ITEMS, "arms": rows, "pairs": pairs}


def align(suite: str, items: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The models' items in the order of the first one's, indexed by id.

    Raises JudgefreeError for an empty table, a repeated id, or ids or gold answers that differ between two models.
    """
    again = "remove the folder and run `dvc repro`"
    aligned: dict[str, pd.DataFrame] = {}
    for name, frame in items.items():
        where = f"reports/runs/{name}/{suite}/{ITEMS}"
        if frame.empty:
            raise JudgefreeError(f"{where} has no rows", again)
        repeated = frame["id"][frame["id"].duplicated()].unique()
        if len(repeated):
            raise JudgefreeError(f"{where} has ids more than once: {_some(repeated)}", again)
        frame = frame.set_index("id")
        first_name, first = next(iter(aligned.items()), (name, frame))
        if different := set(first.index) ^ set(frame.index):
            raise JudgefreeError(
                f"{first_name} and {name} were tested on different items of {suite}; only one has {_some(different)}",
                again,
            )
        frame = frame.loc[first.index]
        if (other := frame.index[frame["gold"] != first["gold"]]).size:
            raise JudgefreeError(f"{first_name} and {name} were graded against other answers of {_some(other)}", again)
        aligned[name] = frame
    return aligned


def _scores(items: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, Scores]]:
    """Measure -> model -> score per item, for the measures that all models have."""
    scores = {name: item_scores(frame) for name, frame in items.items()}
    first = next(iter(scores.values()))
    shared = [measure for measure in first if all(measure in one for one in scores.values())]
    return {measure: {name: one[measure] for name, one in scores.items()} for measure in shared}


def _arm(
    arm: str, names: list[str], models: Mapping[str, Mapping[str, Any]], metrics: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """An arm's facts, and its metrics averaged over the runs that have them."""
    keys = sorted({key for one in metrics for key in one if not key.endswith("_se") and key != "items"})
    return {
        "arm": arm,
        "models": names,
        "method": models[names[0]]["method"] or "base",
        "seeds": [models[name]["seed"] for name in names],
        "start": [models[name]["start_from"] for name in names],
        "base": [chain[-1] if len(chain := _chain(name, models)) > 1 else None for name in names],
        "metrics": {key: float(np.mean([one[key] for one in metrics if key in one])) for key in keys},
        "scores": {},
        "to_start": {},
        "to_base": {},
    }


def _add_measure(
    measure: str, by_model: Mapping[str, Scores], arms: Mapping[str, list[str]], rows: list[dict[str, Any]],
    pairs: list[dict[str, Any]], options: Mapping[str, Any],
) -> None:  # fmt: skip
    """Fill in one measure's scores and differences. A run is paired with its own start before seeds are resampled."""
    confidence = options["confidence"]
    resampled = {arm: np.stack([by_model[name] for name in names]) for arm, names in arms.items()}
    for row in rows:
        for kind in ("start", "base"):
            if all(other in by_model for other in row[kind]):
                own = [by_model[name] - by_model[other] for name, other in zip(row["models"], row[kind], strict=True)]
                resampled[f"{row['arm']} - {kind}"] = np.stack(own)
    own_seeds = {name: name.split(" - ")[0] for name in resampled}
    means = bootstrap_means(resampled, options["resamples"], options["seed"], own_seeds)
    for row in rows:
        arm = row["arm"]
        _, error = mean_and_error(resampled[arm].mean(axis=0))
        if len(row["models"]) > 1:
            error = float(np.std(means[arm], ddof=1))  # over items and seeds
        score = asdict(interval(resampled[arm], means[arm], confidence))
        row["scores"][measure] = {**score, "se": None if np.isnan(error) else error}
        for kind in ("start", "base"):
            key = f"{arm} - {kind}"
            row[f"to_{kind}"][measure] = (
                asdict(interval(resampled[key], means[key], confidence)) if key in resampled else None
            )
    for pair in pairs:
        a, b = pair["arm"], pair["against"]
        pair["differences"][measure] = asdict(difference(resampled[a], resampled[b], means[a], means[b], confidence))


def _training(model: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """A run's own account: its facts, among them peak and retention of its validation (`collapse`), and the validation
    at its start and its end, where measured."""
    facts = {**report.training, "arm": model["arm"]}
    history = report.history
    if history is not None and (metric := validation_of(history)):
        measured = history[["step", metric]].dropna()
        steps, values = measured["step"].to_numpy(), measured[metric].to_numpy()
        if metric != VALIDATIONS[0]:
            facts["validation"] = metric
        if (steps > 0).any():
            facts["validation_last"] = float(values[-1])
        if (steps == 0).any():
            facts["validation_start"] = float(values[steps == 0][0])
    return facts


def _metrics(table: Mapping[str, Any]) -> dict[str, Any]:
    """Suite -> arm -> plain numbers, for `dvc metrics`."""
    return {
        suite: {
            row["arm"]: {
                **row["metrics"],
                **{f"{measure}/vs_{kind}": row[f"to_{kind}"][measure]["value"] for kind in ("start", "base")
                   for measure in row["scores"] if row[f"to_{kind}"][measure]},
            }
            for row in result["arms"]
        }
        for suite, result in table["suites"].items()
    }  # fmt: skip


def _rounded(value: Any) -> Any:
    match value:
        case dict():
            return {key: _rounded(inner) for key, inner in value.items()}
        case list():
            return [_rounded(inner) for inner in value]
        case float():
            return round(value, _DIGITS) + 0.0  # + 0.0 turns -0.0 into 0.0
    return value


def _some(ids: Any) -> str:
    named = sorted(str(one) for one in ids)
    return ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
