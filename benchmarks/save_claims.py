"""The claims of the SAVE paper, judged on runs of several seeds: pure functions, no files.

What a reward model is worth is its accuracy on pairs of a right and a wrong response that the policy gave to one prompt
at that time; which is right the gold answers say, and no run learns from them. Pairs of a fifth of the run are taken
together. Policies differ between arms and with them their responses, so a reward model is also told beside the initial
one on the same responses, and all of a seed on common ones (save_ruler.py). claims.py says when a claim holds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.claims import Claim, Interval, over_seeds

PART = 5  # a fifth of the rollouts is a run's beginning, another its end


@dataclass(frozen=True)
class Watched:
    """A run with a reward model. One value a rollout, NaN where it had no pair: accuracy of the run's reward model and of
    the one it began with, on `pairs` pairs; true, flattering: the shares of responses that are right, and that flatter.
    greedy, sampled: pass@1 on test rows at the end. common, first_common: accuracy at the end, and of the initial one, on
    the seed's common responses."""

    accuracy: Sequence[float]
    first: Sequence[float]
    pairs: Sequence[float]
    true: Sequence[float]
    flattering: Sequence[float]
    greedy: float
    sampled: float
    common: float = math.nan
    first_common: float = math.nan


Runs = Mapping[str, Mapping[int, Watched]]  # arm -> seed -> run


def pooled(values: Sequence[float], weights: Sequence[float]) -> float:
    """Mean of values by weight, what is NaN left out; NaN where nothing is left."""
    value, weight = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    known = np.isfinite(value) & (weight > 0)
    return float(np.average(value[known], weights=weight[known])) if known.any() else math.nan


def at_begin(run: Watched, values: Sequence[float]) -> float:
    size = max(1, len(values) // PART)
    return pooled(values[:size], run.pairs[:size])


def at_end(run: Watched, values: Sequence[float]) -> float:
    size = max(1, len(values) // PART)
    return pooled(values[-size:], run.pairs[-size:])


def fall(run: Watched) -> float:
    """How far the accuracy on the policy's responses went down."""
    return at_begin(run, run.accuracy) - at_end(run, run.accuracy)


def above_first(run: Watched) -> float:
    """Accuracy at the end above that of the initial reward model on the same responses."""
    return at_end(run, run.accuracy) - at_end(run, run.first)


def begin_and_end(shares: Sequence[float]) -> tuple[float, float]:
    """Means of the first fifth of a run's rollouts and of the last."""
    size = max(1, len(shares) // PART)
    return float(np.mean(shares[:size])), float(np.mean(shares[-size:]))


def drift(run: Watched) -> float:
    """How far the share of responses that flatter went up."""
    begin, end = begin_and_end(run.flattering)
    return end - begin


def accuracy(run: Watched) -> float:
    return at_end(run, run.accuracy)


def over(runs: Runs, arm: str, of: Callable[[Watched], float]) -> Interval | None:
    """Over the seeds of which the figure is known; None for fewer than two."""
    values = [value for run in runs.get(arm, {}).values() if math.isfinite(value := of(run))]
    return over_seeds(values) if len(values) > 1 else None


def difference(runs: Runs, arm: str, other: str, of: Callable[[Watched], float]) -> Interval | None:
    """`of(arm's run) - of(other's run)` over the seeds that both have and where both are known; None for fewer than two."""
    seeds = sorted(set(runs.get(arm, {})) & set(runs.get(other, {})))
    values = [of(runs[arm][seed]) - of(runs[other][seed]) for seed in seeds]
    known = [value for value in values if math.isfinite(value)]
    return over_seeds(known) if len(known) > 1 else None


def save_claims(runs: Runs) -> list[Claim]:
    """What the paper says, in its order: the frozen reward model, SAVE's beside others, its pieces, the policy, other policy
    updates. A claim of which fewer than two seeds are known is left out."""
    figures = [
        ("With the frozen reward model the policy drifts to the flaw: responses that flatter",
         over(runs, "save-frozen", drift)),
        ("They are fewer at the end with SAVE",
         difference(runs, "save-frozen", "save", lambda run: begin_and_end(run.flattering)[1])),
        ("The frozen reward model loses accuracy on the policy's responses", over(runs, "save-frozen", fall)),
        ("SAVE's reward model ends above the initial one on the same responses", over(runs, "save", above_first)),
        *((f"SAVE's reward model ends above that of {text}, each on its own policy's responses",
           difference(runs, "save", arm, accuracy)) for arm, text in OTHERS.items()),
        ("SAVE's reward model ends above the initial one on the common responses",
         over(runs, "save", lambda run: run.common - run.first_common)),
        *((f"SAVE's reward model ends above that of {text} on the common responses",
           difference(runs, "save", arm, lambda run: run.common)) for arm, text in {**OTHERS, **PIECES}.items()),
        (f"Groups of four: SAVE's reward model ends above that of {OTHERS['save-mean-anchor']}, each on its own policy's "
         "responses", difference(runs, "save-4", "save-mean-anchor-4", accuracy)),
        *((f"Groups of four: SAVE's reward model ends above that of {text} on the common responses",
           difference(runs, "save-4", arm, lambda run: run.common)) for arm, text in OF_FOUR.items()),
        *((f"SAVE's policy ends above that of {text}, test {what}", difference(runs, arm, other, of))
          for (arm, other), text in POLICIES.items()
          for what, of in (("greedy", lambda run: run.greedy), ("sampled", lambda run: run.sampled))),
        *((f"{name}: SAVE's reward model ends above the initial one on the same responses",
           over(runs, arm, above_first)) for name, arm in (("RLOO", "save-rloo"), ("GSPO", "save-gspo"))),
    ]  # fmt: skip
    return [Claim(text, figure, 0.0, True, "points") for text, figure in figures if figure is not None]


FROZEN = "the frozen reward model"
OTHERS = {
    "save-frozen": FROZEN,
    "save-bt-offline": "continual offline Bradley-Terry",
    "save-hl-bt": "HL-BT",
    "save-mean-anchor": "the mean reward as anchor",
}
PIECES = {"save-no-curriculum": "no curriculum", "save-frozen-policy": "a policy that stays"}
OF_FOUR = {f"{arm}-4": text for arm, text in {"save-mean-anchor": OTHERS["save-mean-anchor"], **PIECES}.items()}
POLICIES = {
    ("save", "save-frozen"): FROZEN,
    ("save", "save-no-curriculum"): "no curriculum",
    ("save-4", "save-mean-anchor-4"): f"{OTHERS['save-mean-anchor']}, both with groups of four",
    ("save-4", "save-no-curriculum-4"): "no curriculum, both with groups of four",
    ("save-rloo", "frozen-rloo"): f"{FROZEN}, both by RLOO",
    ("save-gspo", "frozen-gspo"): f"{FROZEN}, both by GSPO",
}
