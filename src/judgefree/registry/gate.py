"""The gate: is a candidate better than what stands, by enough and without cost elsewhere? Pure; files are elsewhere.

Both models answered the same test items. PROMOTE needs the lower bound of the paired difference above the margin and
every guard within its limit. REJECT says that the candidate is shown worse, or that a guard broke. Everything else is
HOLD: a tie, too few items, a difference that chance may have made; where more items would help it names how many. So is
what the grader gave up on too often to be a score.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from judgefree.config import Compare, Gates
from judgefree.config_rewards import RewardGates
from judgefree.errors import JudgefreeError
from judgefree.evaluation.compare import align
from judgefree.evaluation.maths import UNGRADED_LIMIT
from judgefree.evaluation.measures import are_texts, item_scores
from judgefree.evaluation.statistics import Interval, bootstrap_means, difference

Decision = Literal["PROMOTE", "HOLD", "REJECT"]


@dataclass(frozen=True)
class Report:
    """A model's answers to a suite: a row per test item, and the metrics over them, both as `run_suite` makes them."""

    items: pd.DataFrame
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Guard:
    """A measure that must not get worse by more than its limit; `change` is a rise or a ratio. strict: the limit itself is
    too much."""

    name: str
    candidate: float
    reference: float
    change: float
    limit: float
    strict: bool = False

    @property
    def held(self) -> bool:
        return self.change < self.limit if self.strict else self.change <= self.limit

    @property
    def fault(self) -> str:
        if self.strict:
            return f"{self.candidate:.3g} is not above {self.reference:.3g} of {self.name}"
        return f"{self.name} went from {self.reference:.3g} to {self.candidate:.3g}, beyond its limit"


@dataclass(frozen=True)
class Judgement:
    """What the items say. better, worse: items on which the candidate scored higher, lower; items_needed: how many
    the reason asks for, None where more would not help or these are enough; confidence, resamples: of the interval `gain`;
    ungraded: the shares of the
    measured completions on which the grader gave up, the candidate's and the other's; None of texts, which need none."""

    decision: Decision
    reason: str
    measure: str
    items: int
    scores: tuple[float, float]
    gain: Interval
    confidence: float
    resamples: int
    better: int
    worse: int
    items_needed: int | None
    guards: list[Guard]
    ungraded: tuple[float, float] | None


@dataclass(frozen=True)
class Verdict:
    """The decision on a candidate. version: of the registered model; champion: the version that stands once it is
    decided, None where there is none; against: what it was compared with; passed_over: run -> why it was no candidate;
    judgement: None where there was nothing to compare."""

    task: str
    decision: Decision
    reason: str
    candidate: str
    version: int
    champion: int | None
    against: str
    passed_over: Mapping[str, str] = field(default_factory=dict)
    judgement: Judgement | None = None

    def ledger(self) -> dict[str, Any]:
        return asdict(self)

    def markdown(self) -> str:
        """The ledger for people."""
        lines = [f"## {self.task}: {self.decision}", "", f"{self.candidate} (version {self.version}) against "
                 f"{self.against}: {self.reason}.", ""]  # fmt: skip
        if self.judgement:
            lines += [*_table(self.judgement), ""]
        lines += [f"- {run} was no candidate: {why}" for run, why in self.passed_over.items()]
        return "\n".join(lines).rstrip() + "\n"


def judge(suite: str, candidate: Report, reference: Report, gates: Gates, compare: Compare) -> Judgement:
    """Compare two models' reports of one suite; guards look at the completions that the measure is of.

    Raises JudgefreeError for items that are not the same, and for a suite without the samples that the measure needs.
    """
    aligned = align(suite, {"the candidate": candidate.items, "the model that stands": reference.items})
    new, old = aligned.values()
    texts = are_texts(candidate.items)
    measure = gates.measure_of(texts)
    scores = _scores(new, measure, suite), _scores(old, measure, suite)
    prefix = "sampled/" if measure.startswith("sampled/") else ""
    guards = _guards(candidate.metrics, reference.metrics, prefix, "empty" if texts else "unparsed", gates)
    judgement = compared(measure, *scores, guards, gates, compare)
    if texts:
        return judgement
    ungraded = candidate.metrics[f"{prefix}ungraded"], reference.metrics[f"{prefix}ungraded"]
    if max(ungraded) <= UNGRADED_LIMIT:
        return replace(judgement, ungraded=ungraded)
    shares = f"{ungraded[0]:.2%} of the candidate's completions and {ungraded[1]:.2%} of the other's"
    reason = f"the grader gave up on {shares}, more than {UNGRADED_LIMIT:.0%}; raise grading.timeout_s"
    # more items of that kind would show nothing
    return replace(judgement, decision="HOLD", reason=reason, items_needed=None, ungraded=ungraded)


