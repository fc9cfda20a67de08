"""The claims of the RLIF, SRRL and SpyRL papers, judged on runs of several seeds: pure functions, no files.

A claim holds when the whole 95 % interval over seeds lies on the claimed side; it is told with its interval either way,
and one that is not held is not thereby refuted. Seeds are paired between arms: seed 3 of two arms whose rollouts have
as many prompts saw the same ones in the same order. Values are shares of validation rows answered right (greedy), of
SpyRL ROUGE-L of test rows, unless a claim says otherwise. Intervals are over seeds, not over validation rows or warm-ups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from judgefree.training.history import VALIDATION
from judgefree.training.monitor import collapse_facts

CONFIDENCE = 0.95
VOTES_ON_WORSE, FOUND = "game/vote_rank_correlation", "game/detector_accuracy"
ROLLOUTS = 10  # over which the detectors' accuracy is averaged before its peak is looked for

Curve = Mapping[int, float]  # validation pass@1 by step, step 0 the start


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its t interval; the bounds are the mean itself where all seeds agree."""

    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Played:
    """A finished run of the spy game. test, base: the suite's metrics of the weights that it handed on, and of those that it
    started from; detectors: the share of votes that named the spy, by rollout."""

    test: Mapping[str, float]
    base: Mapping[str, float]
    detectors: Sequence[float]


@dataclass(frozen=True)
class Claim:
    """A sentence, the figure that decides it, the side of `bound` on which it must lie, and the unit it is shown in."""

    text: str
    figure: Interval
    bound: float
    above: bool
    unit: str

    @property
    def holds(self) -> bool:
        return self.figure.low > self.bound if self.above else self.figure.high < self.bound


def over_seeds(values: Sequence[float]) -> Interval:
    """Mean and t interval of one value per seed; raises ValueError for fewer than two seeds."""
    if len(values) < 2:
        raise ValueError("an interval over seeds needs two of them")
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
    return Interval(mean, mean - reach, mean + reach, len(values))


def facts(curve: Curve) -> dict[str, Any]:
    """Peak, peak_step, collapse_step and retention of a run (RLIF paper, Table 3), its start and its end."""
    fall = collapse_facts({step: {VALIDATION: value} for step, value in curve.items()})
    assert fall is not None, "a finished run has a checkpoint"
    return {**fall, "start": curve.get(0), "end": curve[max(curve)]}


def paired(runs: Mapping[str, Mapping[int, Any]], arm: str, other: str, of: Any) -> Interval:
    """Mean over the seeds that both arms have of `of(arm's run) - of(other's run)`."""
    seeds = sorted(set(runs[arm]) & set(runs[other]))
    return over_seeds([of(runs[arm][seed]) - of(runs[other][seed]) for seed in seeds])


def peak(curve: Curve) -> float:
    return facts(curve)["peak"]


def end(curve: Curve) -> float:
    return facts(curve)["end"]


def retention(curve: Curve) -> float:
    return facts(curve)["retention"]


def lifetime(curve: Curve) -> float:
    """The step of collapse as a share of the run; 1 for a run that did not collapse."""
    step = facts(curve)["collapse_step"]
    return 1.0 if step is None else step / max(curve)


def steps_to(curve: Curve, level: float) -> float:
    """The first checkpoint at or above `level`, as a share of the run; 1 + one checkpoint where it never is."""
    steps = sorted(step for step in curve if step > 0)
    reached = [step for step in steps if curve[step] >= level]
    return (reached[0] if reached else steps[-1] + steps[0]) / steps[-1]


def told(runs: Mapping[str, Mapping[int, Any]], *arms: str) -> bool:
    """Whether the runs can say something about these arms: two seeds or more that all have."""
    return len(set.intersection(*(set(runs.get(arm, {})) for arm in arms))) > 1


def above(runs: Mapping[str, Mapping[int, Any]], arm: str, others: Mapping[str, str], of: Any) -> list[Claim]:
    """That `arm` is above each of `others` (the sentence by arm), of those that can be told."""
    return [
        Claim(text, paired(runs, arm, other, of), 0.0, True, "points")
        for other, text in others.items()
        if told(runs, arm, other)
    ]


def rlif_claims(runs: Mapping[str, Mapping[int, Curve]]) -> list[Claim]:
    """(a) to (c): what the RLIF paper says of collapse, of the distance to gold answers, and of normalising first."""

    def kept(arm: str) -> Interval:
        return over_seeds([retention(curve) for curve in runs[arm].values()])

    claims: list[tuple[tuple[str, ...], Callable[[], Claim]]] = [
        (("intuitor",), lambda: Claim(
            "Self-certainty alone collapses: it ends below half of its peak", kept("intuitor"), 0.5, False, "share")),
        (("cluster",), lambda: Claim(
            "The cluster vote alone drifts: it ends below 95 % of its peak", kept("cluster"), 0.95, False, "share")),
        (("multi", "intuitor"), lambda: Claim(
            "Both rewards outlast self-certainty: share of the run before the collapse, difference",
            paired(runs, "multi", "intuitor", lifetime), 0.0, True, "share")),
        (("multi-kl-cov",), lambda: Claim(
            "Both rewards with KL-Cov keep at least 80 % of their peak to the end",
            kept("multi-kl-cov"), 0.8, True, "share")),
        (("multi-kl-cov", "multi"), lambda: Claim(
            "KL-Cov is what keeps them: retention with minus without it",
            paired(runs, "multi-kl-cov", "multi", retention), 0.0, True, "share")),
        (("grpo", "multi-kl-cov"), lambda: Claim(
            "They come within 5 points of supervised GRPO at the peak",
            paired(runs, "grpo", "multi-kl-cov", peak), 0.05, False, "points")),
        (("grpo", "multi-kl-cov"), lambda: Claim(
            "They come within 10 points of supervised GRPO at the end",
            paired(runs, "grpo", "multi-kl-cov", end), 0.10, False, "points")),
        (("multi-kl-cov", "combine"), lambda: Claim(
            "Normalising before combining beats the reverse at the end",
            paired(runs, "multi-kl-cov", "combine", end), 0.0, True, "points")),
    ]  # fmt: skip
    return [claim() for arms, claim in claims if told(runs, *arms)]


