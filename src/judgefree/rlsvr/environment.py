"""The paradigm: a task that no rule can check becomes an environment that knows the right answer to another question.

An environment (paper: the transformation Phi of data and instruction) injects a latent z into an episode, lets the policy
do the original task on what it is shown, asks about z what can be told from the outputs only, and rewards by rule: z is
known. `methods/spyrl.py` makes turns of the episodes of one such environment, `rlsvr/game.py`.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from judgefree.episodes import Example, Policy

Episode = TypeVar("Episode")


class Environment(Protocol[Episode]):
    """Four steps over the episodes of one process. `execute` and `interact` may leave episodes out; they call
    `policy.sample` and `policy.gather` equally often in every process, whatever is left."""

    def inject(self, examples: Sequence[Example], rollout: int) -> list[Episode]:
        """An episode per example, its latent drawn from (seed, rollout, example) alone. `Example.answer` is not read."""
        ...

    def execute(self, episodes: Sequence[Episode], policy: Policy) -> list[Episode]:
        """The policy does the task on its observations; the outputs are kept in the episodes."""
        ...

    def interact(self, episodes: Sequence[Episode], policy: Policy) -> list[Episode]:
        """Somebody is asked about the latent and sees outputs only; the answers are kept in the episodes."""
        ...

    def reward(self, episodes: Sequence[Episode]) -> None:
        """Compares the answers with the latent and writes the rewards of both sides into the episodes."""
        ...


def play(environment: Environment[Episode], examples: Sequence[Example], policy: Policy, rollout: int) -> list[Episode]:
    """The episodes of one rollout, played to their end, in the order of the examples."""
    episodes = environment.inject(examples, rollout)
    episodes = environment.execute(episodes, policy)
    episodes = environment.interact(episodes, policy)
    environment.reward(episodes)
    return episodes
