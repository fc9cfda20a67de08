"""`judgefree register TASK`: the best run of a task becomes a version of its registered model, and champion if the gate
lets it. `judgefree rollback TASK` takes the last promotion back.

    models/<run> + reports/runs/<run>/<suite>  --content-->  version, alias challenger  --gate-->  alias champion

A version keeps the answers to the test items that it was judged by, so that the next candidate can be compared with it
when models/ has long moved on; where the suite has changed since, the version answers the new items first.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities.model_registry import ModelVersion

from judgefree.check import checked
from judgefree.config import PromptFormat
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, key_of, publish, read_json, verify, write_atomic
from judgefree.params import Params
from judgefree.registry import package
from judgefree.registry.candidates import best_run, suite_of
from judgefree.registry.facts import ModelFacts, model_sha256, reports_of
from judgefree.registry.gate import Decision, Judgement, Report, Verdict, judge
from judgefree.registry.runs import find_model_run
from judgefree.registry.store import KEY, NAME, Store, open_store
from judgefree.registry.sync import sync
from judgefree.registry.versions import (
    CONTENT,
    ROLLED_BACK,
    find_or_create_version,
    model_folder,
    registered_name,
    roll_back,
    settle,
)

ITEMS, METRICS = "items.parquet", "metrics.json"
_DESCRIPTION = 4900  # characters that MLflow takes


@dataclass(frozen=True)
class Rollback:
    """A task's champion before and after."""

    task: str
    was: int
    now: int | None


def register(root: Path, task: str) -> Verdict:
    """Register the task's candidate (once per content, however often and from however many processes it is called) and
    decide on it.

    Raises JudgefreeError where no run can be a candidate, and where there is nothing to compare it with.
    """
    params = checked(root / "params.yaml")
    suite = suite_of(params, task)
    sync(root)
    store = open_store(root)
    candidate, passed_over = best_run(root, params, task, suite)
    version = make_version(store, task, suite, candidate.model)
    judged = _Candidate(store, params, task, suite, candidate.model, version, passed_over)
    verdict = settle(store, version.name, int(version.version), judged.gate)
    if verdict.judgement:  # without one, as on a night that brought nothing new, the last verdict stands
        _keep_ledger(store, version, verdict)
    return verdict


def rollback(root: Path, task: str) -> Rollback:
    """Give the alias champion back to the version that had it before, if any did. Raises JudgefreeError where no version
    has it."""
    was, now = roll_back(open_store(root), registered_name(task))
    return Rollback(task, was, now)


def make_version(store: Store, task: str, suite: str, model: ModelFacts) -> ModelVersion:
    """The version that holds the present content of models/<model>, with the report that it is judged by and the prompt
    of that report."""
    folder, report = store.root / "models" / model.name, store.root / "reports" / "runs" / model.name / suite
    run = find_model_run(store, model)
    tags = {
        KEY: model.key, NAME: model.name, "task": task, "method": str(model.method), "seed": str(model.seed),
        "base": str(model.base), "start_from": str(model.start_from), "data_sha256": key_of(dict(model.data_sha256)),
        "parameters_sha256": key_of(dict(model.settings)),
        "git_commit": run.data.tags.get("mlflow.source.git.commit", "unknown"),
    }  # fmt: skip

    def log_model(content: dict[str, str]) -> str:
        verify(folder)
        facts = read_json(report / MANIFEST)
        return package.log_model(store, model, folder, run.info.run_id, PromptFormat.model_validate(facts["prompt"]),
                                 facts["suite"]["max_completion_tokens"], content)  # fmt: skip

    name = registered_name(task)
    version = find_or_create_version(
        store, name, model_sha256(store.root, model.name), tags, run.info.run_id, log_model
    )
    keep_report(store, version, report)
    return version


def keep_report(store: Store, version: ModelVersion, report: Path) -> None:
    """Copy a suite's sealed report (items, metrics, manifest) to the version's files, in one rename."""
    target = model_folder(store, version) / "evaluation" / report.name
    with tempfile.TemporaryDirectory(dir=store.root / "mlruns") as place:
        copy = Path(place) / "report"
        for file in (*verify(report)["files"], MANIFEST):
            write_atomic(copy / file, (report / file).read_bytes())
        with store.locked(f"task-{version.name}"):
            publish(copy, target)


