"""`judgefree runs`: every run and reward model of params.yaml and how far it is, from files alone."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from judgefree.check import checked, write_resolved
from judgefree.errors import JudgefreeError
from judgefree.files import MANIFEST, read_json
from judgefree.methods import models_of
from judgefree.params import Params
from judgefree.registry.facts import ModelFacts, read_model, reports_of
from judgefree.reward_benchmarks.stage import conditions, judged_sha256


@dataclass(frozen=True)
class RunState:
    """method: `reward model` of an entry of reward_models. state: `not started`, `in progress`, `trained`, `evaluated`,
    `collapsed`, or `stale`: the model in models/ was made from other settings, inputs or code than the present ones."""

    name: str
    method: str
    dataset: str
    seed: int
    state: str
    detail: str = ""


def run_states(root: Path) -> list[RunState]:
    """The runs in the order of params.yaml, then its reward models, with settings as they stand there, whatever resolved/
    holds."""
    params, keys = checked(root / "params.yaml"), run_keys(root)
    runs = [
        RunState(name, run.method, run.dataset, run.seed, *_state(root, params, name, keys[name]))
        for name, run in params.runs.items()
    ]
    keys = reward_model_keys(root) if params.reward_models else {}
    return runs + [
        RunState(name, "reward model", made.dataset, made.seed, *_reward_state(root, params, name, keys[name]))
        for name, made in params.reward_models.items()
    ]


def run_keys(root: Path) -> dict[str, str | JudgefreeError]:
    """The key that each run of params.yaml has with settings, data and code as they are now, or why it has none yet: an
    input is missing or damaged. Raises JudgefreeError for parameters that are refused."""
    from judgefree.training.run import read_job  # torch takes seconds to import

    return _keys(root, checked(root / "params.yaml").runs, lambda name, view: read_job(name, view).key)


def reward_model_keys(root: Path) -> dict[str, str | JudgefreeError]:
    """The same of each entry of reward_models."""
    from judgefree.reward_training.build import read_job  # as does TRL

    return _keys(root, checked(root / "params.yaml").reward_models, lambda name, view: read_job(name, view).key)


def _keys(root: Path, names: Iterable[str], key_of: Callable[[str, Path], str]) -> dict[str, str | JudgefreeError]:
    keys: dict[str, str | JudgefreeError] = {}
    with _resolved_now(root) as view:
        for name in names:
            try:
                keys[name] = key_of(name, view)
            except JudgefreeError as error:
                keys[name] = JudgefreeError(error.problem.replace(str(view), str(root)), error.fix)
    return keys


@contextmanager
def _resolved_now(root: Path) -> Iterator[Path]:
    """The project seen through links, with a resolved/ made from params.yaml as it is now. DVC's own may be older, and a
    stage may be reading it at this moment."""
    with tempfile.TemporaryDirectory() as place:
        for entry in root.iterdir():
            if entry.name not in ("resolved", ".work"):
                (Path(place) / entry.name).symlink_to(entry.absolute())
        write_resolved(Path(place))
        yield Path(place)


def _state(root: Path, params: Params, name: str, key: str | JudgefreeError) -> tuple[str, str]:
    model = read_model(root, name) if (root / "models" / name / MANIFEST).is_file() else None
    if isinstance(key, JudgefreeError):
        run = params.runs[name]
        return _waits(root, model, key, [run.start_from, *models_of(run, root)], run.dataset)
    if model is None or model.key != key:
        before = "stale" if model else "not started"
        reached = last_step(root / ".work" / "train" / key)
        if reached:
            return "in progress", f"step {reached} of {params.training_of(name).steps}" + (
                ", replaces a stale model" if model else ""
            )
        return before, "" if model is None else _CHANGED
    if model.status == "collapsed":
        return "collapsed", f"step {model.selected_step} is published"
    reports, settings = reports_of(root, name), params.model_dump(mode="json", exclude_none=True)["suites"]
    missing = [suite for suite in params.runs[name].suites
               if suite not in reports or reports[suite]["suite"] != settings[suite]]  # fmt: skip
    if missing:
        return "trained", f"step {model.selected_step}, not evaluated on {', '.join(missing)}"
    return "evaluated", f"step {model.selected_step}"


def _reward_state(root: Path, params: Params, name: str, key: str | JudgefreeError) -> tuple[str, str]:
    model = read_model(root, name) if (root / "models" / name / MANIFEST).is_file() else None
    if isinstance(key, JudgefreeError):
        made = params.reward_models[name]
        return _waits(root, model, key, dict.fromkeys([made.start_from, made.value_fit.policy]), made.dataset)
    if model is None or model.key != key:
        if (root / ".work" / "reward_model" / key).is_dir():
            return "in progress", "" if model is None else "replaces a stale model"
        return ("stale", _CHANGED) if model else ("not started", "")
    judged, report = params.reward_benchmarks, root / "reports" / "reward-bench" / name / MANIFEST
    if judged is None or name not in judged.models:
        return "trained", ""
    content = judged_sha256(read_json(root / "models" / name / MANIFEST)["files"])
    now = {"model_sha256": content, **conditions(judged, params.threads)}
    if report.is_file() and now.items() <= read_json(report).items():
        return "evaluated", ""
    return "trained", "not judged by the reward benchmarks as they are now"


_CHANGED = "its settings, inputs or code have changed; `dvc repro` trains it again"


def _waits(
    root: Path, model: ModelFacts | None, why: JudgefreeError, models: Iterable[str], dataset: str
) -> tuple[str, str]:
    """The state of what has no key yet: nothing can be said but what it lacks."""
    needs = [part for part in (*(f"models/{one}" for one in models), f"data/{dataset}") if not (root / part).exists()]
    return ("stale" if model else "not started"), f"waits for {' and '.join(needs)}" if needs else why.problem


def last_step(work: Path) -> int:
    """The last step that a run in progress has logged; 0 where it did not begin."""
    path = work / "timings.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    whole = [line for line in lines if line.endswith("}")]  # a kill may have cut the last one
    return int(json.loads(whole[-1])["step"]) if whole else 0
