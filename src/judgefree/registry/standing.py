"""What every candidate goes through, policy or reward model: its version is put to the gate against what stands, the
verdict is acted on and kept with it.

A version keeps the report that it was judged by, so that the next candidate can be compared with it when models/ has long
moved on.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlflow.entities.model_registry import ModelVersion

from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, key_of, publish, verify, write_atomic
from judgefree.registry.facts import ModelFacts
from judgefree.registry.gate import Decision, Judgement, Verdict
from judgefree.registry.runs import find_model_run
from judgefree.registry.store import KEY, NAME, Store
from judgefree.registry.versions import CONTENT, ROLLED_BACK, find_or_create_version, model_folder, settle

Comparison = Callable[
    [int | None], tuple[str, Judgement]
]  # by the champion's version: what it was compared with, and how
_DESCRIPTION = 4900  # characters that MLflow takes


def version_of(
    store: Store, name: str, task: str, model: ModelFacts, content: str, log_model: Callable[[str, dict[str, str]], str]
) -> ModelVersion:
    """The version of the registered model `name` with this content, made where there is none. log_model: as
    `find_or_create_version` has it, with the MLflow run before the tags."""
    run = find_model_run(store, model)
    tags = {
        KEY: model.key, NAME: model.name, "task": task, "method": str(model.method), "seed": str(model.seed),
        "base": str(model.base), "start_from": str(model.start_from), "data_sha256": key_of(dict(model.data_sha256)),
        "parameters_sha256": key_of(dict(model.settings)),
        "git_commit": run.data.tags.get("mlflow.source.git.commit", "unknown"),
    }  # fmt: skip
    run_id = run.info.run_id
    return find_or_create_version(store, name, content, tags, run_id, lambda known: log_model(run_id, known))


def put_to_gate(
    store: Store, task: str, model: str, version: ModelVersion, passed_over: Mapping[str, str], compare: Comparison
) -> Verdict:
    """Decide on a version of `model` and act on it; `compare` may be asked several times."""
    number = int(version.version)

    def gate(champion: int | None) -> Verdict:
        def verdict(decision: Decision, reason: str, against: str, judgement: Judgement | None = None) -> Verdict:
            stands = number if decision == "PROMOTE" else champion
            return Verdict(task, decision, reason, model, number, stands, against, passed_over, judgement)

        if champion == number:
            return verdict("HOLD", "it is the champion already", "itself")
        if when := store.client.get_model_version(version.name, version.version).tags.get(ROLLED_BACK):
            reason = f"it was rolled back on {when}; remove its tag {ROLLED_BACK} in MLflow to let it stand again"
            return verdict("HOLD", reason, "nothing")
        against, judgement = compare(champion)
        return verdict(judgement.decision, judgement.reason, against, judgement)

    decided = settle(store, version.name, number, gate)
    if decided.judgement:  # without one, as on a night that brought nothing new, the last verdict stands
        _keep_ledger(store, version, decided)
    return decided


def kept_report(store: Store, version: ModelVersion, name: str) -> Path:
    """Where a version keeps a report, whether it has it or not."""
    return model_folder(store, version) / "evaluation" / name


def keep_report(store: Store, version: ModelVersion, report: Path, name: str) -> None:
    """Copy a sealed report to the version's files, in one rename."""
    with tempfile.TemporaryDirectory(dir=store.root / "mlruns") as place:
        copy = Path(place) / "report"
        for file in (*verify(report)["files"], MANIFEST):
            write_atomic(copy / file, (report / file).read_bytes())
        with store.locked(f"task-{version.name}"):
            publish(copy, kept_report(store, version, name))


def report_there(version: ModelVersion, places: tuple[Path, ...], wanted: Mapping[str, Any]) -> Path | None:
    """The first of these reports that is whole, of this version, and made as the one with the facts `wanted` is."""
    for folder in places:
        try:
            facts = verify(folder)
        except JudgefreeError:  # not there, or damaged, which no command would mend inside of a version
            continue
        if facts["model_sha256"] == version.tags[CONTENT] and not differ(facts, wanted):
            return folder
    return None


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """In what two reports differ that they must share to be compared: all that they are made from but the model."""
    names = sorted((one.keys() | other.keys()) - {"key", "model", "model_sha256", "files"})
    return ", ".join(name for name in names if one.get(name) != other.get(name))


def _keep_ledger(store: Store, version: ModelVersion, verdict: Verdict) -> None:
    """The ledger as artifacts of the candidate's run, and the verdict on the version's own page."""
    client, run_id = store.client, str(version.run_id)
    place = f"registry/{verdict.task}/{verdict.against.replace(' ', '-')}"
    client.log_dict(run_id, verdict.ledger(), f"{place}.json")
    client.log_text(run_id, verdict.markdown(), f"{place}.md")
    client.set_model_version_tag(version.name, version.version, "judgefree.verdict", verdict.decision)
    client.update_model_version(version.name, version.version, verdict.markdown()[:_DESCRIPTION])
