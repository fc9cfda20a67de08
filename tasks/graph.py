"""The stages of dvc.yaml in the order in which they can run, by the flow that runs them."""

from pathlib import Path

import networkx
from dvc.exceptions import DvcException
from dvc.repo import Repo

from judgefree.errors import JudgefreeError

PREPARE = ("resolve", "base", "prepare")
EVALUATE = (
    "pin", "evaluate_base", "evaluate", "evaluate_save", "pairwise", "alpaca_eval", "arena_hard", "reward_bench", "compare",
)  # fmt: skip


def kind_of(stage: str) -> str:
    """prepare, train or evaluate, by the part of the name before `@`; whatever stands between the others trains."""
    head = stage.split("@")[0]
    return "prepare" if head in PREPARE else "evaluate" if head in EVALUATE else "train"


def stages(root: Path, kind: str) -> list[str]:
    """Names of all stages of a kind, each after those that it needs. Raises JudgefreeError when DVC refuses the graph."""
    try:
        with Repo(str(root)) as repo:
            graph = repo.index.graph  # an edge leads from a stage to one that it needs
            order = [stage.name for stage in networkx.dfs_postorder_nodes(graph)]
    except DvcException as error:
        raise JudgefreeError(f"DVC cannot read the build graph of {root}: {error}", "mend dvc.yaml or params.yaml; "
                             "`dvc dag` shows the graph") from error  # fmt: skip
    return [name for name in order if kind_of(name) == kind]
