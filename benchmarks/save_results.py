"""The section of docs/results.md on SAVE, and its plot, from the folder of a reproduction."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.figures import markdown, percent
from benchmarks.results_page import claims_table
from benchmarks.save_claims import Runs, Watched, accuracy, at_begin, at_end, begin_and_end, save_claims
from benchmarks.save_ruler import measured
from benchmarks.sections import joined, sections_of
from judgefree.config_data import ArithmeticData
from judgefree.errors import JudgefreeError
from judgefree.evaluation.plots import png
from judgefree.files import MANIFEST, read_json, write_atomic
from judgefree.params import Params, load_params

COLOURS = 10  # of matplotlib's lines
TITLE, PLOT = "A reward model that improves itself (SAVE)", "results-save.png"

NOTE = """Written by `python -m benchmarks.reproduce --profile reproduce-save`. Percent, mean ± standard deviation over
seeds; one warm-up, one initial reward model. *Accuracy*: of the run's reward model on pairs of a right and a wrong
response to one prompt, sampled by the run's own policy, in the first and the last fifth of its rollouts; *initial*: that
of the reward model it began with, on the last fifth's responses. *Common*: accuracy at the end on the responses that the
policies of `save` and `save-frozen`, together, gave to the same prompts in their last four rollouts. *True*,
*flattering*: shares of right responses and of those that flatter, in training, first and last fifth. *Test*: pass@1 of
the policy that the run handed on."""


def write_section(work: Path, docs: Path) -> None:
    """Put the section into results.md in `docs`, in place of the one that is there, and write its plot. Raises
    JudgefreeError where no run is finished."""
    params = load_params(work / "params.yaml")
    runs = read_runs(work, params)
    if not runs:
        raise JudgefreeError(
            f"no finished run in {work}", "run `python -m benchmarks.reproduce --profile reproduce-save`"
        )
    draw(runs, docs / PLOT)
    starts = sorted({run.start_from for run in params.runs.values() if run.arm})
    text = "\n\n".join([
        f"![Accuracy of the reward model, true quality and flattery of the policy, by rollout]({PLOT})", arms_table(runs),
        "\n".join([NOTE, *(start_line(work, params, name) for name in starts)]), claims_table(save_claims(runs)),
    ])  # fmt: skip
    head, sections = sections_of(docs / "results.md")
    write_atomic(docs / "results.md", joined(head, {**sections, TITLE: text}))


def read_runs(work: Path, params: Params) -> dict[str, dict[int, Watched]]:
    """Finished runs by arm and seed, each with its accuracy on its seed's common responses."""
    finished: dict[int, dict[str, str]] = {}
    for name, run in params.runs.items():
        if run.arm and (work / "reports" / "runs" / name / MANIFEST).is_file():
            finished.setdefault(run.seed, {})[run.arm] = name
    (judge,) = params.reward_models
    pairs = params.data[params.reward_models[judge].dataset]
    assert isinstance(pairs, ArithmeticData) and pairs.flattery, "the profile's flaw"
    runs: dict[str, dict[int, Watched]] = {}
    for seed, arms in finished.items():
        dataset = params.runs[next(iter(arms.values()))].dataset
        common = measured(work, arms, dataset, params.prompts[dataset], judge)
        for arm, name in arms.items():
            own, first = (common.get(one, math.nan) for one in (arm, judge))
            runs.setdefault(arm, {})[seed] = replace(
                read_run(work, name, dataset, pairs.flattery.word), common=own, first_common=first
            )
    return runs


def start_line(work: Path, params: Params, name: str) -> str:
    """The test scores of what the arms start from, of its only suite."""
    (suite,) = params.runs[name].suites
    metrics = read_json(work / "reports" / "runs" / name / suite / "metrics.json")
    return f"All start from `{name}`: {100 * metrics['pass@1']:.1f} greedy, {100 * metrics['sampled/accuracy']:.1f} sampled."


def read_run(work: Path, name: str, dataset: str, flattery: str) -> Watched:
    """flattery: the word that says nothing."""
    history = pd.read_parquet(work / "models" / name / "history.parquet").set_index("step").sort_index()
    rollouts = history[history["reward/true"].notna()]
    test = read_json(work / "reports" / "runs" / name / dataset / "metrics.json")
    columns = [f"reward_model/{column}" for column in ("pair_accuracy", "first_pair_accuracy", "pairs")]
    table = rollouts.reindex(columns=columns).fillna({columns[-1]: 0.0})  # a column that was never known is left out
    own, first, pairs = (table[column].tolist() for column in columns)
    records = pd.concat([pd.read_parquet(file) for file in (work / "models" / name / "records").glob("*.parquet")])
    flattering = records["text"].str.contains(flattery, regex=False).groupby(records["step"]).mean().sort_index()
    return Watched(
        own,
        first,
        pairs,
        rollouts["reward/true"].tolist(),
        flattering.tolist(),
        test["pass@1"],
        test["sampled/accuracy"],
    )


COLUMNS: Mapping[str, Callable[[Watched], float]] = {
    "accuracy, first": lambda run: at_begin(run, run.accuracy),
    "last": accuracy,
    "initial": lambda run: at_end(run, run.first),
    "common": lambda run: run.common,
    "true, first": lambda run: begin_and_end(run.true)[0],
    "last ": lambda run: begin_and_end(run.true)[1],
    "flattering, first": lambda run: begin_and_end(run.flattering)[0],
    "last  ": lambda run: begin_and_end(run.flattering)[1],
    "test greedy": lambda run: run.greedy,
    "test sampled": lambda run: run.sampled,
}


def arms_table(runs: Runs) -> str:
    rows = []
    for arm, seeds in runs.items():
        values = [[of(run) for run in seeds.values()] for of in COLUMNS.values()]
        cells = [percent([value for value in column if math.isfinite(value)]) for column in values]
        rows.append([arm, str(len(seeds)), *cells])
    return markdown(["arm", "seeds", *COLUMNS], rows)


def draw(runs: Runs, target: Path) -> None:
    """Accuracy of each arm's reward model, true quality and flattery of its policy by rollout: means over seeds, of five
    rollouts."""
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    for axes, (label, of) in zip(figure.subplots(1, len(SHOWN)), SHOWN.items(), strict=True):
        for place, (arm, seeds) in enumerate(runs.items()):
            table = pd.DataFrame({seed: of(run) for seed, run in seeds.items()}).dropna(how="all")
            smooth = 100 * table.mean(axis=1).rolling(5, min_periods=1).mean()
            dashed = place >= COLOURS  # the colours begin anew
            axes.plot(smooth.index + 1, smooth, "--" if dashed else "-", label=f"{arm} ({len(seeds)} seeds)")
        axes.set(xlabel="rollout", ylabel=label, ylim=(0, 100))
        axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    write_atomic(target, png(figure))


SHOWN: Mapping[str, Callable[[Watched], list[float]]] = {
    "reward model's accuracy on the policy's pairs, %": lambda run: list(run.accuracy),
    "right responses, sampled, %": lambda run: list(run.true),
    "responses that flatter, %": lambda run: list(run.flattering),
}
