"""Comparisons by a judge in MLflow."""

from collections.abc import Callable
from typing import Any

from judgefree.files import pretty_json, seal, write_atomic
from judgefree.registry.facts import model_sha256
from judgefree.registry.store import open_store
from judgefree.registry.sync import sync


def compared(project: Any, name: str, key: str, win_rate: float, **pair: str) -> None:
    folder = project.root / "reports" / "pairwise" / name
    write_atomic(folder / "metrics.json", pretty_json({"items": 300, "win_rate": win_rate, "cost": 1.5}))
    write_atomic(folder / "items.parquet", b"rows")
    facts = {"model": "rlvr", "against": "tiny", "suite": "arithmetic", "judge": "gpt", **pair}
    seal(folder, {"key": key, "pair": facts, "model_sha256": model_sha256(project.root, facts["model"])})


def test_a_comparison_is_shown_with_its_model(project: Any, shares: Callable[..., list[bool]]) -> None:
    project.run("rlvr", weights=1)
    project.report("rlvr", shares(0.5))
    sync(project.root)
    compared(project, "p", "k", 0.625)
    assert sync(project.root) == {"rlvr": "logged", "tiny": "unchanged"}
    assert sync(project.root) == {"rlvr": "unchanged", "tiny": "unchanged"}
    store = open_store(project.root)

    def metrics() -> dict[str, float]:
        (run,) = [one for one in store.client.search_runs([store.experiment_id]) if one.info.run_name == "rlvr"]
        shown = {artifact.path for artifact in store.client.list_artifacts(run.info.run_id, "pairwise/p")}
        assert shown == {f"pairwise/p/{name}" for name in ("items.parquet", "manifest.json", "metrics.json")}
        return {name: value for name, value in run.data.metrics.items() if name.startswith("pairwise/")}

    prefix = "pairwise/arithmetic/tiny-by-gpt"
    assert metrics() == {f"{prefix}/items": 300, f"{prefix}/win_rate": 0.625, f"{prefix}/cost": 1.5}
    compared(project, "p", "k2", 0.75)
    compared(project, "q", "k3", 0.25, judge="other")
    sync(project.root)
    assert metrics()[f"{prefix}/win_rate"] == 0.75 and metrics()["pairwise/arithmetic/tiny-by-other/win_rate"] == 0.25
    project.run("rlvr", weights=2)  # another model of that name: nobody has judged it
    project.report("rlvr", shares(0.5))
    sync(project.root)
    newest = max(store.client.search_runs([store.experiment_id]), key=lambda run: run.info.start_time)
    assert not [name for name in newest.data.metrics if name.startswith("pairwise/")]