def srrl_claims(runs: Mapping[str, Mapping[int, Curve]]) -> list[Claim]:
    """(d): SRRL against RLVR with at least as many completions a step, against rejection sampling, and against itself with a
    piece taken away."""
    claims = []
    if told(runs, "srrl", "rlvr-orders"):
        seeds = sorted(set(runs["srrl"]) & set(runs["rlvr-orders"]))
        ends = {seed: end(runs["rlvr-orders"][seed]) for seed in seeds}
        sooner = over_seeds([steps_to(runs["rlvr-orders"][seed], ends[seed]) - steps_to(runs["srrl"][seed], ends[seed])
                             for seed in seeds])  # fmt: skip
        claims += [
            Claim("SRRL ends above RLVR", paired(runs, "srrl", "rlvr-orders", end), 0.0, True, "points"),
            Claim("SRRL reaches RLVR's end in fewer steps: share of the run saved", sooner, 0.0, True, "share"),
        ]
    others = {
        "rft-orders": "SRRL ends above rejection sampling (imitation of right completions)",
        "srrl-no-memory": "Without the memory SRRL ends lower",
        "srrl-no-distillation": "Without the distillation SRRL ends lower",
        "srrl-no-gate": "Without the gate SRRL ends lower",
    }
    return claims + above(runs, "srrl", others, end)


def windows(accuracy: Sequence[float]) -> list[float]:
    """Means over every ROLLOUTS rollouts, one after the other; what is left at the end is left out. Raises ValueError for
    fewer rollouts than that."""
    if len(accuracy) < ROLLOUTS:
        raise ValueError(f"{len(accuracy)} rollouts are fewer than {ROLLOUTS}")
    whole = len(accuracy) - len(accuracy) % ROLLOUTS
    return [float(mean) for mean in np.reshape(accuracy[:whole], (-1, ROLLOUTS)).mean(axis=1)]


def rises(detectors: Sequence[Sequence[float]]) -> list[float]:
    """By run: accuracy at the peak minus that of the first ROLLOUTS rollouts, of runs of equal length.

    The peak of a run is looked for in the others (where their mean is highest) and read in this one: the largest of several
    noisy means would lie above the first one even if nothing ever rose.
    """
    means = np.array([windows(accuracy) for accuracy in detectors])
    peaks = [int(np.delete(means, run, axis=0).mean(axis=0).argmax()) for run in range(len(means))]
    return [float(means[run, peak] - means[run, 0]) for run, peak in enumerate(peaks)]


def spyrl_claims(runs: Mapping[str, Mapping[int, Played]]) -> list[Claim]:
    """SpyRL against its base, its detectors and votes, and against itself with a piece taken away."""
    claims = []
    spyrl = list(runs.get("spyrl", {}).values())
    if len(spyrl) > 1:
        greedy, sampled = (
            over_seeds([run.test[key] - run.base[key] for run in spyrl]) for key in ("rouge_l", "sampled/rouge_l")
        )
        claims += [
            Claim("SpyRL writes better than its base, greedily", greedy, 0.0, True, "points"),
            Claim("SpyRL writes better than its base, sampled at T = 1", sampled, 0.0, True, "points"),
        ]
    for arm, schedule in {
        "spyrl": "thresholds of this world",
        "spyrl-paper-schedule": "the paper's thresholds",
        "spyrl-detection": "writers stay as they are",
    }.items():
        if told(runs, arm):
            found = over_seeds(rises([run.detectors for run in runs[arm].values()]))
            text = f"Detectors name the spy more often at their peak than at the start ({schedule})"
            claims.append(Claim(text, found, 0.0, True, "points"))
            last = over_seeds([run.test[FOUND] - run.base[FOUND] for run in runs[arm].values()])
            text = f"The last weights' detectors name the spy more often than the base's, in games on test rows ({schedule})"
            claims.append(Claim(text, last, 0.0, True, "points"))
    aligned = [run.test[VOTES_ON_WORSE] for run in spyrl if VOTES_ON_WORSE in run.test]  # absent where nobody votes
    if len(aligned) > 1:
        claims.append(Claim("Votes fall on the worse outputs: rank correlation within a game", over_seeds(aligned),
                            0.0, False, "rho"))  # fmt: skip
    others = {
        "spyrl-paper-schedule": "With the paper's thresholds SpyRL ends lower",
        "spyrl-no-baseline": "Without role baselines SpyRL ends lower",
        "spyrl-joint": "With both sides learning at once SpyRL ends lower",
        "spyrl-performing": "With rewards for writing alone SpyRL ends lower",
        "spyrl-detection": "With rewards for votes alone SpyRL ends lower",
        "spyrl-no-spy": "With nothing hidden from anybody SpyRL ends lower",
        "spyrl-3-players": "With three players instead of five SpyRL ends lower",
    }
    return claims + above(runs, "spyrl", others, lambda run: run.test["rouge_l"])
