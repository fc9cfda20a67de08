"""`judgefree reward-bench MODEL`: a reward model judged by all benchmarks of params.yaml, as files.

Each benchmark's result lies sealed in `.work/reward-bench/<key>/`, where the key names all it is made from: after a kill
only what is missing is scored, and the model is loaded only if something is. What is published is
`reports/reward-bench/<model>/` in one rename.
"""

import shutil
from collections.abc import Mapping
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
from judgefree.places import INSIDE, reward_model_in

METRICS, TABLE, ITEMS = "metrics.json", "table.md", "items.parquet"

_SOURCE = Path(__file__).parents[1]
_CODE = ("reward_benchmarks", "reward_model/pairs.py", "reward_model/scoring.py", "data/sources.py", "devices.py",
         "episodes.py", "files.py", "prompting.py")  # fmt: skip


def settings_of(model: str, root: Path) -> tuple[RewardBenchmarks, int]:
    """How a model is judged, and the number of threads: as resolved for a model of the stage, as params.yaml says for any
    other. Raises JudgefreeError when there is no section `reward_benchmarks`."""
    resolved = {path.stem: path for path in (root / "resolved" / "reward_bench").glob("*.json")}
    if model in resolved:
        content = read_json(resolved[model])
        return RewardBenchmarks.model_validate(content["reward_benchmarks"]), content["threads"]
    params = load_params(root / "params.yaml")
    if params.reward_benchmarks is None:
        raise JudgefreeError(
            f"{root / 'params.yaml'} has no section reward_benchmarks", "add it as docs/reward-benchmarks.md shows"
        )
    return params.reward_benchmarks, params.threads


def reward_bench(model: str, settings: RewardBenchmarks, threads: int, root: Path) -> Path:
    """Judge `models/<model>`, the reward model inside of it where it is a run that has one, or the folder that `model` is a
    path of, and publish and return its report, reports/reward-bench/<name of the folder>.

    Raises JudgefreeError for a missing, damaged or unfit model, for rows that are missing or malformed, and for a score
    that is no finite number.
    """
    place = root / "models" / model
    if not place.is_dir():
        place = root / model
    if not place.is_dir():
        raise _absent(model, root)
    name = place.resolve().name
    files = verify(place)["files"] if (place / MANIFEST).is_file() else listing(place)
    _require_head(reward_model_in(place))
    finished = judge(name, reward_model_in(place), judged_sha256(files), settings, threads, root)
    target = root / "reports" / "reward-bench" / name
    publish(finished, target)
    return target


def _absent(model: str, root: Path) -> JudgefreeError:
    params = load_params(root / "params.yaml")
    for stage, names in (("reward_model", params.reward_models), ("train_save", params.save_runs)):
        if model in names:
            return JudgefreeError(f"models/{model} is not made yet", f"run `dvc repro {stage}@{model}`")
    return JudgefreeError(f"{model} is neither a model in models/ nor a folder", "correct the name")


def _require_head(folder: Path) -> None:
    """Before any set is fetched; what else makes a folder unfit is found when it is loaded."""
    if not (folder / "config.json").is_file():
        raise JudgefreeError(f"{folder} holds no config.json, so no model", "name another folder")
    architectures = read_json(folder / "config.json").get("architectures") or []
    if architectures and not any("SequenceClassification" in name for name in architectures):
        raise JudgefreeError(f"{folder} is no reward model: its config.json has architectures {architectures}",
                             "a policy has no reward head; make one with an entry of reward_models")  # fmt: skip


def judged_sha256(files: Mapping[str, Any]) -> str:
    """The content of a reward model by the listing of its folder, or of the folder of a run that it lies in."""
    inside = {file.removeprefix(f"{INSIDE}/"): facts for file, facts in files.items() if file.startswith(f"{INSIDE}/")}
    return key_of(inside or dict(files))


def judge(name: str, folder: Path, content: str, settings: RewardBenchmarks, threads: int, root: Path) -> Path:
    """A finished report below .work on the reward model in `folder`, whose content has this sha256: metrics.json, table.md,
    <benchmark>.parquet, manifest.json; the caller moves it away or removes it. Raises JudgefreeError as `reward_bench`."""
    made = conditions(settings, threads)
    facts = {"model_sha256": content, **{fact: value for fact, value in made.items() if fact != "sets"}}
    sealed, sources = _score_all(name, folder, settings, threads, facts, root)
    return _report(name, {**facts, "sets": made["sets"], "sources": sources}, sealed, root)


def conditions(settings: RewardBenchmarks, threads: int) -> dict[str, Any]:
    """What all reports that can be compared have in common, as their manifests say it; the rows of the sets apart."""
    plain = settings.model_dump(mode="json", exclude_none=True, exclude={"models"})
    return {"sets": plain.pop("sets"), "settings": plain, "threads": threads,
            "code_sha256": code_hash(_SOURCE / part for part in _CODE)}  # fmt: skip


def present_sources(settings: RewardBenchmarks, root: Path) -> dict[str, Any]:
    """Where the rows of each benchmark come from as they are now, as a report's manifest says it. Raises JudgefreeError for
    rows that are missing or malformed."""
    from judgefree.reward_benchmarks.run import load_benchmarks

    return {benchmark.name: benchmark.facts for benchmark in load_benchmarks(settings, root)}


def _score_all(
    name: str, folder: Path, settings: RewardBenchmarks, threads: int, facts: dict[str, Any], root: Path
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
        console.print(f"{name} on {benchmark.name} ({len(benchmark.items):,} items) ...")
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


def _report(name: str, facts: dict[str, Any], sealed: dict[str, Path], root: Path) -> Path:
    from judgefree.reward_benchmarks.run import averages
    from judgefree.reward_benchmarks.table import markdown

    # By content, for a champion and the present model of its name may be judged at the same time.
    finished = root / ".work" / "reward-bench" / f"report-{name}-{key_of(facts)[:16]}"
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
    return finished
