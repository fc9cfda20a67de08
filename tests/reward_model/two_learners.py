"""Run by test_processes.py, once a rank: the reward model of each process after rollouts that the processes share."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from world import training

from judgefree.config import PromptFormat
from judgefree.episodes import Completion, Example, Prompt
from judgefree.methods import Setting
from judgefree.methods.save import Options
from judgefree.reward_model.cotraining import Save

OPTIONS = Options.model_validate({
    "reward_model": "judge", "update": "save", "anchor": "value", "learning_rate": 1e-3, "value_learning_rate": 1e-2,
    "value_weight": 1.0, "batch_tokens": 200,
})  # fmt: skip
PROMPT = PromptFormat(template="{question}", chat=True, answer="marker")
EXAMPLES = [Example(f"e{i}", f"{i} + {i + 2} = ?") for i in range(4)]
CUT = "e3"  # all of its responses are cut off, so that the processes have unequal shares of the reward model's step


class Given:
    """A policy whose responses are given."""

    def encode(self, question: str) -> list[int]:
        return [3]

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        return [[self._say(str(prompt.key[0]), i) for i in range(n)] for prompt in prompts]

    def _say(self, example: str, place: int) -> Completion:
        start = int(example[1:])
        text = "sure " * (place % 3) + f"{start} + {start + 2} = {start + place}\n#### {start + place}"
        return Completion([place + 3, 1], text, "length" if example == CUT else "stop")

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(gather_object(list(values)))


def states(judge: Path, rollouts: int) -> list[dict[str, Any]]:
    """The state of this process's reward model after each rollout, of which it plays its share of the examples."""
    processes = PartialState(cpu=True)
    share = len(EXAMPLES) // processes.num_processes
    mine = EXAMPLES[share * processes.process_index :][:share]
    none: Any = None  # no example has a gold answer, so nothing is graded
    save = Save(OPTIONS, Setting(training(), PROMPT, none, 0, models={"judge": judge}))
    found = []
    for _ in range(rollouts):
        policy: Any = Given()
        save.play(mine, policy)
        found.append(
            {key: value.clone() if torch.is_tensor(value) else value for key, value in save.state_dict().items()}
        )
    return found


if __name__ == "__main__":
    judge, work = map(Path, sys.argv[1:])
    found = states(judge, 2)
    torch.save(found, work / f"{PartialState().process_index}.pt")
