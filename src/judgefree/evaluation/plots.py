"""Plots as PNG bytes. The same numbers give the same bytes: nothing about the program or the time is written in."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from judgefree.evaluation.measures import MATHS, MEASURES

_COLORS = [colormaps["tab10"](index) for index in range(10)]
_LINES = ("-", "--", ":", "-.")


def bars(suite: str, result: Mapping[str, Any], confidence: float) -> bytes:
    """Scores of every arm with confidence intervals, one bar a measure. `result` is the suite's part of table.json."""
    arms = result["arms"]
    measures = list(arms[0]["scores"])
    height = 0.8 / len(measures)
    figure = Figure(figsize=(8, 1.4 + 0.5 * len(arms)), layout="constrained")
    axes = figure.subplots()
    for index, measure in enumerate(measures):
        scores = [row["scores"][measure] for row in arms]
        values = [score["value"] for score in scores]
        # A percentile interval of very few items need not hold the mean; a bar cannot have a negative length.
        below = [max(0.0, score["value"] - score["low"]) for score in scores]
        above = [max(0.0, score["high"] - score["value"]) for score in scores]
        places = [row + (index - (len(measures) - 1) / 2) * height for row in range(len(arms))]
        axes.barh(places, values, 0.9 * height, xerr=(below, above), capsize=3, color=_COLORS[index],
                  alpha=0.8, label=MEASURES[measure].legend)  # fmt: skip
        for place, score in zip(places, scores, strict=True):
            axes.annotate(f"{score['value']:.3f}", (score["high"], place), xytext=(6, 0), textcoords="offset points",
                          va="center", fontsize=8)  # fmt: skip
    axes.set_yticks(range(len(arms)), [row["arm"] for row in arms])
    axes.invert_yaxis()
    axes.set_xlim(0, min(1.15, 0.05 + 1.15 * max(s["high"] for row in arms for s in row["scores"].values())))
    axes.set_xlabel("share of items that are right" if measures[0] in MATHS else "mean F-measure")
    axes.set_title(f"{suite}: {result['items']} items, {confidence:.0%} intervals")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    axes.grid(axis="x", alpha=0.3)
    return png(figure)


def curves(histories: Mapping[str, tuple[str, pd.DataFrame]], columns: Sequence[str]) -> bytes:
    """Learning curves, a panel for each column that some history has; a colour an arm, a line style a run in it.

    histories: run -> (arm, history with the column "step").
    """
    shown = [column for column in columns if any(column in history for _, history in histories.values())]
    figure = Figure(figsize=(9, 1 + 3 * max(1, len(shown))), layout="constrained")
    if not shown:
        figure.text(0.5, 0.5, "no run has a training history", ha="center", va="center")
        return png(figure)
    runs_of: dict[str, list[str]] = {}
    for name, (arm, _) in histories.items():
        runs_of.setdefault(arm, []).append(name)
    arms = list(runs_of)
    for axes, column in zip(figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0], shown, strict=True):
        for name, (arm, history) in histories.items():
            if column in history:
                points = history[["step", column]].dropna()
                axes.plot(
                    points["step"],
                    points[column],
                    color=_COLORS[arms.index(arm) % len(_COLORS)],
                    linestyle=_LINES[runs_of[arm].index(name) % len(_LINES)],
                    marker="o" if len(points) < 30 else None,
                    markersize=3,
                    linewidth=1.4,
                    label=name,
                )
        axes.set_ylabel(column)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    axes.set_xlabel("optimizer step")
    figure.suptitle("Learning curves")
    return png(figure)


def png(figure: Figure) -> bytes:
    """The bytes of a figure, the same on every day."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
