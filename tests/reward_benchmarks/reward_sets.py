"""Rows of every benchmark in the columns of the hub, made up, and the files that hold them there."""

from typing import Any

from judgefree.reward_benchmarks.published import PPE_CORRECTNESS, ROWS

Rows = list[dict[str, Any]]


def pair(subset: str, identity: int, chosen: str = "good", rejected: str = "bad") -> dict[str, Any]:
    return {"prompt": f"{subset} {identity}?", "chosen": chosen, "chosen_model": "x", "rejected": rejected,
            "rejected_model": "y", "subset": subset, "id": identity}  # fmt: skip


def reward_bench() -> Rows:
    return [pair(subset, i) for subset in ROWS["reward_bench"] for i in range(2)]


def best_of_four(subset: str, identity: str, chosen: list[str], rejected: list[str]) -> dict[str, Any]:
    return {"id": identity, "prompt": f"{subset} {identity}?", "chosen": chosen, "rejected": rejected,
            "num_correct": len(chosen), "num_incorrect": len(rejected), "total_completions": len(chosen + rejected),
            "subset": subset}  # fmt: skip


def reward_bench_2() -> Rows:
    rows = [best_of_four(subset, str(i), ["good"], ["a", "bb", "ccc"])
            for subset in ("Factuality", "Precise IF", "Math", "Safety", "Focus") for i in range(2)]  # fmt: skip
    for k in range(2):
        rows += [
            best_of_four("Ties", f"ref:{k}", ["red"], ["hat"]),
            best_of_four("Ties", f"tied:{k}", ["red", "blue"], ["hat"]),
        ]
    return rows


def rm_bench() -> Rows:
    domains = ("chat", "code", "math", "safety-refuse", "safety-response")
    return [{"id": f"{i}", "prompt": f"{domain} {i}?", "chosen": ["g", "gg", "ggg"], "rejected": ["b", "bb", "bbb"],
             "domain": domain} for domain in domains for i in range(2)]  # fmt: skip


def ppe_preference() -> Rows:
    return [{"question_id": f"q{i}", "prompt": f"{i}?", "response_1": "first", "response_2": "second one", "winner": winner,
             "language": "English"} for i, winner in enumerate(["model_a", "model_b", "tie", "tie (bothbad)"])]  # fmt: skip


def best_of_k(identity: int, pairs: list[list[int]]) -> dict[str, Any]:
    """Four responses of 1 to 4 characters, of which the second and fourth are right."""
    return {"question_id": identity, "model_name": "m", "prompt": f"{identity}?", "scores": [False, True, False, True],
            **{f"response_{i}": "r" * i for i in range(1, 5)}, "mean_score": 0.5,
            "sampled_conflict_pairs": pairs}  # fmt: skip


def judge_bench() -> Rows:
    sources = ("mmlu-pro-law", "livebench-reasoning", "livebench-math", "livecodebench")
    return [{"pair_id": f"{source} {i}", "original_id": "1", "source": source, "question": f"{source} {i}?",
             "response_model": "m", "response_A": "first", "response_B": "second one", "label": ("A>B", "B>A")[i]}
            for source in sources for i in range(2)]  # fmt: skip


FILES: dict[str, tuple[str, Rows]] = {
    "reward_bench": ("data/filtered-00000-of-00001.parquet", reward_bench()),
    "reward_bench_2": ("data/test-00000-of-00001.parquet", reward_bench_2()),
    "rm_bench": ("total_dataset.json", rm_bench()),
    "ppe_preference": ("data/test-00000-of-00001.parquet", ppe_preference()),
    **{
        name: ("data/train-00000-of-00001.parquet", [best_of_k(1, [[0, 1], [3, 2]]), best_of_k(2, [])])
        for name in PPE_CORRECTNESS
    },
    "judge_bench": ("data/gpt-00000-of-00001.parquet", judge_bench()),
}
