"""`judgefree runs`: every run of params.yaml and how far it is, from files alone."""

import json
from dataclasses import dataclass
from pathlib import Path

from judgefree.check import checked
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST
from judgefree.params import Params
from judgefree.registry.facts import read_model, reports_of


@dataclass(frozen=True)
class RunState:
    """state: `not started`, `in progress`, `trained`, `evaluated`, `collapsed`, or `stale`: the model in models/ was
    made from other settings, inputs or code than the present ones."""

    name: str
    method: str
    dataset: str
    seed: int
    state: str
    detail: str = ""


def run_states(root: Path) -> list[RunState]:
    """The runs in the order of params.yaml, with settings as they stand there (resolved anew if need be)."""
    params = checked(root / "params.yaml")
    return [
        RunState(name, run.method, run.dataset, run.seed, *_state(root, params, name))
        for name, run in params.runs.items()
    ]


def _state(root: Path, params: Params, name: str) -> tuple[str, str]:
    try:
        from judgefree.training.run import read_job  # torch takes seconds to import

        job = read_job(name, root)
    except JudgefreeError as error:  # an input is missing or damaged, so nothing can be said but that
        made = (root / "models" / name / MANIFEST).is_file()
        return ("stale" if made else "not started"), error.problem
    model = read_model(root, name) if (root / "models" / name / MANIFEST).is_file() else None
    if model is None or model.key != job.key:
        before = "stale" if model else "not started"
        reached = last_step(job.work)
        if reached:
            return "in progress", f"step {reached} of {job.training.steps}" + (
                ", replaces a stale model" if model else ""
            )
        return before, "" if model is None else "its settings, inputs or code have changed; `dvc repro` trains it again"
    if model.status == "collapsed":
        return "collapsed", f"step {model.selected_step} is published"
    reports, settings = reports_of(root, name), params.model_dump(mode="json", exclude_none=True)["suites"]
    missing = [suite for suite in params.runs[name].suites
               if suite not in reports or reports[suite]["suite"] != settings[suite]]  # fmt: skip
    if missing:
        return "trained", f"step {model.selected_step}, not evaluated on {', '.join(missing)}"
    return "evaluated", f"step {model.selected_step}"


def last_step(work: Path) -> int:
    """The last step that a run in progress has logged; 0 where it did not begin."""
    path = work / "timings.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    whole = [line for line in lines if line.endswith("}")]  # a kill may have cut the last one
    return int(json.loads(whole[-1])["step"]) if whole else 0