def compared(
    measure: str, new: NDArray[np.float64], old: NDArray[np.float64], guards: list[Guard], gates: Gates | RewardGates,
    compare: Compare,
) -> Judgement:  # fmt: skip
    """Decide by scores of the same items, `new` of the candidate and `old` of what stands, each of shape (items,)."""
    means = bootstrap_means({"new": new[None], "old": old[None]}, compare.resamples, compare.seed)
    gain = difference(new[None], old[None], means["new"], means["old"], compare.confidence)
    paired = new - old
    needed = items_needed(paired, gates.margin, compare.confidence)
    decision, reason, asked = _decide(len(paired), gain, needed, guards, gates)
    return Judgement(
        decision, reason, measure, len(paired), (float(new.mean()), float(old.mean())), gain,
        compare.confidence, compare.resamples, int((paired > 0).sum()), int((paired < 0).sum()), asked, guards, None,
    )  # fmt: skip


def items_needed(differences: NDArray[np.float64], margin: float, confidence: float) -> int | None:
    """Items at which the observed mean difference d, with the observed spread s, lies above the margin by the
    interval's half width z s / sqrt(n): n > (z s / (d - margin))^2. None where d is not above the margin, or for a
    single item."""
    if len(differences) < 2 or (above := float(differences.mean()) - margin) <= 0:
        return None
    z = float(norm.ppf((1 + confidence) / 2))
    return math.floor((z * float(differences.std(ddof=1)) / above) ** 2) + 1


def _decide(
    items: int, gain: Interval, needed: int | None, guards: list[Guard], gates: Gates | RewardGates
) -> tuple[Decision, str, int | None]:
    """The decision, its reason, and the number of items that the reason asks for, if it asks for any."""
    measured = f"{100 * gain.value:+.2f} points [{100 * gain.low:+.2f}, {100 * gain.high:+.2f}]"
    if items < gates.min_items:
        enough = max(gates.min_items, needed or 0)
        return "HOLD", f"{measured} on only {items} items; {enough} are needed", enough
    if broken := [guard for guard in guards if not guard.held]:
        return "REJECT", "; ".join(guard.fault for guard in broken), None
    if gain.high < 0:
        return "REJECT", f"{measured}: worse", None
    if gain.low > gates.margin:
        return "PROMOTE", f"{measured}, above the margin of {100 * gates.margin:g}", None
    if needed:
        more = max(needed, items + 1)
        return "HOLD", f"{measured} may be chance; {more} items are needed to show that difference", more
    return "HOLD", f"{measured}: not better by more than the margin of {100 * gates.margin:g}", None


def _scores(items: pd.DataFrame, measure: str, suite: str) -> NDArray[np.float64]:
    scores = item_scores(items)
    if measure not in scores:
        sampled, plain = measure.startswith("sampled/"), next(iter(scores))
        raise JudgefreeError(
            f"gates.measure is {measure} and suite {suite} {'draws no samples' if sampled else 'does not measure it'}",
            f"set gates.measure: {plain}" + (f", or suites.{suite}.samples" if sampled else ""),
        )
    return scores[measure]


def _guards(new: Mapping[str, float], old: Mapping[str, float], prefix: str, mute: str, gates: Gates) -> list[Guard]:
    """mute: the share of the completions without an answer, as this kind of suite calls it."""
    unread, truncated, length = (f"{prefix}{name}" for name in (mute, "truncated", "length"))
    return [
        Guard(unread, new[unread], old[unread], new[unread] - old[unread], gates.max_unparsed_rise),
        Guard(truncated, new[truncated], old[truncated], new[truncated] - old[truncated], gates.max_truncated_rise),
        Guard(length, new[length], old[length], new[length] / old[length], gates.max_length_ratio),
    ]


def _table(judged: Judgement) -> list[str]:
    new, old = judged.scores
    low, high = judged.gain.low, judged.gain.high
    rows = [
        f"| {judged.measure} | {new:.4f} | {old:.4f} | {judged.gain.value:+.4f} [{low:+.4f}, {high:+.4f}] | lower bound |",
        *(f"| {g.name} | {g.candidate:.4g} | {g.reference:.4g} | {g.change:.4g} | "
          f"{'below' if g.strict else 'at most'} {g.limit:g}: {'held' if g.held else 'broken'} |" for g in judged.guards),
    ]  # fmt: skip
    if judged.ungraded:
        shares = " | ".join(f"{share:.4g}" for share in judged.ungraded)
        rows.append(f"| ungraded | {shares} | | each at most {UNGRADED_LIMIT:g} |")
    return [
        "| measure | candidate | reference | change | limit |", "| --- | --: | --: | --: | --- |", *rows, "",
        f"{judged.items} items: {judged.better} better, {judged.worse} worse. The interval is of {judged.confidence:.6g} "
        f"confidence, from {judged.resamples:,} resamples."
        + (f" {judged.items_needed} would be needed." if judged.items_needed else ""),
    ]  # fmt: skip
