"""The section `reward_benchmarks` of params.yaml: how reward models are judged, and by which sets of pairs."""

from typing import Final, Literal

from pydantic import model_validator

from judgefree.config import Count, Seed, Share, Strict
from judgefree.config_benchmarks import Nothing
from judgefree.pinned import require_commit

HELD_OUT: Final = "held_out_pairs"
SetName = Literal[
    "held_out_pairs", "reward_bench", "reward_bench_2", "rm_bench", "ppe_preference", "ppe_mmlu_pro", "ppe_math", "ppe_gpqa",
    "ppe_ifeval", "ppe_mbpp_plus", "judge_bench", "judge_bench_claude", "llmbar", "xstest",
]  # fmt: skip


class Place(Strict):
    """Where a set is read from: a repository of the hub at a commit, or a folder in its layout; where JUDGEFREE_MIRROR
    is set, it goes before the hub, and a set without id is read from nowhere else. dataset: of held_out_pairs, the data set
    of this project whose pairs they are."""

    id: str | None = None
    revision: str | None = None
    dataset: str | None = None

    @model_validator(mode="after")
    def _pinned(self) -> "Place":
        if self.id is not None:
            require_commit("revision", self.id, self.revision)
        return self


class RewardBenchmarks(Strict):
    """max_tokens: longer conversations are cut. tokens_per_batch: rows times longest row. seed: of the random ruler.
    partial: sets with fewer rows than were published, or without some of their subsets, are scored by what is there;
    without it they are refused. models: the entries of reward_models and save_runs that are judged, each with an empty
    mapping (DVC lays mappings over its defaults, not lists)."""

    models: dict[str, Nothing] = {}
    max_tokens: Count
    tokens_per_batch: Count
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["fp32", "bf16"]
    seed: Seed
    partial: Literal[True] | None = None
    sets: dict[SetName, Place]

    @model_validator(mode="after")
    def _some(self) -> "RewardBenchmarks":
        if not self.sets:
            raise ValueError("sets: none named; add one, or remove the section")
        for name, place in self.sets.items():
            if (name == HELD_OUT) != (place.dataset is not None):
                raise ValueError(f"sets.{name}: dataset is given exactly for {HELD_OUT}; add or remove it")
            if place.dataset is not None and (place.id or place.revision):
                raise ValueError(f"sets.{name}: its pairs are those of {place.dataset}; remove id and revision")
        return self


def reward_model_name(task: str) -> str:
    """What the registered model of a data set's reward models, and the verdicts on them, are called."""
    return f"{task}-reward-model"


class RewardGates(Strict):
    """When a reward model becomes champion of its data set (registry/reward_gate.py).

    rank_by: the set of reward_benchmarks by which the candidate is chosen and compared, prompt by prompt; margin: how far
    above zero the lower bound of the difference must lie; min_items: prompts of that set; max_fall: by how much the own
    score of any benchmark, that of rank_by included, may fall.
    """

    rank_by: Literal[
        "held_out_pairs", "reward_bench", "reward_bench_2", "rm_bench", "ppe_preference", "judge_bench",
        "judge_bench_claude", "llmbar", "xstest",
    ]  # fmt: skip
    margin: Share
    min_items: Count
    max_fall: Share
