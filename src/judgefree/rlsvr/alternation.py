"""Which side of a game is trained: the stages detection and performing, and when one follows the other (SpyRL, Eq. 11-12).

Hysteresis: with the moving means of detector accuracy and of the share of N/A votes,

    detection -> performing   accuracy >= accuracy_high and na <= na_low
    performing -> detection   1 - accuracy >= error_high or na >= na_high

after at least `min_stay` rollouts in a stage, and after `patience` of them anyway. The means are exponential ones over all
rollouts, m <- decay * m + (1 - decay) * x divided by 1 - decay^t so that they do not start near 0. They are kept divided, as
m <- m + w (x - m) with w = (1 - decay) / (1 - decay^t), which is the same and leaves a constant as it is.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from judgefree.config import Count, Share, Strict

Stage = Literal["detection", "performing", "joint"]
Alternating = Literal["detection", "performing"]


class Hysteresis(Strict):
    """The paper's. start: the first stage. patience: absent, a stage whose threshold is out of reach never ends."""

    rule: Literal["hysteresis"]
    start: Alternating
    accuracy_high: Share
    na_low: Share
    error_high: Share
    na_high: Share
    decay: Annotated[float, Field(ge=0, lt=1)]
    min_stay: Count
    patience: Count | None = None

    @model_validator(mode="after")
    def _patient(self) -> "Hysteresis":
        if self.patience is not None and self.patience < self.min_stay:
            raise ValueError(f"patience ({self.patience}) is below min_stay ({self.min_stay}); raise it")
        return self


class Fixed(Strict):
    """Every stage lasts `cycle` rollouts (the released code: 1, detection first)."""

    rule: Literal["fixed"]
    start: Alternating
    cycle: Count


class Constant(Strict):
    """Ablations: both sides in every rollout, or one side only."""

    rule: Literal["joint", "performing", "detection"]


Schedule = Annotated[Hysteresis | Fixed | Constant, Field(discriminator="rule")]


class Alternation:
    """The stage that a rollout trains. `observe` is told what every rollout measured; all processes tell the same."""

    def __init__(self, schedule: Hysteresis | Fixed | Constant) -> None:
        self.schedule = schedule
        self.stage: Stage = schedule.rule if isinstance(schedule, Constant) else schedule.start
        self.stay = 0  # rollouts in this stage so far
        self.rollouts = 0
        self.means = {"accuracy": 0.0, "na": 0.0}  # moving means, of hysteresis only

    def observe(self, accuracy: float, na: float) -> bool:
        """Takes note of a rollout; whether the next one is of the other stage."""
        self.stay += 1
        self.rollouts += 1
        if isinstance(self.schedule, Constant):
            return False
        if isinstance(self.schedule, Hysteresis):
            decay = self.schedule.decay
            weight = (1 - decay) / (1 - decay**self.rollouts)
            seen = {"accuracy": accuracy, "na": na}
            self.means = {name: mean + weight * (seen[name] - mean) for name, mean in self.means.items()}
        if switch := self._is_over():
            self.stage, self.stay = ("performing" if self.stage == "detection" else "detection"), 0
        return switch

    def _is_over(self) -> bool:
        schedule = self.schedule
        if isinstance(schedule, Fixed):
            return self.stay >= schedule.cycle
        assert isinstance(schedule, Hysteresis)
        if self.stay < schedule.min_stay:
            return False
        if schedule.patience is not None and self.stay >= schedule.patience:
            return True
        accuracy, na = self.means["accuracy"], self.means["na"]
        if self.stage == "detection":
            return accuracy >= schedule.accuracy_high and na <= schedule.na_low
        return 1 - accuracy >= schedule.error_high or na >= schedule.na_high

    def state_dict(self) -> dict[str, Any]:
        return {"stage": self.stage, "stay": self.stay, "rollouts": self.rollouts, "means": dict(self.means)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.stage, self.stay, self.rollouts = state["stage"], state["stay"], state["rollouts"]
        self.means = dict(state["means"])
