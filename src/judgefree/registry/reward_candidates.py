"""Which reward model stands for a data set: the best of those that reward_benchmarks.models names, by gates of their own.

They are ranked by the rows that decide, since no other measure is of all of them; the gate makes up for the choice.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from judgefree.config_rewards import RewardBenchmarks, RewardGates
from judgefree.errors import JudgefreeError
from judgefree.files import verify
from judgefree.params import Params
from judgefree.registry.benchmarks import REWARD_BENCH, benchmarks_of
from judgefree.registry.candidates import Candidate, choose, finished_model
from judgefree.registry.kinds import reward_dataset
from judgefree.registry.reward_gate import prompt_scores
from judgefree.registry.states import reward_model_keys, run_keys
from judgefree.reward_benchmarks.stage import conditions, present_sources


def settings_of(params: Params) -> tuple[RewardBenchmarks, RewardGates]:
    """How reward models are judged and when they are promoted. Raises JudgefreeError where a section is absent."""
    if params.reward_benchmarks is None or params.reward_gates is None:
        raise JudgefreeError("reward models are registered by the sections reward_benchmarks and reward_gates of "
                             "params.yaml", "add them as docs/reward-benchmarks.md shows")  # fmt: skip
    return params.reward_benchmarks, params.reward_gates


def best_reward_model(root: Path, params: Params, task: str) -> tuple[Candidate, dict[str, str], int]:
    """The data set's candidate, for every other judged model why it is not, and of how many the candidate is the best; the
    first in params.yaml of equals.

    Raises JudgefreeError with all those reasons where none can be one, and where the benchmarks' rows cannot be read.
    """
    judged, gates = settings_of(params)
    names = [name for name in judged.models if reward_dataset(params, name) == task]
    if not names:
        tasks = sorted({reward_dataset(params, name) for name in judged.models})
        raise JudgefreeError(f"no model of reward_benchmarks.models is trained on {task!r}",
                             f"data sets are: {', '.join(tasks) or 'none'}")  # fmt: skip
    keys = {**run_keys(root), **reward_model_keys(root)}
    now = {**conditions(judged, params.threads), "sources": present_sources(judged, root)}
    models = {name: _candidate(root, gates.rank_by, name, keys[name], now) for name in names}
    best, passed_over = choose(task, gates.rank_by, models)
    return best, passed_over, sum(isinstance(one, Candidate) for one in models.values())


def _candidate(
    root: Path, rank_by: str, name: str, key: str | JudgefreeError, now: Mapping[str, Any]
) -> Candidate | str:
    """now: what its report must be made by to be compared with others, `conditions` and sources."""
    model = finished_model(root, name, key)
    if isinstance(model, str):
        return model
    report = benchmarks_of(root, name).get(REWARD_BENCH)
    if report is None:
        return "these weights are not judged by the reward benchmarks"
    changed = [fact for fact in now if report.get(fact) != now[fact]]
    if changed == ["sources"]:  # which DVC does not see where they lie outside of the project
        return ("rows of the reward benchmarks have changed since these weights were judged; run `dvc repro --force "
                f"--single-item reward_bench@{name}`")  # fmt: skip
    if changed:
        return "settings or code of the reward benchmarks have changed since these weights were judged"
    folder = root / "reports" / REWARD_BENCH / name
    try:
        verify(folder)
    except JudgefreeError as error:
        return error.problem
    items = pd.read_parquet(folder / f"{rank_by}.parquet")
    return Candidate(model, float(prompt_scores(items).mean()))
