"""Which run stands for a task: the best finished one by its training's own measure, never by the test items."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST
from judgefree.params import Params
from judgefree.registry.facts import ModelFacts, read_model, reports_of
from judgefree.registry.states import run_keys
from judgefree.registry.sync import read_history
from judgefree.training.history import OWN_SIGNAL, validation_of


@dataclass(frozen=True)
class Candidate:
    """score: of the ranking measure at the step whose weights the run handed on."""

    model: ModelFacts
    score: float


def suite_of(params: Params, task: str) -> str:
    """The suite that decides on a task (`Params.deciding_suite`).

    Raises JudgefreeError for an unknown task, and where no suite or more than one could be meant.
    """
    tasks = sorted({run.dataset for run in params.runs.values()})
    if task not in tasks:
        raise JudgefreeError(f"no run of params.yaml trains on {task!r}", f"tasks are: {', '.join(tasks)}")
    if decides := params.deciding_suite(task):
        return decides
    suites = [name for name, suite in params.suites.items() if suite.dataset == task]
    found = f"{len(suites)} suites test {task} ({', '.join(suites)})" if suites else f"no suite tests {task}"
    raise JudgefreeError(f"{found}, so it is not clear which decides on it", f"give suites one named {task}")


def best_run(root: Path, params: Params, task: str, suite: str) -> tuple[Candidate, dict[str, str]]:
    """The task's candidate, and for every other run of the task why it is not; the first in params.yaml of equals.

    Raises JudgefreeError with all those reasons where no run can be one.
    """
    keys = run_keys(root)
    names = [name for name, run in params.runs.items() if run.dataset == task]
    return choose(
        task, params.gates.rank_by, {name: _candidate(root, params, name, suite, keys[name]) for name in names}
    )


def choose(task: str, measure: str, models: Mapping[str, Candidate | str]) -> tuple[Candidate, dict[str, str]]:
    """The best candidate, the first of equals, and why each other model is none. models: name -> candidate, or why it is
    none. Raises JudgefreeError with all those reasons where there is none."""
    passed_over = {name: one for name, one in models.items() if isinstance(one, str)}
    found = [one for one in models.values() if isinstance(one, Candidate)]
    if not found:
        why = "; ".join(f"{name}: {reason}" for name, reason in passed_over.items())
        raise JudgefreeError(
            f"no model of {task} can be registered ({why})", "run `dvc repro`, and look at `judgefree runs`"
        )
    best = max(found, key=lambda one: one.score)
    for one in found:
        if one is not best:
            passed_over[one.model.name] = f"{measure} {one.score:.4f}, the candidate has {best.score:.4f}"
    return best, passed_over


def finished_model(root: Path, name: str, key: str | JudgefreeError) -> ModelFacts | str:
    """models/<name> as it was made with the present key, or why it is no candidate."""
    if not (root / "models" / name / MANIFEST).is_file():
        return "not trained yet"
    model = read_model(root, name)
    if model.status != "finished":
        return f"its training {model.status}"
    if isinstance(key, JudgefreeError):
        return key.problem
    if model.key != key:
        return "its settings, inputs or code have changed since it was trained"
    return model


def _candidate(root: Path, params: Params, name: str, suite: str, key: str | JudgefreeError) -> Candidate | str:
    model = finished_model(root, name, key)
    if isinstance(model, str):
        return model
    reports = reports_of(root, name)
    if suite not in reports:
        return f"these weights are not evaluated on {suite}"
    plain = params.model_dump(mode="json", exclude_none=True)
    if (reports[suite]["suite"], reports[suite]["prompt"]) != (
        plain["suites"][suite], plain["prompts"][params.suites[suite].dataset],
    ):  # fmt: skip
        return f"suite {suite} or its prompt has changed since these weights were evaluated"
    history = read_history(root / "models" / name / "history.parquet")
    metric = validation_of(history) if params.gates.rank_by == "validation" else OWN_SIGNAL
    score = history.get(model.selected_step, {}).get(metric)
    if score is None:
        return f"{metric} was not measured at its step {model.selected_step}"
    return Candidate(model, score)
