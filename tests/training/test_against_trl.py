"""RLVR's gradient equals that of TRL's own GRPOTrainer on the same rollout, over several optimizer steps."""

from pathlib import Path

import pytest
from harness import ours, relative_difference, theirs
from world import group_rewards, make_turns, training


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize(
    ("aggregation", "ratio", "kl_weight"),
    [("dapo", "token", 0.0), ("dapo", "token", 0.1), ("grpo", "token", 0.1), ("grpo", "sequence", 0.0),
     ("bnpo", "token", 0.1), ("dr_grpo", "token", 0.0)],
)  # fmt: skip
def test_gradient_equals_trl(
    tiny: Path, tmp_path: Path, aggregation: str, ratio: str, kl_weight: float, micro_batches: int
) -> None:
    settings = training(
        micro_batches=micro_batches, steps=3, save_every=3,
        loss={"aggregation": aggregation, "ratio": ratio, "kl_weight": kl_weight},
    )  # fmt: skip
    turns = make_turns()
    rewards = [reward for group in range(4) for reward in group_rewards(group, 4, (1,))]
    mine, _ = ours(tiny, tmp_path / "ours", settings, make_turns)
    reference = theirs(tiny, tmp_path / "theirs", settings, turns, rewards)
    assert len(mine) == len(reference) == 3
    for step, (one, other) in enumerate(zip(mine, reference, strict=True)):
        assert relative_difference(one, other) < 1e-5, f"step {step}"
