"""What both engines agree on: when a completion ends, what its text is, and how many tokens a prompt has room for."""

from collections.abc import Collection, Sequence
from typing import Any

from judgefree.episodes import Completion, Prompt
from judgefree.errors import JudgefreeError


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids that end a completion: those of the model's generation config (chat models have several) and the tokenizer's.

    Raises JudgefreeError when there is none: every completion would run to its limit.
    """
    config = getattr(model, "generation_config", None)
    configured = getattr(config, "eos_token_id", None)
    ids = set(configured if isinstance(configured, list) else [configured]) | {tokenizer.eos_token_id}
    if ids == {None}:
        raise JudgefreeError(
            "neither the model's generation_config nor its tokenizer names an end token (eos_token_id)",
            "set eos_token in the model folder's tokenizer_config.json",
        )
    return frozenset(ids - {None})


def token_limits(prompts: Sequence[Prompt], max_completion_tokens: int, max_length: int | None) -> list[int]:
    """How many tokens each prompt's completions may have: `max_completion_tokens`, or what the model's window of
    `max_length` positions (None: no bound) leaves after the prompt.

    Raises JudgefreeError for a prompt that is empty or leaves no room for a single token.
    """
    limits = []
    for prompt in prompts:
        name = "/".join(map(str, prompt.key))
        if not prompt.ids:
            raise JudgefreeError(f"prompt {name} is empty", "check the data set's question and its template in prompts")
        room = max_completion_tokens if max_length is None else max_length - len(prompt.ids)
        if room < 1:
            raise JudgefreeError(
                f"prompt {name} has {len(prompt.ids)} tokens, but the model reads at most {max_length} positions, "
                "those of the completion included",
                "shorten the data set's template in prompts, remove the question, or use a base with a longer context",
            )
        limits.append(min(max_completion_tokens, room))
    return limits


def check_keys(prompts: Sequence[Prompt]) -> None:
    """Refuses two prompts with the same key: they would draw the same random numbers."""
    keys = [prompt.key for prompt in prompts]
    if len(set(keys)) != len(keys):
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"two prompts have the key {repeated}; add what tells them apart (role, turn number)")


def shown_text(tokenizer: Any, ids: list[int]) -> str:
    """What a reader sees of these ids: their text without special tokens."""
    return tokenizer.decode(ids, skip_special_tokens=True)


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the earliest of the stop strings; all of it when there is none."""
    return text[: min((at for at in map(text.find, stop) if at >= 0), default=len(text))]


def completion(
    ids: list[int],
    logprobs: list[float] | None,
    *,
    tokenizer: Any,
    eos_ids: Collection[int],
    stop: Sequence[str],
    limit: int,
) -> Completion:
    """A finished completion from what an engine generated.

    `ids` keep every generated token: the end token, and the tokens of a stop string, because the policy chose them.
    The text leaves out special tokens and the end token and is cut before the first stop string. The reason is
    "length" only for a completion that used all its `limit` tokens and ended on neither.
    """
    ended = ids[-1] in eos_ids
    text = shown_text(tokenizer, ids[:-1] if ended else ids)
    shown = cut_at_stop(text, stop)
    truncated = len(ids) == limit and not ended and shown == text
    return Completion(ids, shown, "length" if truncated else "stop", logprobs)
