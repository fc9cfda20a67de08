"""What has a registered model, and under which name. Nothing here imports MLflow."""

from typing import Literal

from judgefree.params import Params

Kind = Literal["policies", "reward-models"]


def registered(params: Params) -> list[tuple[Kind, str]]:
    """Policies by the data sets that a suite tests; reward models, where there are gates for them, by the data sets of those
    that are judged."""
    tested = {suite.dataset for suite in params.suites.values()}
    policies = {run.dataset for run in params.runs.values()} & tested
    judged = params.reward_benchmarks.models if params.reward_benchmarks and params.reward_gates else {}
    rewards = {reward_dataset(params, name) for name in judged}
    return [*(("policies", name) for name in sorted(policies)), *(("reward-models", name) for name in sorted(rewards))]


def untested_runs(params: Params, task: str) -> list[str]:
    """The runs on a data set that no suite tests, so that none of them can be registered."""
    tested = any(suite.dataset == task for suite in params.suites.values())
    return [] if tested else [name for name, run in params.runs.items() if run.dataset == task]


def reward_dataset(params: Params, name: str) -> str:
    """The data set that a reward model, an entry of reward_models or of save_runs, was trained on."""
    return (params.reward_models.get(name) or params.runs[name]).dataset
