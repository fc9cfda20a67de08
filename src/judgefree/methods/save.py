"""SAVE: a reward model that learns from the policy it scores, while the policy learns from it (arXiv 2605.30888).

Each rollout: G responses to every prompt; the reward model keeps those it is sure of, |R - V| >= logit(mu(t)), and takes
them for good (R >= V) or bad; it takes one step on L_R and L_V; the same responses are scored and filtered again, and the
policy learns from those kept, by GRPO, RLOO (`training.advantage`) or GSPO (`training.loss.ratio: sequence`). papers.md
section 3; reward_model/losses.py and feedback.py hold the mathematics.

Baselines are settings: `update: frozen` (the initial reward model, or an improved one that is used again), `bt_offline`
(goes on with Bradley-Terry on the pairs that the reward model came with), `hl_bt` (a group's highest against its lowest
reward), `anchor: mean_reward` (the group's mean for V), no `m0` (no curriculum), `policy: frozen`. Only
`update: save` filters.

Where the paper is silent: advantages are of the kept responses alone, and a group with fewer than two is not learnt from; a
response that is not kept has no KL term either; a response that was cut off at the length limit
takes no part in the reward model's step (the paper drops those above 1,024 tokens, its limit). True quality, where an
example has a gold answer, is measured and never learnt from.

State between steps: the reward model's weights and heads, its optimizer's moments, the number of its updates.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from judgefree.config import Count, Positive, Share, Strict
from judgefree.episodes import Method

if TYPE_CHECKING:
    from judgefree.methods import Setting


class Alarms(Strict):
    """Limits whose breach is told: how far the reward may go with length, and with words taken from the prompt (absolute
    correlations); |mean V - mean R|; 1 - correlation with the reward model that the run began with."""

    length_correlation: Share
    prompt_correlation: Share
    anchor_gap: Positive
    drift: Annotated[float, Field(gt=0, le=2)]


class Options(Strict):
    """reward_model: a name in models/, an entry of reward_models or a run of this method. m0: how strict the filter is at
    first; None: no curriculum. batch_tokens: of one pass of the reward model, padding included. watch_drift: keep the
    first reward model beside, to compare with."""

    reward_model: str
    update: Literal["save", "hl_bt", "bt_offline", "frozen"]
    anchor: Literal["value", "mean_reward"] | None = None
    m0: Annotated[float, Field(gt=0, lt=1)] | None = None
    learning_rate: Positive | None = None
    value_learning_rate: Positive | None = None
    value_weight: Positive | None = None
    pairs_per_step: Count | None = None
    batch_tokens: Count
    policy: Literal["frozen"] | None = None
    watch_drift: Literal[True] | None = None
    alarms: Alarms | None = None

    @model_validator(mode="after")
    def _fits(self) -> "Options":
        save = self.update == "save"
        valued = save and self.anchor == "value"
        if save and self.anchor is None:
            raise ValueError("update: save has an anchor; add anchor: value or anchor: mean_reward")
        wanted = {"anchor": save, "learning_rate": self.update != "frozen", "value_learning_rate": valued,
                  "value_weight": valued, "pairs_per_step": self.update == "bt_offline"}  # fmt: skip
        given = {name: getattr(self, name) is not None for name in wanted}
        changes = [f"{'add' if want else 'remove'} {name}" for name, want in wanted.items() if want != given[name]]
        if self.m0 is not None and not save:
            changes.append("remove m0, since nothing is filtered")
        if changes:
            kind = f"update: {self.update}" + (f" with anchor: {self.anchor}" if save else "")
            raise ValueError(f"{kind} has other options; {', '.join(changes)}")
        if self.alarms and not self.watch_drift:
            raise ValueError("alarms.drift needs the first reward model; add watch_drift: true")
        return self


def make(options: Options, setting: "Setting") -> Method:
    from judgefree.reward_model.cotraining import Save  # torch takes seconds to import; settings are checked without

    return Save(options, setting)


def export(state: dict[str, Any], options: Options, models: Mapping[str, Path], target: Path) -> None:
    """The reward model of a checkpoint's state, in a folder of its own below `target`."""
    from judgefree.reward_model.cotraining import export as write

    write(state, models[options.reward_model], target)
