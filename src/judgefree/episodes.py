"""The vocabulary of the project: what a method gets, what it gives back, and what it may ask of the policy.

A *method* plays *episodes* with the current policy and returns *turns*. The trainer knows turns only; it never learns
what a reward meant. This file holds plain data and two protocols, and imports nothing but the standard library.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Example:
    """One row of a prepared split.

    `answer` is the gold answer and `demonstration` a text to imitate; both are None where the data set has none, and a
    method that claims to need no labels gets examples without them.
    """

    id: str
    question: str
    answer: str | None = None
    demonstration: str | None = None


@dataclass(frozen=True)
class Completion:
    """One sampled continuation: token ids (the end token included when it was produced), decoded text without special
    tokens, why it ended, and the log-probability of each id under the sampling distribution (None when not kept)."""

    ids: list[int]
    text: str
    finish_reason: FinishReason
    logprobs: list[float] | None = None


@dataclass(frozen=True)
class Prompt:
    """Something to sample from. `key` names the random stream (with the seed and the step), so it must differ between
    any two prompts of one rollout: example id, role and turn number."""

    ids: list[int]
    key: tuple[str | int, ...]


@dataclass
class Turn:
    """One prompt and one completion with what the trainer is to do about them.

    advantage: a number for the whole completion, or one per completion token.
    dead: every raw reward channel of the turn's group was constant, so its advantage is exactly 0 and the turn may be
        dropped once the batch's statistics are taken.
    imitation_weight: weight of -log pi(completion | prompt); 0 where there is nothing to imitate.
    old_logprobs: log pi_old per completion token, from `Policy.score`; the trainer fills what it needs.
    sampling_logprobs: log-probabilities as the sampling engine reported them, if it did.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    role: str
    group: str
    advantage: float | list[float] = 0.0
    dead: bool = False
    imitation_weight: float = 0.0
    finish_reason: FinishReason = "stop"
    old_logprobs: list[float] | None = None
    sampling_logprobs: list[float] | None = None


@dataclass
class Rollout:
    """What one call of `Method.play` gives: turns to learn from, one record per completion for people to read (a flat
    mapping of column to value, equal columns in all), and metrics by name.

    watched: the role of the turns whose lengths and variety the collapse monitor looks at, for a method whose mixture of
        roles changes while it learns; None: all. Turns to imitate repeat what was sampled and are never looked at.
    untrained: turns that were sampled and are not learnt from; the monitor looks at them as at the others.
    """

    turns: list[Turn]
    records: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    watched: str | None = None
    untrained: list[Turn] = field(default_factory=list)


class Policy(Protocol):
    """What a method may do with the model that is being trained."""

    def encode(self, question: str) -> list[int]:
        """Token ids of the task's prompt for this question, ready to be continued. This and the next two raise
        PromptTooLong for more than `training.max_prompt_tokens`."""
        ...

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation that ends where the policy is to speak."""
        ...

    def encode_message(self, text: str) -> list[int]:
        """Token ids of any text put to the policy: a user's message where the task's prompt is a conversation, plain
        text where it is plain; without the task's template and system text."""
        ...

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        """`n` completions of every prompt, in the prompts' order."""
        ...

    def score(self, turns: Sequence[Turn]) -> list[list[float]]:
        """Log-probability of every completion token under the current weights, in one pass without gradient; they are
        kept in the turns as `old_logprobs`, so the trainer makes no second pass."""
        ...

    def self_certainty(self, turns: Sequence[Turn]) -> list[float]:
        """Mean over each completion's tokens of KL(uniform || pi) in nats, float32, from the pass of `score`, which it
        makes: the turns have their `old_logprobs` afterwards."""
        ...

    def gather(self, values: Sequence[Any]) -> list[Any]:
        """The values of all processes, in the order of the examples, for statistics that must be global."""
        ...


class Method(Protocol):
    """A way of turning examples into turns: one file of `methods/` each."""

    def play(self, examples: Sequence[Example], policy: Policy) -> Rollout:
        """Play one episode per example and say what is to be learnt from it."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All that lives between steps, as JSON values and tensors; saved with every checkpoint."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        ...


def stream_seed(*parts: str | int) -> int:
    """A 63-bit seed that depends on the parts alone, e.g. (seed, step, example id, role, turn, sample).

    Two streams share a seed only if all parts agree, also across processes, machines and engines.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
