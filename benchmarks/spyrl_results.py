"""The part of docs/results.md about the spy game: a table of its arms, curves of quality and of votes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.claims import ROLLOUTS, VOTES_ON_WORSE, Claim, Curve, Played, rises, spyrl_claims, windows
from benchmarks.figures import line, markdown, percent
from judgefree.evaluation.plots import png
from judgefree.files import write_atomic

NOTE = """ROUGE-L (LongBench's) and shares of votes in percent, mean ± standard deviation over seeds. *Validation*: greedy,
of {items} rows, every {every} steps; everything after it is of test rows and of the last weights. *Detectors*: the
share of votes that name the spy (by chance one in as many as play); at the start, at the peak and at the end of
training (means of ten rollouts, the peak's place found in the other seeds), and when the last weights play against
themselves with five players. *Votes on worse*: Spearman's correlation within these games of the votes received with
ROUGE-L. *Completions*, *tokens*: sampled in training by one run, in thousands, votes too."""

HEADER = (
    "arm", "seeds", "validation start", "end", "test greedy", "words", "test sampled", "detectors start", "peak", "last",
    "test", "votes on worse", "completions", "tokens",
)  # fmt: skip
Arms = Mapping[str, Mapping[int, Mapping[str, Any]]]  # arm -> seed -> what results_page.py has read of the run


def section(arms: Arms, target: Path) -> tuple[str, list[Claim]]:
    """Plot (drawn into `target`), table and note of the arms, and what is claimed of them."""
    draw(arms, target)
    some = next(run for seeds in arms.values() for run in seeds.values())
    note = NOTE.format(items=some["training"].validation_items, every=some["training"].save_every)
    plotted = f"![Validation ROUGE-L by step, and votes that name the spy by rollout]({target.name})"
    runs = {
        arm: {seed: Played(run["test"], run["base"], run["detectors"]) for seed, run in seeds.items()}
        for arm, seeds in arms.items()
    }
    return "\n\n".join([plotted, arms_table(arms, some["start"], some["base"]), note]), spyrl_claims(runs)


def arms_table(arms: Arms, base: str, base_test: Mapping[str, float]) -> str:
    """A row for the model that all arms start from, then one per arm."""
    start = {"arm": f"{base} (their start)", "seeds": "1", **_tested([base_test])}
    rows = [start, *(_row(arm, list(seeds.values())) for arm, seeds in arms.items())]
    return markdown(HEADER, [[row.get(column, "") for column in HEADER] for row in rows])


def _row(arm: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    detectors = [run["detectors"] for run in runs]
    starts = [windows(one)[0] for one in detectors]
    risen = rises(detectors) if len(runs) > 1 else []
    return {
        "arm": arm,
        "seeds": str(len(runs)),
        "validation start": percent([run["curve"][0] for run in runs]),
        "end": percent([run["curve"][max(run["curve"])] for run in runs]),
        **_tested([run["test"] for run in runs]),
        "detectors start": percent(starts),
        "peak": percent([start + rise for start, rise in zip(starts, risen, strict=False)]),
        "last": percent([windows(one)[-1] for one in detectors]),
        **{key: f"{np.mean([run[key] for run in runs]) / 1000:,.0f}" for key in ("completions", "tokens")},
    }


def _tested(tests: Sequence[Mapping[str, float]]) -> dict[str, str]:
    rho = [test[VOTES_ON_WORSE] for test in tests if VOTES_ON_WORSE in test]  # absent where nobody votes
    spread = f" ± {np.std(rho, ddof=1):.2f}" if len(rho) > 1 else ""
    return {
        "test greedy": percent([test["rouge_l"] for test in tests]),
        "words": f"{np.mean([test['words'] for test in tests]):.1f}",
        "test sampled": percent([test["sampled/rouge_l"] for test in tests]),
        "test": percent([test["game/detector_accuracy"] for test in tests]),
        "votes on worse": f"{np.mean(rho):.2f}{spread}" if rho else "-",
    }


def draw(arms: Arms, target: Path) -> None:
    """Left what is written, right how often the spy is found; a line per arm and a band from the worst seed to the best."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    written, found = figure.subplots(1, 2)
    for arm, seeds in arms.items():
        line(written, f"{arm} ({len(seeds)} seeds)", [run["curve"] for run in seeds.values()])
        line(found, arm, [_by_rollout(run["detectors"]) for run in seeds.values()])
    written.set(xlabel="optimizer step", ylabel="validation ROUGE-L, greedy, %")
    found.set(xlabel="rollout", ylabel="votes that name the spy, %")
    figure.legend(*written.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    write_atomic(target, png(figure))


def _by_rollout(accuracy: Sequence[float]) -> Curve:
    means = windows(accuracy)
    return {ROLLOUTS * place: mean for place, mean in enumerate(means, 1)}
