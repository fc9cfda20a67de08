"""The comparison as text: Markdown for the report, rich tables for the terminal; the same cells in both.

Scores are percent with their standard error, differences are percentage points with their interval; a star marks an
interval that excludes 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from judgefree.evaluation.measures import MEASURES, VALIDATIONS
from judgefree.files import read_json

TABLE = "reports/compare/table.json"
TERMINAL_WIDTH = 100
_RETRIES = {
    "reflexion": "; Reflexion: asks the gold answers which attempts failed, so this is no pass@1 of a policy",
    "self_refine": "; Self-Refine: of the last attempt",
}


@dataclass(frozen=True)
class Grid:
    """A table of cells; the first `left` columns hold words and are aligned to the left."""

    title: str
    header: list[str]
    rows: list[list[str]]
    left: int = 1


def markdown(table: Mapping[str, Any]) -> str:
    """The whole report."""
    parts = ["# Comparison of all models", _legend(table)]
    for suite, result in table["suites"].items():
        parts += [
            f"## {suite}",
            *(_pipe(grid) for grid in (_scores(suite, result, all_columns=True), _starts(result, all_columns=True))),
        ]
        parts += [_pipe(matrix) for matrix in _matrices(result)]
    if table["training"]:
        parts += ["## Training", _pipe(_training(table))]
    return "\n\n".join(parts) + "\n"


def models_shown(root: Path) -> set[str]:
    """Names of the bases and runs that the comparison holds. Raises JudgefreeError where there is none."""
    suites = read_json(root / TABLE)["suites"].values()
    return {name for suite in suites for row in suite["arms"] for name in row["models"]}


def print_table(root: Path) -> None:
    """Print scores, differences to start and base, and validation from `reports/compare/table.json`, at most
    TERMINAL_WIDTH columns wide."""
    table = read_json(root / TABLE)
    console = Console()
    console = (
        Console(width=min(console.width, TERMINAL_WIDTH)) if console.is_terminal else Console(width=TERMINAL_WIDTH)
    )
    grids = [grid for suite, result in table["suites"].items()
             for grid in (_scores(suite, result, all_columns=False), _starts(result, all_columns=False))]  # fmt: skip
    if table["training"]:
        grids.append(_training(table))
    for grid in grids:
        if grid.rows:
            printed = Table(title=grid.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
            for index, name in enumerate(grid.header):
                words = index < grid.left
                printed.add_column(name, justify="left" if words else "right", overflow="fold", no_wrap=not words)
            for row in grid.rows:
                printed.add_row(*row)
            console.print(printed)
    console.print(_legend(table), style="dim")


def _legend(table: Mapping[str, Any]) -> str:
    return (
        f"Percent ± standard error; differences in percentage points with {table['confidence']:.0%} intervals of a "
        f"paired bootstrap ({table['resamples']} resamples of the items, and of the seeds where an arm has several); "
        "* marks an interval without 0. Length in tokens." + _texts_legend(table)
    )


def _texts_legend(table: Mapping[str, Any]) -> str:
    if not any("rouge_l" in result["arms"][0]["scores"] for result in table["suites"].values()):
        return ""
    return (
        " Of texts, F-measures times 100: rouge_l is LongBench's (package rouge), rougeL and rougeLsum are those of "
        "rouge-score with stemming; words_ratio is to the words of the references."
    )


def _shown(result: Mapping[str, Any], all_columns: bool) -> list[str]:
    """The suite's measures that a table of all columns, or of few, holds."""
    return [measure for measure in result["arms"][0]["scores"] if all_columns or MEASURES[measure].brief]


def _scores(suite: str, result: Mapping[str, Any], all_columns: bool) -> Grid:
    arms = result["arms"]
    present = {key for row in arms for key in row["metrics"]}
    measures = _shown(result, all_columns)
    pass_at = sorted(
        (key for key in present if key.startswith("sampled/pass@")), key=lambda key: int(key.split("@")[1])
    )
    shares = [key for key in ("unparsed", "empty", "truncated") if key in present]
    if any(row["metrics"].get(prefix + "ungraded", 0) > 0 for row in arms for prefix in ("", "sampled/")):
        shares.append("ungraded")
    lengths = ["length"]
    if all_columns:
        shares += [
            key
            for key in ("sampled/unparsed", "sampled/empty", "sampled/truncated", "sampled/ungraded")
            if key in present
        ]
        lengths = [key for key in ("length", "length_right", "length_wrong", "sampled/length") if key in present]
    else:
        pass_at = pass_at[-1:]
    tries = [key for key in ("retry/rounds", "retry/tokens") if key in present]
    shares = [key for key in ("first/pass@1",) if key in present] + shares
    lengths += tries
    words = [key for key in ("words", "words_ratio", "sampled/words", "sampled/words_ratio") if key in present]
    lengths += words if all_columns else words[:2]
    header = ["arm", "method", "seeds", *(MEASURES[measure].column for measure in measures)]
    header += [key if key == "sampled/pass@1" else key.removeprefix("sampled/") for key in pass_at]
    header += [key.removeprefix("retry/") for key in (*shares, *lengths)]
    rows = []
    for row in arms:
        metrics = row["metrics"]
        cells = [row["arm"], row["method"], _seeds(row["seeds"])]
        cells += [_score(row["scores"][measure]) for measure in measures]
        cells += [_percent(metrics.get(key)) for key in (*pass_at, *shares)]
        rows.append(cells + [_length(key, metrics.get(key)) for key in lengths])
    rough = "; so few items that intervals are rough" if result["rough"] else ""
    retry = _RETRIES.get(result.get("retry", ""), "")
    return Grid(f"{suite} ({result['items']} items{rough}{retry})", header, rows, left=2)


