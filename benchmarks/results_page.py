"""The sections of docs/results.md on RLIF and SRRL and their plots, from the folder of a reproduction: tables of the arms,
the claims, the curves."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.claims import Claim, Curve, facts, rlif_claims, srrl_claims
from benchmarks.sections import joined, sections_of
from judgefree.config import Monitor, Training
from judgefree.errors import JudgefreeError
from judgefree.evaluation.plots import png
from judgefree.files import MANIFEST, read_json, write_atomic
from judgefree.params import load_params
from judgefree.training.history import OWN_SIGNAL, VALIDATION
from judgefree.training.monitor import ROLLOUT, has_collapsed

Runs = Mapping[str, Mapping[int, Any]]  # arm -> seed -> what is known of the run

INTRODUCTION = """# What the papers claim, at small scale

Written by `make reproduce` (profiles/reproduce.yaml: from-scratch policies of about 0.23 million parameters, one warm-up
per world, {seeds} seeds of reinforcement learning, on {machine}, one thread a run). Figures are greedy pass@1 on
validation rows. Peak, retention and collapse are those of the RLIF paper's Table 3. Intervals are 95 % t intervals over
seeds, not over validation rows or warm-ups; a claim is *held* when its whole interval lies on the claimed side, and one
that is not held is not thereby refuted.
"""

NOTE = """Percent, mean ± standard deviation over seeds, of {items} validation rows measured every {every} steps.
*Collapsed*: by Table 3, which looks at gold answers. *Alarm*: runs in which the collapse monitor, without gold
answers, would declare a collapse by the limits of the profile, and the first step. *Own choice*: validation at
the checkpoint that a method without gold answers would hand on by its own signal. *Test*: of the weights that
the run handed on. *Completions*, *tokens*: sampled in training by one run, in thousands, reviews and second
attempts too."""


def write_page(work: Path, docs: Path) -> None:
    """Write results.md and the plots of both methods into `docs`. Raises JudgefreeError where no run is finished."""
    params = load_params(work / "params.yaml")
    runs: dict[str, dict[int, dict[str, Any]]] = {}
    for name, run in params.runs.items():
        if run.arm and (work / "models" / name / MANIFEST).is_file():
            runs.setdefault(run.arm, {})[run.seed] = read_run(work, name, run.dataset, params.training_of(name))
    if not runs:
        raise JudgefreeError(f"no finished run in {work}", "run `make reproduce`")
    curves = {arm: {seed: run["curve"] for seed, run in seeds.items()} for arm, seeds in runs.items()}
    _, sections = sections_of(docs / "results.md")  # those of other profiles stay as they are
    worlds = {"Self-certainty and votes (RLIF)": ("arithmetic", rlif_claims, "results-rlif.png"),
              "Self-review (SRRL)": ("orders", srrl_claims, "results-srrl.png")}  # fmt: skip
    for title, (dataset, judge, plot) in worlds.items():
        arms = {arm: seeds for arm, seeds in runs.items() if seeds[min(seeds)]["dataset"] == dataset}
        if not arms:
            continue
        draw({arm: curves[arm] for arm in arms}, docs / plot)
        training = next(run["training"] for seeds in arms.values() for run in seeds.values())
        note = NOTE.format(items=training.validation_items, every=training.save_every)
        plotted = f"![Validation pass@1 by step]({plot})"
        parts = [plotted, arms_table(arms), note, claims_table(judge(curves))]
        if retries := retry_table(work, params, dataset):
            parts += ["### Further attempts at inference time", retries]
        sections[title] = "\n\n".join(parts)
    write_atomic(docs / "results.md", joined(introduction(runs), sections))


def read_run(work: Path, name: str, dataset: str, training: Training) -> dict[str, Any]:
    """A finished run's curve, completions and sampled tokens, its validation where its own signal was best, when its monitor
    would declare a collapse, and the test scores of what it handed on."""
    history = pd.read_parquet(work / "models" / name / "history.parquet").set_index("step")
    curve = {int(step): float(value) for step, value in history[VALIDATION].dropna().items()}
    own = history[OWN_SIGNAL].dropna() if OWN_SIGNAL in history else None
    lengths = history["completions/mean_length"].dropna()
    counted = "rollout/completions" in history
    rows = {int(step): row.dropna().to_dict() for step, row in history.iterrows()}
    return {
        "dataset": dataset,
        "training": training,
        "alarm": first_alarm(rows, training.monitor),
        "curve": curve,
        "own_choice": curve.get(int(own.idxmax())) if own is not None and len(own) else None,
        "test": read_json(work / "reports" / "runs" / name / dataset / "metrics.json"),
        "completions": float(history["rollout/completions"].sum() if counted else training.rollout_size * len(lengths)),
        "tokens": float(history["rollout/tokens"].sum() if counted else training.rollout_size * lengths.sum()),
    }


def first_alarm(rows: Mapping[int, Mapping[str, float]], limits: Monitor | None) -> int | None:
    """The first step at which the collapse monitor declares a collapse without looking at labels."""
    seen: dict[int, Mapping[str, float]] = {}
    for step, row in sorted(rows.items()):
        seen[step] = row
        if limits and ROLLOUT in row and has_collapsed(seen, limits, labels=False):
            return step
    return None


def introduction(runs: Runs) -> str:
    counts = sorted({len(seeds) for seeds in runs.values()})
    return INTRODUCTION.format(seeds=" or ".join(map(str, counts)), machine=platform.machine()).strip()


def arms_table(arms: Runs) -> str:
    header = [
        "arm",
        "seeds",
        "start",
        "peak",
        "end",
        "retention",
        "collapsed",
        "alarm",
        "own choice",
        "test greedy",
        "test sampled",
        "completions",
        "tokens",
    ]
    lines = [" | ".join(header), " | ".join(["---"] + ["--:"] * (len(header) - 1))]
    for arm, seeds in arms.items():
        known = [facts(run["curve"]) for run in seeds.values()]
        falls = sorted(fact["collapse_step"] for fact in known if fact["collapse_step"] is not None)
        alarms = sorted(run["alarm"] for run in seeds.values() if run["alarm"] is not None)
        own = [run["own_choice"] for run in seeds.values() if run["own_choice"] is not None]
        tests = [[run["test"].get(name) for run in seeds.values()] for name in ("pass@1", "sampled/accuracy")]
        cells = [
            arm, str(len(seeds)), percent([fact["start"] for fact in known]), percent([fact["peak"] for fact in known]),
            percent([fact["end"] for fact in known]), percent([fact["retention"] for fact in known]),
            *(f"{len(steps)} of {len(seeds)}" + (f" (from step {steps[0]})" if steps else "") for steps in (falls, alarms)),
            percent(own), *(percent([value for value in values if value is not None]) for values in tests),
            *(f"{np.mean([run[key] for run in seeds.values()]) / 1000:,.0f}" for key in ("completions", "tokens")),
        ]  # fmt: skip
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def retry_table(work: Path, params: Any, dataset: str) -> str:
    """Greedy pass@1 and sampled tokens an item of the models that have suites with further attempts, beside one attempt."""
    retrying = {name: suite.retry for name, suite in params.suites.items() if suite.dataset == dataset and suite.retry}
    arms: dict[str, list[str]] = {}
    for name, run in params.runs.items():
        if set(retrying) <= set(run.suites) and (work / "reports" / "runs" / name / MANIFEST).is_file():
            arms.setdefault(run.arm or name, []).append(name)
    if not retrying or not arms:
        return ""
    header = ["arm", "one attempt", "tokens"] + [
        cell for one in retrying.values() for cell in (one.procedure, "tokens")
    ]
    lines = [" | ".join(header), " | ".join(["---"] + ["--:"] * (len(header) - 1))]
    for arm, names in arms.items():
        cells = [arm]
        for suite, tokens in [(dataset, "length"), *((name, "retry/tokens") for name in retrying)]:
            metrics = [read_json(work / "reports" / "runs" / name / suite / "metrics.json") for name in names]
            cells += [percent([one["pass@1"] for one in metrics]), f"{np.mean([one[tokens] for one in metrics]):.1f}"]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines) + (
        "\n\nTest items, percent, greedy; tokens sampled per item; one round. Reflexion asks the gold answers which of\n"
        "them failed, so that is no pass@1 of a policy. What a method has trained into the policy costs nothing: the first\n"
        "column."
    )


def claims_table(claims: Sequence[Claim]) -> str:
    lines = ["| claim | measured | 95 % interval | |", "| --- | --: | --: | --- |"]
    for claim in claims:
        scale, sign = (100, "+.1f") if claim.unit == "points" else (1, ".2f")
        figure = claim.figure
        interval = f"{scale * figure.low:{sign}} to {scale * figure.high:{sign}}"
        verdict = "held" if claim.holds else "**not held**"
        lines.append(f"| {claim.text} | {scale * figure.mean:{sign}} {claim.unit} | {interval} | {verdict} |")
    return "\n".join(lines)


def percent(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = 100 * float(np.mean(values))
    return f"{mean:.1f}" if len(values) < 2 else f"{mean:.1f} ± {100 * float(np.std(values, ddof=1)):.1f}"


def draw(curves: Mapping[str, Mapping[int, Curve]], target: Path) -> None:
    """One line per arm, the mean over its seeds, and a band from the worst seed to the best."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for arm, seeds in curves.items():
        steps = sorted(set.intersection(*(set(curve) for curve in seeds.values())))
        values = 100 * np.array([[curve[step] for step in steps] for curve in seeds.values()])
        line = axes.plot(steps, values.mean(axis=0), label=f"{arm} ({len(seeds)} seeds)")[0]
        axes.fill_between(
            steps, values.min(axis=0), values.max(axis=0), color=line.get_color(), alpha=0.12, linewidth=0
        )
    axes.set(xlabel="optimizer step", ylabel="validation pass@1, greedy, %", ylim=(0, 100))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    axes.grid(alpha=0.3)
    write_atomic(target, png(figure))
