"""The sections of docs/results.md on RLIF, SRRL and SpyRL and their plots, from the folder of a reproduction: tables of the
arms, the claims, the curves."""

import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks import spyrl_results
from benchmarks.claims import Claim, Curve, facts, rlif_claims, srrl_claims
from benchmarks.figures import line, markdown, percent
from benchmarks.sections import joined, sections_of
from judgefree.config import Monitor, Run, Training
from judgefree.errors import JudgefreeError
from judgefree.evaluation.plots import png
from judgefree.files import MANIFEST, read_json, write_atomic
from judgefree.params import load_params
from judgefree.training.history import OWN_SIGNAL, VALIDATION, VALIDATION_TEXT
from judgefree.training.monitor import ROLLOUT, has_collapsed

Runs = Mapping[str, Mapping[int, Any]]  # arm -> seed -> what is known of the run
Section = Callable[[Runs], tuple[str, list[Claim]]]  # plot, table and note of a world's arms, and its claims

DETECTORS = "detector/accuracy"
INTRODUCTION = """# What the papers claim, at small scale

Written by `make reproduce` (profiles/reproduce.yaml: from-scratch policies of 0.23 to 0.35 million parameters, one
warm-up per world, {seeds} seeds of reinforcement learning, on {machine}, one thread a run). Figures are greedy pass@1
on validation rows, of SpyRL ROUGE-L. Peak, retention and collapse are those of the RLIF paper's Table 3. Intervals are
95 % t intervals over seeds, not over rows or warm-ups; a claim is *held* when its whole interval lies on the claimed
side, and one that is not held is not thereby refuted.
"""

NOTE = """Percent, mean ± standard deviation over seeds, of {items} validation rows measured every {every} steps.
*Collapsed*: by Table 3, which looks at gold answers. *Alarm*: runs in which the collapse monitor, without gold
answers, would declare a collapse by the limits of the profile, and the first step. *Own choice*: validation at
the checkpoint that a method without gold answers would hand on by its own signal. *Test*: of the weights that
the run handed on. *Completions*, *tokens*: sampled in training by one run, in thousands, reviews and second
attempts too."""


def write_page(work: Path, docs: Path) -> None:
    """Write results.md and the plots of all methods into `docs`. Raises JudgefreeError where no run is finished."""
    params = load_params(work / "params.yaml")
    runs: dict[str, dict[int, dict[str, Any]]] = {}
    for name, run in params.runs.items():
        if run.arm and (work / "models" / name / MANIFEST).is_file():
            runs.setdefault(run.arm, {})[run.seed] = read_run(work, name, run, params.training_of(name))
    if not runs:
        raise JudgefreeError(f"no finished run in {work}", "run `make reproduce`")
    _, sections = sections_of(docs / "results.md")  # what this folder has no runs of stays as it is
    written: dict[str, tuple[str, Section]] = {
        "Self-certainty and votes (RLIF)": ("arithmetic", problems(rlif_claims, docs / "results-rlif.png")),
        "Self-review (SRRL)": ("orders", problems(srrl_claims, docs / "results-srrl.png")),
        "The spy game (SpyRL)": ("memo", partial(spyrl_results.section, target=docs / "results-spyrl.png")),
    }
    for title, (dataset, section) in written.items():
        arms = {arm: seeds for arm, seeds in runs.items() if seeds[min(seeds)]["dataset"] == dataset}
        if arms:
            table, claims = section(arms)
            parts = [table, claims_table(claims)]
            if retries := retry_table(work, params, dataset):
                parts += ["### Further attempts at inference time", retries]
            sections[title] = "\n\n".join(parts)
    write_atomic(docs / "results.md", joined(introduction(runs), sections))


