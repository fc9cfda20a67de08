"""What is known about a model without opening MLflow: from its manifest, or from its resolved settings as it trains."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judgefree.files import MANIFEST, key_of, read_json
from judgefree.reward_model.pairs import PAIRS

REWARD_MODEL = "reward_model"  # how a manifest names one, and its method
LONGEST_PARAMETER = 500  # MLflow cuts at 6000 without a word, and a table of runs is for reading


@dataclass(frozen=True)
class ModelFacts:
    """A base (method None), a run, or a reward model (its method is REWARD_MODEL). settings: the resolved settings it was
    trained with; data_sha256: of the files below data/<dataset> it was trained on. Both are empty where a manifest does not
    tell."""

    name: str
    key: str
    method: str | None = None
    dataset: str | None = None
    seed: int | None = None
    start_from: str | None = None
    base: str | None = None
    select: str | None = None
    selected_step: int = 0
    status: str = "finished"
    settings: Mapping[str, Any] = field(default_factory=dict)
    data_sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """base, reward_model or run."""
        return "run" if self.method not in (None, REWARD_MODEL) else self.method or "base"

    @property
    def title(self) -> str:
        """One line for the run's description."""
        return (
            f"{self.method} on {self.dataset} from {self.start_from}" if self.method else "base model, not trained here"
        )

    def short_params(self) -> dict[str, str]:
        """Parameters for the table of runs: the facts, then the training settings and options key by key; what is too
        long for a table stands in parameters.json only."""
        facts = {"method": self.method or "base", "dataset": self.dataset, "seed": self.seed, "base": self.base,
                 "start_from": self.start_from, "select": self.select}  # fmt: skip
        run = self.settings.get("run", {})
        nested = {**self.settings.get("training", {}), "value_fit": self.settings.get("value_fit", {}),
                  "options": run.get("options", {})}  # fmt: skip
        values = {**{key: value for key, value in facts.items() if value is not None}, **_flat(nested)}
        return {key: text for key, value in values.items() if len(text := str(value)) <= LONGEST_PARAMETER}


def read_model(root: Path, name: str) -> ModelFacts:
    """Facts of models/<name>. Raises JudgefreeError for a missing or unreadable manifest."""
    manifest = read_json(root / "models" / name / MANIFEST)
    if manifest["kind"] == REWARD_MODEL:
        settings = manifest["settings"]
        return ModelFacts(
            name, manifest["key"], REWARD_MODEL, base=base_of(root, settings["start_from"]), settings=settings,
            data_sha256={PAIRS: manifest["files"][PAIRS]["sha256"]},
            **{fact: settings[fact] for fact in ("dataset", "seed", "start_from")},
        )  # fmt: skip
    if manifest["kind"] != "run":
        return ModelFacts(name, manifest["key"], base=name)
    fields = ("key", "method", "dataset", "seed", "start_from", "select", "selected_step", "status")
    return ModelFacts(
        name, base=base_of(root, manifest["start_from"]), settings=manifest.get("settings", {}),
        data_sha256=manifest.get("data_sha256", {}), **{key: manifest[key] for key in fields},
    )  # fmt: skip


def read_training(root: Path, name: str, key: str) -> ModelFacts:
    """Facts of a run that is being trained, from resolved/train/<name>.json and its data set's manifest."""
    settings = read_json(root / "resolved" / "train" / f"{name}.json")
    run = settings["run"]
    splits = read_json(root / "data" / run["dataset"] / MANIFEST)["files"]
    return ModelFacts(
        name, key, base=base_of(root, run["start_from"]), settings=settings, status="training",
        data_sha256={split: splits[split]["sha256"] for split in ("train.parquet", "validation.parquet")},
        **{fact: run[fact] for fact in ("method", "dataset", "seed", "start_from", "select")},
    )  # fmt: skip


def base_of(root: Path, name: str) -> str:
    """The base at the end of a model's chain, following the manifests; where one is gone, the last name known."""
    path = root / "models" / name / MANIFEST
    start = read_json(path).get("start_from") if path.is_file() else None
    return base_of(root, start) if start else name


def model_sha256(root: Path, name: str) -> str:
    """The content of models/<name>, as the evaluation names it."""
    return key_of(read_json(root / "models" / name / MANIFEST)["files"])


def reports_of(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """Suite -> manifest of the model's reports; a report of an earlier model of that name is passed over."""
    content = model_sha256(root, name)
    found = {}
    for path in sorted((root / "reports" / "runs" / name).glob(f"*/{MANIFEST}")):
        facts = read_json(path)
        if facts["model_sha256"] == content:
            found[path.parent.name] = facts
    return found


def pairs_of(root: Path, name: str) -> dict[str, dict[str, Any]]:
    """Pair -> manifest of the comparisons of the model with others; one of an earlier model of that name is passed over."""
    content = model_sha256(root, name)
    found = {
        path.parent.name: read_json(path) for path in sorted((root / "reports" / "pairwise").glob(f"[!.]*/{MANIFEST}"))
    }
    return {
        pair: facts
        for pair, facts in found.items()
        if facts["pair"]["model"] == name and facts["model_sha256"] == content
    }


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