def _starts(result: Mapping[str, Any], all_columns: bool) -> Grid:
    """Differences of every arm to what its runs started from and, where that is another model, to its base."""
    rows = []
    measures = _shown(result, all_columns)
    for row in result["arms"]:
        kinds = ("start",) if row["start"] == row["base"] else ("start", "base")
        for kind in kinds:
            differences = row[f"to_{kind}"]
            if any(differences.values()):
                others = " ".join(dict.fromkeys(row[kind]))
                cells = [_difference(differences[measure]) for measure in measures]
                rows.append([row["arm"], f"{kind} {others}", *cells])
    return Grid("Differences", ["arm", "minus", *(MEASURES[measure].column for measure in measures)], rows, left=2)


def _matrices(result: Mapping[str, Any]) -> list[Grid]:
    """One matrix a measure: the row's arm minus the column's."""
    arms = [row["arm"] for row in result["arms"]]
    grids = []
    for measure in result["arms"][0]["scores"] if len(arms) > 1 else ():
        cells = {(pair["arm"], pair["against"]): _difference(pair["differences"][measure]) for pair in result["pairs"]}
        rows = [[arm, *(cells.get((arm, other), "") for other in arms[:-1])] for arm in arms[1:]]
        grids.append(Grid(f"Row minus column, {MEASURES[measure].column}", ["arm", *arms[:-1]], rows))
    return grids


def _training(table: Mapping[str, Any]) -> Grid:
    """Peak, collapse and retention as in the RLIF paper's Table 3: a collapse is the first checkpoint after the peak below
    half of it, retention the last checkpoint as a share of the peak."""
    header = ["run", "seed", "steps", "selected", "start", "peak", "last", "retention", "collapse"]
    rows = []
    for name, facts in table["training"].items():
        fall = facts.get("collapse") or {}
        peak = f"{_percent(fall['peak'])} @{fall['peak_step']}" if fall else "-"
        collapse = f"@{fall['collapse_step']}" if fall.get("collapse_step") else "-"
        selected = f"{facts.get('select', '')} @{facts['selected_step']}" if "selected_step" in facts else "-"
        title = f"{name} (collapsed)" if facts.get("status") == "collapsed" else name
        cells = [title, str(facts.get("seed", "-")), str(facts.get("steps", "-")), selected.strip()]
        start, last = (_percent(facts.get(f"validation_{when}")) for when in ("start", "last"))
        rows.append([*cells, start, peak, last, _percent(fall.get("retention")), collapse])
    measured = dict.fromkeys(facts.get("validation", VALIDATIONS[0]) for facts in table["training"].values())
    names = " or ".join(metric.removeprefix("validation/") for metric in measured)
    return Grid(f"Validation {names} in training, percent", header, rows)


def _seeds(seeds: Sequence[int | None]) -> str:
    known = [str(seed) for seed in seeds if seed is not None]
    return ",".join(known) or "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _length(key: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if key.endswith("_ratio") else f"{value:.1f}"


def _score(score: Mapping[str, float | None]) -> str:
    return f"{_percent(score['value'])} ± {_percent(score['se'])}"


def _difference(one: Mapping[str, float] | None) -> str:
    if one is None:
        return "-"
    star = " *" if one["low"] > 0 or one["high"] < 0 else ""
    return f"{100 * one['value']:+.1f} [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}]{star}"


def _pipe(grid: Grid) -> str:
    """A Markdown table; nothing where it has no rows."""
    if not grid.rows:
        return f"{grid.title}: none."
    rule = ["---" if index < grid.left else "--:" for index in range(len(grid.header))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (grid.header, rule, *grid.rows)]
    return f"**{grid.title}**\n\n" + "\n".join(lines)
