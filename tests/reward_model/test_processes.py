"""Several processes hold one reward model each: after every step all are the same, and those of one process alone."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from rewards_world import reward_model
from two_learners import EXAMPLES, PROMPT, Given, states

from judgefree.episodes import Prompt
from judgefree.reward_model.learner import MOMENTS
from judgefree.reward_model.model import answered, messages, save_reward_model

HERE = Path(__file__).parent
PATHS = os.pathsep.join(map(str, (HERE, HERE.parent / "training", HERE.parents[1] / "src")))
LAUNCH = "import sys; from judgefree.training.launch import run_ranks; sys.exit(run_ranks(sys.argv[1:], 2))"


def judge_folder(policy: Path, folder: Path) -> Path:
    """A reward model whose values lie amid its rewards of the given responses, so that both signs occur."""
    model = reward_model(policy)
    groups = Given().sample([Prompt([3], (example.id, "attempt", 0)) for example in EXAMPLES], 4)
    rows = [model.encode(answered(messages(PROMPT, example.question), one.text))[0]
            for example, group in zip(EXAMPLES, groups, strict=True) for one in group]  # fmt: skip
    rewards = torch.tensor(model.read(model.rewards, rows, 999))
    with torch.no_grad():
        model.value_head.weight.zero_()
        model.value_head.bias.fill_(rewards.median())
    save_reward_model(model, folder)
    return folder


def test_two_processes_keep_one_reward_model(policy: Path, tmp_path: Path) -> None:
    judge = judge_folder(policy, tmp_path / "judge")
    words = [sys.executable, str(HERE / "two_learners.py"), str(judge), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", LAUNCH, *words], env=environment, check=True)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys() and one["updates"] > 0 == one["bad_updates"]
        assert all(torch.equal(torch.as_tensor(one[key]), torch.as_tensor(other[key])) for key in one)
    # The moments after one step are the gradient's; weights are not compared, since AdamW makes steps of rounding errors.
    (alone,) = states(judge, 1)
    moments = [key for key in alone if key.startswith(MOMENTS) and key.endswith("exp_avg")]
    assert len(moments) == sum(not key.startswith(MOMENTS) for key in alone) - 2  # of all weights
    largest = max(float(alone[key].abs().max()) for key in moments)
    assert largest > 0
    for key in moments:
        assert torch.allclose(first[0][key], alone[key], rtol=1e-4, atol=1e-6 * largest), key
    assert any(float(alone[key].abs().max()) > 0 for key in moments if "value_head" not in key)
