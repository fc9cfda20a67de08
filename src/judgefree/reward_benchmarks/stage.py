"""`judgefree reward-bench MODEL`: a reward model judged by all benchmarks of params.yaml, as files.

Each benchmark's result lies sealed in `.work/reward-bench/<key>/`, where the key names all it is made from: after a kill
only what is missing is scored, and the model is loaded only if something is. What is published is
`reports/reward-bench/<model>/` in one rename.
"""

import shutil
from pathlib import Path
from typing import Any

from judgefree.config_rewards import RewardBenchmarks
from judgefree.errors import JudgefreeError
from judgefree.files import (
    MANIFEST,
    code_hash,
    key_of,
    listing,
    pretty_json,
    publish,
    read_json,
    seal,
    verify,
    write_atomic,
)
from judgefree.params import load_params

METRICS, TABLE, ITEMS = "metrics.json", "table.md", "items.parquet"

_SOURCE = Path(__file__).parents[1]
_CODE = ("reward_benchmarks", "reward_model/scoring.py", "data/sources.py", "episodes.py", "files.py", "prompting.py")


def settings_of(root: Path) -> tuple[RewardBenchmarks, int]:
    """The section `reward_benchmarks` and the number of threads. Raises JudgefreeError when the section is absent."""
    params = load_params(root / "params.yaml")
    if params.reward_benchmarks is None:
        raise JudgefreeError(
            f"{root / 'params.yaml'} has no section reward_benchmarks", "add it as docs/reward-benchmarks.md shows"
        )
    return params.reward_benchmarks, params.threads


def reward_bench(model: str, settings: RewardBenchmarks, threads: int, root: Path) -> Path:
    """Judge `models/<model>`, or the folder that `model` is a path of, and publish and return its report: metrics.json,
    table.md, <benchmark>.parquet, manifest.json.

    Raises JudgefreeError for a missing, damaged or unfit model, for rows that are missing or malformed, and for a score
    that is no finite number.
    """
    folder = root / "models" / model
    if not folder.is_dir():
        folder = root / model
    if not folder.is_dir():
        raise JudgefreeError(f"{model} is neither a model in models/ nor a folder", "correct the name")
    name = folder.resolve().name
    files = verify(folder)["files"] if (folder / MANIFEST).is_file() else listing(folder)
    facts = {
        "model_sha256": key_of(files),
        "settings": settings.model_dump(mode="json", exclude_none=True, exclude={"sets"}),
        "threads": threads,
        "code_sha256": code_hash(_SOURCE / part for part in _CODE),
    }
    sealed, sources = _score_all(folder, settings, threads, facts, root)
    return _publish(name, {**facts, "sources": sources}, sealed, root)


def _score_all(
    folder: Path, settings: RewardBenchmarks, threads: int, facts: dict[str, Any], root: Path
) -> tuple[dict[str, Path], dict[str, Any]]:
    """Sealed result folder and origin of every benchmark; scores those that are not there yet."""
    from rich.console import Console

    from judgefree.reward_benchmarks.run import load_benchmarks, score_benchmark

    console, scorer = Console(stderr=True), None
    sealed, sources = {}, {}
    for benchmark in load_benchmarks(settings, root):
        own = {**facts, "benchmark": benchmark.name, "sources": benchmark.facts}
        place = root / ".work" / "reward-bench" / key_of(own)
        sealed[benchmark.name], sources[benchmark.name] = place, benchmark.facts
        if (place / MANIFEST).is_file():
            continue
        scorer = scorer or _scorer(folder, settings, threads)
        console.print(f"{folder.name} on {benchmark.name} ({len(benchmark.items):,} items) ...")
        items, metrics = score_benchmark(benchmark, scorer, settings.seed)
        partial = place.with_name(f"{place.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        write_atomic(partial / ITEMS, items.to_parquet(index=False))
        write_atomic(partial / METRICS, pretty_json(metrics))
        seal(partial, own)
        publish(partial, place)
    return sealed, sources


def _scorer(folder: Path, settings: RewardBenchmarks, threads: int) -> Any:
    import torch

    from judgefree.reward_model.scoring import RewardModelScorer, load_reward_model

    torch.set_num_threads(threads)
    model = load_reward_model(folder, settings.device, settings.precision)
    return RewardModelScorer(*model, settings.max_tokens, settings.tokens_per_batch)


def _publish(name: str, facts: dict[str, Any], sealed: dict[str, Path], root: Path) -> Path:
    from judgefree.reward_benchmarks.run import averages
    from judgefree.reward_benchmarks.table import markdown

    finished = root / ".work" / "reward-bench" / f"report-{name}"
    shutil.rmtree(finished, ignore_errors=True)
    metrics: dict[str, float] = {}
    for benchmark, folder in sealed.items():
        verify(folder)
        metrics.update(read_json(folder / METRICS))
        write_atomic(finished / f"{benchmark}.parquet", (folder / ITEMS).read_bytes())
    metrics |= averages(metrics)
    write_atomic(finished / METRICS, pretty_json(metrics))
    write_atomic(finished / TABLE, markdown(name, metrics))
    seal(finished, {"model": name, **facts})
    target = root / "reports" / "reward-bench" / name
    publish(finished, target)
    return target