@dataclass(frozen=True)
class _Candidate:
    """A version with all that its gate needs to know; `gate` may be asked several times."""

    store: Store
    params: Params
    task: str
    suite: str
    model: ModelFacts
    version: ModelVersion
    passed_over: Mapping[str, str]

    def gate(self, champion: int | None) -> Verdict:
        if champion == int(self.version.version):
            return self._verdict("HOLD", "it is the champion already", champion, "itself")
        if when := self._tags(int(self.version.version)).get(ROLLED_BACK):
            reason = f"it was rolled back on {when}; remove its tag {ROLLED_BACK} in MLflow to let it stand again"
            return self._verdict("HOLD", reason, champion, "nothing")
        report = self.store.root / "reports" / "runs" / self.model.name / self.suite
        wanted = read_json(report / MANIFEST)
        if champion is None:
            against, other = f"its base {self.model.base}", self._base_report(wanted)
        else:
            against, other = f"champion version {champion}", self._champion_report(champion, wanted)
        judgement = judge(self.suite, _read(report), _read(other), self.params.gates, self.params.compare)
        stands = int(self.version.version) if judgement.decision == "PROMOTE" else champion
        return self._verdict(judgement.decision, judgement.reason, stands, against, judgement)

    def _verdict(
        self, decision: Decision, reason: str, champion: int | None, against: str, judgement: Judgement | None = None
    ) -> Verdict:
        return Verdict(self.task, decision, reason, self.model.name, int(self.version.version), champion, against,
                       self.passed_over, judgement)  # fmt: skip

    def _tags(self, version: int) -> dict[str, str]:
        return dict(self.store.client.get_model_version(self.version.name, str(version)).tags)

    def _base_report(self, wanted: Mapping[str, Any]) -> Path:
        """The base's answers. Raises JudgefreeError where there are none under the conditions of the candidate's."""
        base = str(self.model.base)
        reports = reports_of(self.store.root, base)
        if self.suite not in reports:
            raise JudgefreeError(
                f"{self.task} has no champion, and base {base} is not evaluated on {self.suite} to compare with",
                f"add {self.suite} to bases.{base}.suites and run `dvc repro`",
            )
        if differ := _differ(reports[self.suite], wanted):
            raise JudgefreeError(
                f"base {base} and {self.model.name} are not evaluated on {self.suite} alike: {differ} differ",
                "run `dvc repro`",
            )
        return self.store.root / "reports" / "runs" / base / self.suite

    def _champion_report(self, number: int, wanted: Mapping[str, Any]) -> Path:
        """The champion's answers under the same settings, test items and code as the candidate's: from reports/ where
        that model still is, from its version, or made now."""
        version = self.store.client.get_model_version(self.version.name, str(number))
        content = version.tags[CONTENT]
        kept = model_folder(self.store, version) / "evaluation" / self.suite
        present = self.store.root / "reports" / "runs" / version.tags[NAME] / self.suite
        for folder in (present, kept):
            if (folder / MANIFEST).is_file():
                facts = read_json(folder / MANIFEST)
                if facts["model_sha256"] == content and not _differ(facts, wanted):
                    return folder
        with tempfile.TemporaryDirectory() as place:
            fresh = Path(place) / self.suite
            package.answer_again(self.store.root, model_folder(self.store, version), dict(wanted), content, fresh,
                                 self.params.grading.workers)  # fmt: skip
            keep_report(self.store, version, fresh)
        return kept


def _read(report: Path) -> Report:
    verify(report)
    return Report(pd.read_parquet(report / ITEMS), read_json(report / METRICS))


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """In what two reports differ that they must share to be compared: all that they are made from but the model."""
    names = sorted((one.keys() | other.keys()) - {"key", "model_sha256", "files"})
    return ", ".join(name for name in names if one.get(name) != other.get(name))


def _keep_ledger(store: Store, version: ModelVersion, verdict: Verdict) -> None:
    """The ledger as artifacts of the candidate's run, and the verdict on the version's own page."""
    client, run_id = store.client, str(version.run_id)
    place = f"registry/{verdict.task}/{verdict.against.replace(' ', '-')}"
    client.log_dict(run_id, verdict.ledger(), f"{place}.json")
    client.log_text(run_id, verdict.markdown(), f"{place}.md")
    client.set_model_version_tag(version.name, version.version, "judgefree.verdict", verdict.decision)
    client.update_model_version(version.name, version.version, verdict.markdown()[:_DESCRIPTION])
