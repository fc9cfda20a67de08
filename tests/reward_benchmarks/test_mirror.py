"""The real data that a mirror holds, by the rulers, against figures computed from the raw files alone."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from judgefree.config_rewards import Place, RewardBenchmarks
from judgefree.reward_benchmarks.rulers import length
from judgefree.reward_benchmarks.run import run_benchmarks

pytestmark = pytest.mark.skipif(
    "JUDGEFREE_MIRROR" not in os.environ, reason="JUDGEFREE_MIRROR names no mirror of real data"
)


def test_real_sets_end_to_end() -> None:
    mirror = Path(os.environ["JUDGEFREE_MIRROR"])
    settings = RewardBenchmarks(
        max_tokens=1, tokens_per_batch=1, device="cpu", precision="fp32", seed=0, partial=True,
        sets={name: Place() for name in ("rm_bench", "judge_bench", "llmbar", "xstest")},
    )  # fmt: skip
    tables, metrics = run_benchmarks(length, settings, Path())
    assert {name: len(table) for name, table in tables.items()} == {
        "rm_bench": 798,
        "judge_bench": 350,
        "llmbar": 419,
        "xstest": 424,
    }

    rows = [json.loads(line) for line in next((mirror / "judgebench").glob("*.jsonl")).read_text().split("\n") if line]
    right = sum((len(r["response_A"]) > len(r["response_B"])) if r["label"] == "A>B" else
                (len(r["response_B"]) > len(r["response_A"])) for r in rows)  # fmt: skip
    assert metrics["reward_bench/judge_bench/overall"] == pytest.approx(right / 350)
    assert metrics["reward_bench/judge_bench/overall_se"] == pytest.approx(
        (right / 350 * (1 - right / 350) / 350) ** 0.5
    )

    safety = [row for name in ("refuse", "response")
              for row in json.loads((mirror / "rm-bench" / f"safety-{name}_filtered.json").read_text())]  # fmt: skip
    matrix = np.mean(
        [[[len(c) > len(r) for r in row["rejected"]] for c in row["chosen"]] for row in safety], axis=0
    )  # fmt: skip
    assert metrics["reward_bench/rm_bench/section/safety/hard"] == pytest.approx(matrix[np.triu_indices(3, 1)].mean())
    assert metrics["reward_bench/rm_bench/section/safety/normal"] == pytest.approx(np.diag(matrix).mean())
    assert metrics["reward_bench/rm_bench/section/safety/easy"] == pytest.approx(matrix[np.tril_indices(3, -1)].mean())
    assert "reward_bench/rm_bench/overall" not in metrics  # the mirror has no mathematics
    assert metrics["reward_bench/xstest/excluded"] == 26
