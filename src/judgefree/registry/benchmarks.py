"""Benchmarks beside the suites, as metrics of the model that they judge: reports/reward-bench of a reward model, its rulers
beside it, and reports/alpaca-eval and reports/arena-hard of a policy, under the name of the judge that was asked."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import Run

from judgefree.files import MANIFEST, key_of, read_json
from judgefree.registry.catalogue import describe
from judgefree.registry.facts import ModelFacts
from judgefree.registry.runs import log_dataset, log_latest
from judgefree.registry.store import Store
from judgefree.reward_benchmarks.stage import judged_sha256

REWARD_BENCH = "reward-bench"
JUDGED = ("alpaca-eval", "arena-hard")
_SHOWN = ("metrics.json", "table.md", "items.parquet", MANIFEST)


def benchmarks_of(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """Benchmark -> manifest of the model's reports; one of an earlier model of that name is passed over."""
    files = read_json(root / "models" / name / MANIFEST)["files"]
    contents = {REWARD_BENCH: judged_sha256(files), **dict.fromkeys(JUDGED, key_of(files))}
    found = {}
    for benchmark, content in contents.items():
        path = root / "reports" / benchmark / name / MANIFEST
        if path.is_file() and (facts := read_json(path))["model_sha256"] == content:
            found[benchmark] = facts
    return found


def log_benchmark(store: Store, run: Run, model: ModelFacts, benchmark: str, facts: Mapping[str, Any]) -> None:
    """A report's metrics that are described, its files but for the rows of reward benchmarks, and what was read as data
    sets."""
    folder = store.root / "reports" / benchmark / model.name
    group = benchmark.replace("-", "_")
    prefix = "" if benchmark == REWARD_BENCH else f"{group}/by-{facts['benchmark']['judge']}/"
    metrics = {f"{prefix}{name}": value for name, value in read_json(folder / "metrics.json").items()}
    known = {name: value for name, value in metrics.items() if describe(name)}
    log_latest(store, run, known, model.selected_step)
    for file in _SHOWN:
        if (folder / file).is_file():
            store.client.log_artifact(run.info.run_id, str(folder / file), group)
    for name, uri, sha256 in _inputs(group, facts):
        log_dataset(store, run, name, uri, sha256, "evaluation")


def _inputs(group: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, place and content of what a report was made from."""
    if "source" in facts:
        yield group, facts["benchmark"]["id"], key_of(facts["source"]["files"])
    for sets in facts.get("sources", {}).values():
        for name, source in sets.items():
            if dataset := source.get("dataset"):
                yield from ((dataset, f"data/{dataset}/{file}", sha256) for file, sha256 in source["files"].items())
            else:
                yield name, source.get("id", source["kind"]), key_of(source["files"])
