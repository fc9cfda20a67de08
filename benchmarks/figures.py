"""What the parts of docs/results.md have in common: cells, tables, a line with its band."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def percent(values: Sequence[float]) -> str:
    """Mean ± standard deviation of shares, in percent; a dash for none."""
    if not values:
        return "-"
    mean = 100 * float(np.mean(values))
    return f"{mean:.1f}" if len(values) < 2 else f"{mean:.1f} ± {100 * float(np.std(values, ddof=1)):.1f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are figures."""
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def line(axes: Any, label: str, curves: Sequence[Mapping[int, float]]) -> None:
    """The mean of curves of shares in percent over the steps that all have, and a band from the worst to the best."""
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = 100 * np.array([[curve[step] for step in steps] for curve in curves])
    drawn = axes.plot(steps, values.mean(axis=0), label=label)[0]
    axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=drawn.get_color(), alpha=0.12, linewidth=0)
    axes.grid(alpha=0.3)
