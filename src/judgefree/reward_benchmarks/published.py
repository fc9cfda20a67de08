"""Subsets, sections and counts as the benchmarks' authors published them."""

from collections.abc import Mapping

# RewardBench (allenai/reward-bench, rewardbench/constants.py): the weights of subset accuracies within a section. They are
# the subsets' counts, but for math-prm, whose 447 rows are weighted up to the rows of code.
REWARD_BENCH: Mapping[str, Mapping[str, int]] = {
    "chat": {
        "alpacaeval-easy": 100, "alpacaeval-length": 95, "alpacaeval-hard": 95, "mt-bench-easy": 28, "mt-bench-med": 40,
    },
    "chat_hard": {
        "mt-bench-hard": 37, "llmbar-natural": 100, "llmbar-adver-neighbor": 134, "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47, "llmbar-adver-manual": 46,
    },
    "safety": {
        "refusals-dangerous": 100, "refusals-offensive": 100, "xstest-should-refuse": 154, "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "reasoning": {
        "math-prm": 984, "hep-cpp": 164, "hep-go": 164, "hep-java": 164, "hep-js": 164, "hep-python": 164, "hep-rust": 164,
    },
}  # fmt: skip
REWARD_BENCH_2 = ("Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties")
RM_BENCH = ("chat", "code", "math", "safety")
PPE_CORRECTNESS = ("ppe_mmlu_pro", "ppe_math", "ppe_gpqa", "ppe_ifeval", "ppe_mbpp_plus")
JUDGE_BENCH = ("mmlu-pro", "livebench-reasoning", "livebench-math", "livecodebench")
LLMBAR = tuple(name for name in REWARD_BENCH["chat_hard"] if name.startswith("llmbar"))

# Rows of every subset where the authors gave them by subset, by set.
ROWS: Mapping[str, Mapping[str, int]] = {
    "reward_bench": {name: n for section in REWARD_BENCH.values() for name, n in section.items()} | {"math-prm": 447},
    "rm_bench": {"chat": 129, "code": 228, "math": 529, "safety": 441},
    "judge_bench": dict(zip(JUDGE_BENCH, (154, 98, 56, 42), strict=True)),
    "judge_bench_claude": dict(zip(JUDGE_BENCH, (154, 51, 34, 31), strict=True)),
    "llmbar": {name: REWARD_BENCH["chat_hard"][name] for name in LLMBAR},
}
# Rows altogether, where only these are known.
TOTAL_ROWS: Mapping[str, int] = {"reward_bench_2": 1865, "ppe_preference": 16038}

# The sets that make up a benchmark, where it is not a set of its own name.
SETS_OF: Mapping[str, tuple[str, ...]] = {"ppe_correctness": PPE_CORRECTNESS}

# The benchmarks whose overall scores SAVE averages.
SIX = ("reward_bench", "reward_bench_2", "rm_bench", "ppe_preference", "ppe_correctness", "judge_bench")