def problems(judge: Callable[[Any], list[Claim]], plot: Path) -> Section:
    """The section of a world whose answers are values: plot, table and note of its arms, and its claims."""

    def section(arms: Runs) -> tuple[str, list[Claim]]:
        curves = {arm: {seed: run["curve"] for seed, run in seeds.items()} for arm, seeds in arms.items()}
        draw(curves, plot)
        training = next(run["training"] for seeds in arms.values() for run in seeds.values())
        note = NOTE.format(items=training.validation_items, every=training.save_every)
        return "\n\n".join([f"![Validation pass@1 by step]({plot.name})", arms_table(arms), note]), judge(curves)

    return section


def read_run(work: Path, name: str, run: Run, training: Training) -> dict[str, Any]:
    """A finished run's curve, completions and sampled tokens, its validation where its own signal was best, when its monitor
    would declare a collapse, the share of votes that named the spy by rollout, and the test scores of what it handed on and
    of what it started from."""
    history = pd.read_parquet(work / "models" / name / "history.parquet").set_index("step")
    measure = VALIDATION if VALIDATION in history else VALIDATION_TEXT
    curve = {int(step): float(value) for step, value in history[measure].dropna().items()}
    own = history[OWN_SIGNAL].dropna() if OWN_SIGNAL in history else None
    lengths = history["completions/mean_length"].dropna()
    counted = "rollout/completions" in history
    rows = {int(step): row.dropna().to_dict() for step, row in history.iterrows()}
    tested = work / "reports" / "runs"
    return {
        "dataset": run.dataset,
        "start": run.start_from,
        "training": training,
        "alarm": first_alarm(rows, training.monitor),
        "curve": curve,
        "own_choice": curve.get(int(own.idxmax())) if own is not None and len(own) else None,
        "detectors": history[DETECTORS].dropna().tolist() if DETECTORS in history else [],
        "test": read_json(tested / name / run.dataset / "metrics.json"),
        "base": read_json(tested / run.start_from / run.dataset / "metrics.json"),
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
    rows = []
    for arm, seeds in arms.items():
        known = [facts(run["curve"]) for run in seeds.values()]
        falls = sorted(fact["collapse_step"] for fact in known if fact["collapse_step"] is not None)
        alarms = sorted(run["alarm"] for run in seeds.values() if run["alarm"] is not None)
        own = [run["own_choice"] for run in seeds.values() if run["own_choice"] is not None]
        tests = [[run["test"].get(name) for run in seeds.values()] for name in ("pass@1", "sampled/accuracy")]
        rows.append([
            arm, str(len(seeds)), percent([fact["start"] for fact in known]), percent([fact["peak"] for fact in known]),
            percent([fact["end"] for fact in known]), percent([fact["retention"] for fact in known]),
            *(f"{len(steps)} of {len(seeds)}" + (f" (from step {steps[0]})" if steps else "") for steps in (falls, alarms)),
            percent(own), *(percent([value for value in values if value is not None]) for values in tests),
            *(f"{np.mean([run[key] for run in seeds.values()]) / 1000:,.0f}" for key in ("completions", "tokens")),
        ])  # fmt: skip
    return markdown(header, rows)


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
    rows = []
    for arm, names in arms.items():
        cells = [arm]
        for suite, tokens in [(dataset, "length"), *((name, "retry/tokens") for name in retrying)]:
            metrics = [read_json(work / "reports" / "runs" / name / suite / "metrics.json") for name in names]
            cells += [percent([one["pass@1"] for one in metrics]), f"{np.mean([one[tokens] for one in metrics]):.1f}"]
        rows.append(cells)
    return markdown(header, rows) + (
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


def draw(curves: Mapping[str, Mapping[int, Curve]], target: Path) -> None:
    """One line per arm, the mean over its seeds, and a band from the worst seed to the best."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for arm, seeds in curves.items():
        line(axes, f"{arm} ({len(seeds)} seeds)", list(seeds.values()))
    axes.set(xlabel="optimizer step", ylabel="validation pass@1, greedy, %", ylim=(0, 100))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    write_atomic(target, png(figure))
