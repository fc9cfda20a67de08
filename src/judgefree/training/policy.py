"""The policy as methods see it: prompts, samples, scores and what the other processes have, around a trainer's model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelerate.utils import gather_object

from judgefree.config import PromptFormat, Sampling, Training
from judgefree.episodes import Completion, Prompt, Turn
from judgefree.errors import PromptTooLong
from judgefree.prompting import encode_chat, encode_message, encode_question

# (prompts, n, seed, step, settings, greedy) -> completions of each prompt
Engine = Callable[[Sequence[Prompt], int, int, int, Sampling, bool], list[list[Completion]]]

SHOWN = 60  # characters of a question in a message


@dataclass
class TrainedPolicy:
    """Implements `episodes.Policy`. `step` is the optimizer step at which the current rollout began; with `seed` and a
    prompt's key it names every random stream, so a rollout can be made again by itself."""

    tokenizer: Any
    prompt: PromptFormat
    training: Training
    seed: int
    engine: Engine
    scorer: Callable[[Sequence[Turn]], list[list[float]]]
    step: int = 0
    tokens_sampled: int = field(default=0)
    certainty_scorer: Callable[[Sequence[Turn]], tuple[list[list[float]], list[float]]] | None = None

    def encode(self, question: str) -> list[int]:
        """Raises PromptTooLong for a prompt of more than `training.max_prompt_tokens`: none is cut."""
        return self._fitting(encode_question(self.tokenizer, self.prompt, question), question)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Raises PromptTooLong as `encode` does."""
        return self._fitting(encode_chat(self.tokenizer, messages), messages[-1]["content"])

    def encode_message(self, text: str) -> list[int]:
        """Raises PromptTooLong as `encode` does."""
        return self._fitting(encode_message(self.tokenizer, self.prompt, text), text)

    def _fitting(self, ids: list[int], text: str) -> list[int]:
        if len(ids) > (limit := self.training.max_prompt_tokens):
            beginning = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
            raise PromptTooLong(
                f"a prompt has {len(ids)} tokens, above training.max_prompt_tokens ({limit}): {beginning!r}",
                "raise training.max_prompt_tokens, shorten the template in prompts, or remove the question",
            )
        return ids

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        completions = self.engine(prompts, n, self.seed, self.step, self.training.sampling, False)
        self.tokens_sampled += sum(len(one.ids) for several in completions for one in several)
        return completions

    def greedy(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """The most likely continuation of every prompt, for validation."""
        return [several[0] for several in self.engine(prompts, 1, self.seed, self.step, self.training.sampling, True)]

    def score(self, turns: Sequence[Turn]) -> list[list[float]]:
        logprobs = self.scorer(turns)
        for turn, values in zip(turns, logprobs, strict=True):
            turn.old_logprobs = values
        return logprobs

    def self_certainty(self, turns: Sequence[Turn]) -> list[float]:
        assert self.certainty_scorer, "only the policy of an EpisodeTrainer measures its certainty"
        logprobs, certainties = self.certainty_scorer(turns)
        for turn, values in zip(turns, logprobs, strict=True):
            turn.old_logprobs = values
        return certainties

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(gather_object(list(values)))
