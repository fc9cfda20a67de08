"""`judgefree register TASK`: the best run of a task becomes a version of its registered model, and champion if the gate
lets it. `judgefree rollback TASK` takes the last promotion back.

    models/<run> + reports/runs/<run>/<suite>  --content-->  version, alias challenger  --gate-->  alias champion

A version is compared by its answers to the test items; where the suite has changed since, it answers the new items first.
Reward models have a gate of their own (register_rewards.py).
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities.model_registry import ModelVersion

from judgefree.check import checked
from judgefree.config import PromptFormat
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, read_json, verify
from judgefree.params import Params
from judgefree.registry import package
from judgefree.registry.candidates import best_run, suite_of
from judgefree.registry.facts import ModelFacts, model_sha256, reports_of
from judgefree.registry.gate import Judgement, Report, Verdict, judge
from judgefree.registry.kinds import Kind, registered
from judgefree.registry.register_rewards import register_reward_model
from judgefree.registry.standing import differ, keep_report, kept_report, put_to_gate, report_there, version_of
from judgefree.registry.store import NAME, Store, open_store
from judgefree.registry.sync import sync
from judgefree.registry.versions import CONTENT, model_folder, registered_name, roll_back

ITEMS, METRICS = "items.parquet", "metrics.json"


@dataclass(frozen=True)
class Rollback:
    """A registered model's champion before and after."""

    task: str
    was: int
    now: int | None


def register_task(root: Path, task: str, only: Kind | None = None) -> Iterator[Verdict]:
    """The verdicts on all that a task has a registered model of, or on one kind. Raises JudgefreeError as those do, once all
    that can be decided is."""
    params = checked(root / "params.yaml")
    kinds = [only] if only else [kind for kind, name in registered(params) if name == task]
    refused = []
    for kind in kinds or ["policies"]:  # which says what there is
        try:
            verdict = register(root, task) if kind == "policies" else register_reward_model(root, task)
        except JudgefreeError as error:
            refused.append(error)
        else:
            yield verdict
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise JudgefreeError("; ".join(error.problem for error in refused), "; ".join(error.fix for error in refused))


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
    compare = _Candidate(store, params, task, suite, candidate.model, version).compare
    return put_to_gate(store, task, candidate.model.name, version, passed_over, compare)


def rollback(root: Path, task: str) -> Rollback:
    """Give the alias champion back to the version that had it before, if any did. Raises JudgefreeError where no version
    has it."""
    was, now = roll_back(open_store(root), registered_name(task))
    return Rollback(task, was, now)


def make_version(store: Store, task: str, suite: str, model: ModelFacts) -> ModelVersion:
    """The version that holds the present content of models/<model>, with the report that it is judged by and the prompt
    of that report."""
    folder, report = store.root / "models" / model.name, store.root / "reports" / "runs" / model.name / suite

    def log_model(run_id: str, content: dict[str, str]) -> str:
        verify(folder)
        facts = read_json(report / MANIFEST)
        return package.log_model(store, model, folder, run_id, PromptFormat.model_validate(facts["prompt"]),
                                 facts["suite"]["max_completion_tokens"], content)  # fmt: skip

    content = model_sha256(store.root, model.name)
    version = version_of(store, registered_name(task), task, model, content, log_model)
    keep_report(store, version, report, suite)
    return version


@dataclass(frozen=True)
class _Candidate:
    """A version with all that its gate needs to know."""

    store: Store
    params: Params
    task: str
    suite: str
    model: ModelFacts
    version: ModelVersion

    def compare(self, champion: int | None) -> tuple[str, Judgement]:
        """What stands, and the judgement against it: the champion, or the base where there is none."""
        report = self.store.root / "reports" / "runs" / self.model.name / self.suite
        wanted = read_json(report / MANIFEST)
        if champion is None:
            against, other = f"its base {self.model.base}", self._base_report(wanted)
        else:
            against, other = f"champion version {champion}", self._champion_report(champion, wanted)
        return against, judge(self.suite, _read(report), _read(other), self.params.gates, self.params.compare)

    def _base_report(self, wanted: Mapping[str, Any]) -> Path:
        """The base's answers. Raises JudgefreeError where there are none under the conditions of the candidate's."""
        base = str(self.model.base)
        reports = reports_of(self.store.root, base)
        if self.suite not in reports:
            raise JudgefreeError(
                f"{self.task} has no champion, and base {base} is not evaluated on {self.suite} to compare with",
                f"add {self.suite} to bases.{base}.suites and run `dvc repro`",
            )
        if unlike := differ(reports[self.suite], wanted):
            raise JudgefreeError(
                f"base {base} and {self.model.name} are not evaluated on {self.suite} alike: {unlike} differ",
                "run `dvc repro`",
            )
        return self.store.root / "reports" / "runs" / base / self.suite

    def _champion_report(self, number: int, wanted: Mapping[str, Any]) -> Path:
        """The champion's answers under the same settings, test items and code as the candidate's: from reports/ where
        that model still is, from its version, or made now."""
        version = self.store.client.get_model_version(self.version.name, str(number))
        kept = kept_report(self.store, version, self.suite)
        present = self.store.root / "reports" / "runs" / version.tags[NAME] / self.suite
        if there := report_there(version, (present, kept), wanted):
            return there
        with tempfile.TemporaryDirectory() as place:
            fresh = Path(place) / self.suite
            package.answer_again(self.store.root, model_folder(self.store, version), dict(wanted), version.tags[CONTENT],
                                 fresh, self.params.grading.workers)  # fmt: skip
            keep_report(self.store, version, fresh, self.suite)
        return kept


def _read(report: Path) -> Report:
    verify(report)
    return Report(pd.read_parquet(report / ITEMS), read_json(report / METRICS))
