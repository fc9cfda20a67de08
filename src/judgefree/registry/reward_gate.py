"""The gate of reward models: is a candidate better than what stands by the prompts of one benchmark, without cost in any
benchmark's own figures, and better than what anyone can score by without reading? Pure; the decision itself is gate.py's.

What stands is the champion, or where there is none the best ruler.
"""

import pandas as pd

from judgefree.config import Compare
from judgefree.config_rewards import RewardGates
from judgefree.errors import JudgefreeError
from judgefree.registry.gate import Guard, Judgement, Report, compared
from judgefree.reward_benchmarks.rulers import rulers

RULERS = tuple(rulers(0))
_WHOLE = ("overall", "mean_of_", "share_of_")  # a benchmark's figure of its own, by what is there of it


def prompt_scores(items: pd.DataFrame, by: str = "") -> pd.Series:
    """Share of right outcomes of each prompt, which is no more evidence for having several items; by: a ruler, or the reward
    model."""
    return items.groupby("group")[f"outcome_{by}" if by else "outcome"].mean()


def best_ruler(items: pd.DataFrame) -> str:
    return max(RULERS, key=lambda ruler: float(prompt_scores(items, ruler).mean()))


def judge_rewards(
    candidate: Report, champion: Report | None, gates: RewardGates, compare: Compare, choices: int = 1
) -> Judgement:
    """Compare reports on reward models: the rows of gates.rank_by, and the metrics of all benchmarks.

    choices: how many models the candidate is the best of by these very rows; the interval is as much surer as keeps the
    chance of a wrong promotion (Bonferroni), and as many times more resamples reach into its tails. Raises JudgefreeError
    for rows that are not the same.
    """
    new = prompt_scores(candidate.items)
    old = prompt_scores(champion.items) if champion else prompt_scores(candidate.items, best_ruler(candidate.items))
    if not new.index.equals(old.index):
        raise JudgefreeError(
            f"candidate and champion were judged by different prompts of {gates.rank_by}", "run `dvc repro`"
        )
    beaten = {ruler: float(prompt_scores(candidate.items, ruler).mean()) for ruler in RULERS}
    own = float(new.mean())
    guards = [Guard(f"ruler {ruler}", own, score, score - own, 0.0, strict=True) for ruler, score in beaten.items()]
    if champion:
        guards += _falls(candidate, champion, gates)
    surer = compare.model_copy(
        update={"confidence": 1 - (1 - compare.confidence) / choices, "resamples": compare.resamples * choices}
    )
    return compared(gates.rank_by, new.to_numpy(), old.to_numpy(), guards, gates, surer)


def _falls(candidate: Report, champion: Report, gates: RewardGates) -> list[Guard]:
    """The own figures of all benchmarks, which both reports have: those of rank_by as well, since they may weigh sections
    where the prompts that decide are all alike. A fall of just max_fall is no more than that."""
    names = [name for name in candidate.metrics if _is_whole(name)]
    both = [(name, candidate.metrics[name], champion.metrics[name]) for name in names]
    return [Guard(name, new, old, round(old - new, 12), gates.max_fall) for name, new, old in both]


def _is_whole(name: str) -> bool:
    parts = name.split("/")
    return parts[0] == "reward_bench" and len(parts) == 3 and parts[2].startswith(_WHOLE) and not name.endswith("_se")
