"""Benchmarks run: items scored by a scorer and by the rulers, each by its benchmark's rule, as tables and metrics.

Metric names are `reward_bench/<benchmark>/<score>` for the scorer and `ruler/<ruler>/<benchmark>/<score>` for the rulers;
each score stands beside its standard error, `<score>_se`.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from judgefree.config_rewards import RewardBenchmarks
from judgefree.errors import JudgefreeError
from judgefree.files import sha256_bytes
from judgefree.reward_benchmarks.estimates import Estimate, mean_of
from judgefree.reward_benchmarks.items import Counting, Item, Scorer
from judgefree.reward_benchmarks.loaders import load_set
from judgefree.reward_benchmarks.published import SETS_OF, SIX
from judgefree.reward_benchmarks.rulers import rulers
from judgefree.reward_benchmarks.rules import RULES

Metrics = dict[str, float]

MANY_UNKNOWN = 0.1  # of the tokens

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Benchmark:
    """The items of one benchmark; published: rows that its authors count, None where unknown; facts: origin by set."""

    name: str
    items: list[Item]
    excluded: dict[str, int]
    published: int | None
    facts: dict[str, Any]


def load_benchmarks(settings: RewardBenchmarks, root: Path) -> Iterator[Benchmark]:
    """The benchmarks that the settings name sets of, in a fixed order. Raises JudgefreeError naming file and row."""
    for name in RULES:
        sets = [one for one in SETS_OF.get(name, (name,)) if one in settings.sets]
        loaded = {one: load_set(one, settings.sets[one], bool(settings.partial), root) for one in sets}
        if loaded:
            published = [part.published for part in loaded.values()]
            yield Benchmark(
                name,
                [item for part in loaded.values() for item in part.items],
                dict(sum((Counter(part.excluded) for part in loaded.values()), Counter[str]())),
                None if None in published else sum(filter(None, published)),
                {one: {**part.facts, "excluded": part.excluded} for one, part in loaded.items()},
            )


def run_benchmarks(scorer: Scorer, settings: RewardBenchmarks, root: Path) -> tuple[dict[str, pd.DataFrame], Metrics]:
    """Items table of every benchmark, by name, and all metrics, averages included.

    root: where the settings' relative folders start. Raises JudgefreeError for rows that are missing or malformed and for
    a score that is no finite number.
    """
    tables, metrics = {}, {}
    for benchmark in load_benchmarks(settings, root):
        tables[benchmark.name], own = score_benchmark(benchmark, scorer, settings.seed)
        metrics.update(own)
    return tables, metrics | averages(metrics)


def score_benchmark(benchmark: Benchmark, scorer: Scorer, seed: int) -> tuple[pd.DataFrame, Metrics]:
    """A row per item (scores and right by response, the share that counts as right by the scorer and by each ruler; items of
    one group share a prompt) and the benchmark's metrics. Of a scorer that is `Counting`, `truncated` is a share of the
    conversations and `unknown` of their tokens; where much is unknown, a warning says that the scores tell nothing."""
    items, name = benchmark.items, benchmark.name
    before = _counts(scorer)
    scores = _scored(scorer, items)
    result = RULES[name](items, scores)
    metrics = _flat(f"reward_bench/{name}", result.estimates)
    found = len(items) + sum(benchmark.excluded.values())
    metrics[f"reward_bench/{name}/items"] = len(items)
    metrics[f"reward_bench/{name}/excluded"] = found - len(items)
    if benchmark.published is not None:
        metrics[f"reward_bench/{name}/coverage"] = found / benchmark.published
    if isinstance(scorer, Counting):
        cut, unknown, tokens = (now - then for now, then in zip(_counts(scorer), before, strict=True))
        metrics[f"reward_bench/{name}/truncated"] = cut / sum(len(item.responses) for item in items)
        metrics[f"reward_bench/{name}/unknown"] = unknown / tokens
        if unknown / tokens > MANY_UNKNOWN:
            log.warning("%s: the tokenizer does not know %.0f %% of the tokens; scores of what a model cannot read tell "
                        "nothing", name, 100 * unknown / tokens)  # fmt: skip
    columns: dict[str, Any] = {
        "id": [item.id for item in items],
        "subset": [item.subset for item in items],
        "group": [sha256_bytes(item.group.encode())[:16] for item in items],
        "right": [list(item.right) for item in items],
        "characters": [[len(response) for response in item.responses] for item in items],
        "scores": scores,
        "outcome": result.outcomes,
    }
    for ruler, score in rulers(seed).items():
        ruled = RULES[name](items, _scored(score, items))
        metrics |= _flat(f"ruler/{ruler}/{name}", ruled.estimates)
        columns[f"outcome_{ruler}"] = ruled.outcomes
    return pd.DataFrame(columns), metrics


def _counts(scorer: Scorer) -> tuple[int, int, int]:
    return (scorer.truncated, scorer.unknown, scorer.tokens) if isinstance(scorer, Counting) else (0, 0, 0)


def averages(metrics: Mapping[str, float]) -> Metrics:
    """The plain mean over the six benchmarks as SAVE reports it, of the scorer and of each ruler; over those of the six
    that are whole, named by them, where some are not. A whole benchmark has its own overall score over all published rows
    (as far as their number is known)."""
    whole = [
        name
        for name in SIX
        if f"reward_bench/{name}/overall" in metrics and metrics.get(f"reward_bench/{name}/coverage", 1) == 1
    ]
    if len(whole) < 2:
        return {}
    score = "average_of_six" if len(whole) == len(SIX) else "mean_of_" + "_".join(whole)
    found: Metrics = {}
    for prefix in ("reward_bench", *(f"ruler/{ruler}" for ruler in rulers(0))):
        names = [f"{prefix}/{name}/overall" for name in whole]
        mean = mean_of([Estimate(metrics[name], metrics.get(f"{name}_se")) for name in names])
        found |= _flat(prefix, {score: mean})
    return found


def _scored(scorer: Scorer, items: Sequence[Item]) -> list[list[float]]:
    """One call for all items, so that the scorer may order and batch; scores by item."""
    values = [float(v) for v in scorer([conversation for item in items for conversation in item.conversations()])]
    places = [(item, k) for item in items for k in range(len(item.responses))]
    if len(values) != len(places):
        raise JudgefreeError(f"the scorer gave {len(values)} scores for {len(places)} conversations", "mend the scorer")
    for (item, k), value in zip(places, values, strict=True):
        if not math.isfinite(value):
            raise JudgefreeError(
                f"response {k} of item {item.id} ({item.subset}) has score {value}", "check the reward model's weights"
            )
    rest = iter(values)
    return [[next(rest) for _ in item.responses] for item in items]


def _flat(prefix: str, estimates: Mapping[str, Estimate]) -> Metrics:
    flat: Metrics = {}
    for name, estimate in estimates.items():
        key = f"{prefix}/{name.lower().replace(' ', '_')}"
        flat[key] = estimate.value
        if estimate.error is not None:
            flat[f"{key}_se"] = estimate.error
    return flat
