"""Collapse, as it shows in what a run measured: pure functions over a history's rows and a rollout's completions.

Signatures of collapse differ (papers: certainty alone loses entropy and length, a vote alone drifts with rising entropy
and length), so several measures are watched, each against where the run started or against a fixed limit. None but
validation needs a label. The limits are the section `training.monitor` of the parameters.

The paper's figures of collapse (RLIF, Table 3) are taken over the checkpoints' greedy validation (pass@1, or ROUGE-L where
answers are texts): peak, the first checkpoint that reaches it, the first later one below half of it, and what is left at
the end as a share of the peak.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from judgefree.config import Monitor
from judgefree.training.history import validation_of

Rows = Mapping[int, Mapping[str, float]]

ROLLOUT = "completions/mean_length"  # a step whose row has it began with a rollout
COLLAPSE_SHARE = 0.5  # of the peak: the paper's bound
ROUNDING = 1e-6  # two float32 passes over one text, padded in different ways, differ by about a tenth of this
REPEATED, DISTINCT = 4, 2  # tokens of the n-grams whose repetition and variety are measured


@dataclass(frozen=True)
class Rule:
    """An alarm: `metric` lies on this `side` of the limit, which is a multiple of its first values or a fixed number."""

    name: str
    metric: str
    side: Literal["below", "above"]
    relative: bool


RULES = (
    Rule("entropy_low", "entropy", "below", True),
    Rule("length_low", ROLLOUT, "below", True),
    Rule("length_high", ROLLOUT, "above", True),
    Rule("distinct_low", "completions/distinct_2", "below", True),
    Rule("answers_low", "answers/entropy", "below", True),
    Rule("cluster_entropy_high", "cluster/entropy", "above", False),
    Rule("repetition_high", "completions/repetition", "above", False),
    Rule("clipped_high", "completions/clipped_ratio", "above", False),
    Rule("unparsed_high", "completions/unparsed_ratio", "above", False),
    Rule("unreadable_votes_high", "votes/unreadable", "above", False),
    Rule("kl_high", "kl", "above", False),
    Rule("grad_norm_high", "grad_norm", "above", True),
)


def alarms(rows: Rows, limits: Monitor) -> list[str]:
    """The alarms that stand now, in the order of RULES, `validation_low` last.

    A measure is averaged over the last `window` rollouts; a relative limit is a multiple of its mean over the first
    `window` ones, and says nothing before there are twice as many. `validation_low`: the newest value is below that
    share of the best one before it.
    """
    standing = []
    for rule in RULES:
        measured = [row.get(rule.metric, math.nan) for _, row in sorted(rows.items()) if ROLLOUT in row]
        values = [value for value in measured if math.isfinite(value)]
        limit = getattr(limits, rule.name)
        if limit is None or len(values) < limits.window * (1 + rule.relative):
            continue
        now = float(np.mean(values[-limits.window :]))
        if rule.relative:
            limit *= float(np.mean(values[: limits.window]))
        if now < limit if rule.side == "below" else now > limit:
            standing.append(rule.name)
    metric = validation_of(rows)
    scores = [row[metric] for step, row in sorted(rows.items()) if step > 0 and metric in row]
    if len(scores) > 1 and scores[-1] < limits.validation_low * max(scores):
        standing.append("validation_low")
    return standing


def has_collapsed(rows: Rows, limits: Monitor, labels: bool) -> bool:
    """Whether enough alarms stand at once that did not stand in the first `window` rollouts (a collapse is a fall: a base
    that never gives an answer has not collapsed); or, for a run that may look at labels, `validation_low` alone."""
    rollouts = [step for step, row in sorted(rows.items()) if ROLLOUT in row]
    began = {step: rows[step] for step in rollouts[: limits.window]}
    fallen = set(alarms(rows, limits)) - set(alarms(began, limits))
    return len(fallen - {"validation_low"}) >= limits.alarms_of_collapse or (labels and "validation_low" in fallen)


def alarm_counts(rows: Rows) -> dict[str, int]:
    """In how many rollouts each alarm stood, as the history logged them; those that never did are left out."""
    names = [*(rule.name for rule in RULES), "validation_low"]
    counts = {name: sum(f"monitor/{name}" in row for row in rows.values()) for name in names}
    return {name: count for name, count in counts.items() if count}


def collapse_facts(rows: Rows) -> dict[str, Any] | None:
    """Peak, peak_step, collapse_step and retention of the validation over the checkpoints, None where it was never
    measured. Step 0 is no checkpoint. Retention is None where the peak is 0."""
    metric = validation_of(rows)
    scores = [(step, row[metric]) for step, row in sorted(rows.items()) if step > 0 and metric in row]
    if not scores:
        return None
    peak = max(value for _, value in scores)
    peak_step = next(step for step, value in scores if value == peak)
    below = [step for step, value in scores if step > peak_step and value < COLLAPSE_SHARE * peak]
    return {
        "peak": peak,
        "peak_step": peak_step,
        "collapse_step": below[0] if below else None,
        "retention": scores[-1][1] / peak if peak else None,
    }


def covariance_is_idle(rows: Rows, updates: int) -> bool:
    """Whether KL-Cov or Clip-Cov selected tokens and the policy never moved on them: mean |log rho| was 0 up
    to rounding at every update that followed, in its rollout, an update with a gradient and a learning rate. False before
    there was one. (In bf16 rounding is larger than many a step, and such a run is not recognised.)

    updates: optimizer steps per rollout; rollouts begin at multiples of it.
    """
    seen = False
    for step, row in rows.items():
        first = (step - 1) // updates * updates + 1
        before = [rows.get(earlier, {}) for earlier in range(first, step)]
        moved = any(one.get("grad_norm", 0) > 0 and one.get("learning_rate", 0) > 0 for one in before)
        if moved and "cov/abs_log_ratio" in row:
            seen = True
            if row["cov/abs_log_ratio"] > ROUNDING:
                return False
    return seen


def variety(completions: Sequence[Sequence[int]]) -> dict[str, float]:
    """Of a rollout's completions, as token ids: distinct pairs over all pairs, and the mean over completions of the share
    of four-token sequences that are repeats inside their completion; 0 where a text is shorter."""
    pairs = [_grams(ids, DISTINCT) for ids in completions]
    total = sum(map(len, pairs))
    distinct = len(np.unique(np.concatenate(pairs), axis=0)) if total else 0
    repeats = []
    for ids in completions:
        grams = _grams(ids, REPEATED)
        repeats.append(1.0 - len(np.unique(grams, axis=0)) / len(grams) if len(grams) else 0.0)
    return {
        "completions/distinct_2": distinct / total if total else 0.0,
        "completions/repetition": float(np.mean(repeats)) if repeats else 0.0,
    }


def _grams(ids: Sequence[int], n: int) -> NDArray[np.int64]:
    """All runs of n tokens, (len - n + 1, n)."""
    values = np.asarray(ids, dtype=np.int64)
    if len(values) < n:
        return np.empty((0, n), dtype=np.int64)
    return np.lib.stride_tricks.sliding_window_view(values, n)
