"""`judgefree register TASK` for reward models: the best judged one of a data set becomes a version of the registered model
TASK-reward-model, and champion if its own gate lets it (reward_gate.py).

    models/<name> + reports/reward-bench/<name>  --content-->  version, alias challenger  --gate-->  alias champion

Where the benchmarks or what they read have changed since the champion was judged, it is judged anew from its version.
"""

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.entities.model_registry import ModelVersion

from judgefree.check import checked
from judgefree.config_rewards import reward_model_name
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, read_json, verify
from judgefree.params import Params
from judgefree.places import reward_model_in
from judgefree.registry import package
from judgefree.registry.benchmarks import REWARD_BENCH
from judgefree.registry.facts import ModelFacts
from judgefree.registry.gate import Judgement, Report, Verdict
from judgefree.registry.reward_candidates import best_reward_model, settings_of
from judgefree.registry.reward_gate import best_ruler, judge_rewards
from judgefree.registry.standing import differ, keep_report, kept_report, put_to_gate, report_there, version_of
from judgefree.registry.store import NAME, Store, open_store
from judgefree.registry.sync import sync
from judgefree.registry.versions import CONTENT, model_folder, registered_name
from judgefree.reward_benchmarks.stage import METRICS, judge

log = logging.getLogger(__name__)


def register_reward_model(root: Path, task: str) -> Verdict:
    """Register the best judged reward model of a data set, as `register.register` does a policy, and decide on it.

    Raises JudgefreeError where none can be a candidate.
    """
    params = checked(root / "params.yaml")
    sync(root)
    store = open_store(root)
    candidate, passed_over, choices = best_reward_model(root, params, task)
    model = candidate.model
    version = _make_version(store, task, model)
    compare = _Candidate(store, params, model, version, choices).compare
    return put_to_gate(store, reward_model_name(task), model.name, version, passed_over, compare)


def _make_version(store: Store, task: str, model: ModelFacts) -> ModelVersion:
    """The version that holds the reward model of models/<model>, with the report that it is judged by."""
    place, report = store.root / "models" / model.name, store.root / "reports" / REWARD_BENCH / model.name

    def log_model(run_id: str, content: dict[str, str]) -> str:
        verify(place)
        return package.log_reward_model(store, model, reward_model_in(place), run_id, content)

    content = read_json(report / MANIFEST)["model_sha256"]
    version = version_of(store, registered_name(reward_model_name(task)), task, model, content, log_model)
    keep_report(store, version, report, REWARD_BENCH)
    return version


@dataclass(frozen=True)
class _Candidate:
    """A version with all that its gate needs to know; choices: of how many models it is the best."""

    store: Store
    params: Params
    model: ModelFacts
    version: ModelVersion
    choices: int

    def compare(self, champion: int | None) -> tuple[str, Judgement]:
        """What stands, and the judgement against it: the champion, or the best ruler where there is none."""
        _, gates = settings_of(self.params)
        folder = self.store.root / "reports" / REWARD_BENCH / self.model.name
        report = _read(folder, gates.rank_by)
        if champion is None:
            against, other = f"ruler {best_ruler(report.items)}", None
        else:
            against = f"champion version {champion}"
            other = _read(self._champion_report(champion, read_json(folder / MANIFEST)), gates.rank_by)
        return against, judge_rewards(report, other, gates, self.params.compare, self.choices)

    def _champion_report(self, number: int, wanted: Mapping[str, Any]) -> Path:
        """How the champion was judged under the settings, rows and code of the candidate's report: from reports/ where that
        model still is, from its version, or judged now. Raises JudgefreeError where that is not to be had any more."""
        version = self.store.client.get_model_version(self.version.name, str(number))
        kept = kept_report(self.store, version, REWARD_BENCH)
        if there := report_there(
            version, (self.store.root / "reports" / REWARD_BENCH / version.tags[NAME], kept), wanted
        ):
            return there
        judged, _ = settings_of(self.params)
        log.warning("the champion is judged again, since settings, rows or code have changed")
        with package.files_of(model_folder(self.store, version)) as folder:
            fresh = judge(
                version.tags[NAME], folder, version.tags[CONTENT], judged, self.params.threads, self.store.root
            )
        keep_report(self.store, version, fresh, REWARD_BENCH)
        shutil.rmtree(fresh)
        if unlike := differ(read_json(kept / MANIFEST), wanted):
            raise JudgefreeError(
                f"champion version {number} was judged again, and {unlike} differ from what {self.model.name} was judged by",
                f"run `dvc repro --force --single-item reward_bench@{self.model.name}`",
            )
        return kept


def _read(report: Path, benchmark: str) -> Report:
    verify(report)
    return Report(pd.read_parquet(report / f"{benchmark}.parquet"), read_json(report / METRICS))
