"""One optimizer step of a reward model, from the gradient of a loss by its scores.

A loss couples all responses of a prompt, and a backbone cannot hold them all at once. So the scores are read first without
gradient, the loss is differentiated by them, and a second pass carries that gradient into the weights, in batches, for the
rows alone whose gradient is not 0. The result is that of one large pass, since nothing between the two passes changes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import reduce
from torch import Tensor

from judgefree.reward_model.model import ValueAnchoredRewardModel
from judgefree.reward_model.scoring import token_batches

WEIGHTS, MOMENTS = "reward_model/", "reward_optimizer/"


class Learner:
    """learning_rate: of backbone and reward head; value_learning_rate: of the value head; batch_tokens: of one pass, padding
    included. The optimizer is AdamW without weight decay.

    Several processes hold one model each and add up their gradients, so each divides its losses by counts of all of them;
    all must call `apply` equally often.
    """

    def __init__(
        self, model: ValueAnchoredRewardModel, learning_rate: float, value_learning_rate: float, batch_tokens: int
    ) -> None:
        self.model = model
        self.batch_tokens = batch_tokens
        self.updates = 0  # t of the curriculum
        self.bad_updates = 0
        self._moved = [False, False]  # whether each group of the optimizer, in its order, has a gradient here
        self.optimizer = torch.optim.AdamW(
            [
                {"params": list(model.classifier.parameters()), "lr": learning_rate},
                {"params": list(model.value_head.parameters()), "lr": value_learning_rate},
            ],
            weight_decay=0.0,
        )

    def rewards(self, rows: Sequence[list[int]]) -> list[float]:
        return self.model.read(self.model.rewards, rows, self.batch_tokens)

    def values(self, prompts: Sequence[list[int]]) -> list[float]:
        return self.model.read(self.model.values, prompts, self.batch_tokens)

    def carry_rewards(self, rows: Sequence[list[int]], gradients: Tensor) -> None:
        """Add to the weights' gradient, by the chain rule, that of a loss whose derivative by the rows' rewards is given,
        (rows,)."""
        self._moved[0] |= self._carry(self.model.rewards, rows, gradients)

    def carry_values(self, prompts: Sequence[list[int]], gradients: Tensor) -> None:
        """The same for values, which move the value head alone."""
        self._moved[1] |= self._carry(self.model.values, prompts, gradients)

    def _carry(self, head: Any, rows: Sequence[list[int]], gradients: Tensor) -> bool:
        """Whether any row had a gradient."""
        moving = [i for i, gradient in enumerate(gradients.tolist()) if gradient != 0.0]
        for batch in token_batches([len(rows[i]) for i in moving], self.batch_tokens):
            members = [moving[place] for place in batch]
            scores = head([rows[i] for i in members])
            (scores * gradients[members].to(scores.device)).sum().backward()
        return bool(moving)

    def apply(self) -> bool:
        """Step by what was carried here and in all other processes; False where that is not finite: nothing changes then,
        but the counts. A part that no process carried a gradient to stays as it is: its moments alone would move it."""
        moved = reduce(torch.tensor(self._moved, dtype=torch.float32, device=self.model.device), reduction="sum")
        finite = True
        for group, processes in zip(self.optimizer.param_groups, moved.tolist(), strict=True):
            if not processes:
                continue
            for parameter in group["params"]:  # all of them: another process may have a gradient where we have none
                own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = reduce(own, reduction="sum")
                finite &= bool(torch.isfinite(parameter.grad).all())
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._moved = [False, False]
        self.updates += 1
        self.bad_updates += not finite
        return finite

    def state_dict(self) -> dict[str, Any]:
        """Weights, heads, the optimizer's moments and the counts: JSON values and tensors, flat."""
        state: dict[str, Any] = {"updates": self.updates, "bad_updates": self.bad_updates}
        state |= {WEIGHTS + name: value.detach().cpu() for name, value in self.model.named_parameters()}
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for parameter, moments in self.optimizer.state.items():
            state |= {f"{MOMENTS}{names[parameter]}/{key}": value.cpu() for key, value in moments.items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state of `state_dict`; of an empty one nothing."""
        if not state:
            return
        self.updates, self.bad_updates = state["updates"], state["bad_updates"]
        load_weights(self.model, state)
        for name, parameter in self.model.named_parameters():
            place = f"{MOMENTS}{name}/"
            own = {key.removeprefix(place): value for key, value in state.items() if key.startswith(place)}
            for key, value in own.items():  # the count of steps stays on the CPU, as AdamW keeps it
                self.optimizer.state[parameter][key] = value.clone() if key == "step" else value.to(parameter)


def load_weights(model: ValueAnchoredRewardModel, state: dict[str, Any]) -> None:
    """The weights that a learner's state holds."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(state[WEIGHTS + name])
