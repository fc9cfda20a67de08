"""How a text becomes token ids, and what is read from a review: one place, so that training and evaluation cannot differ."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from judgefree.config import PromptFormat
from judgefree.errors import JudgefreeError

_GUIDELINES = re.compile(r"<prompt>((?:(?!<prompt>).)*?)</prompt>", re.DOTALL)  # an unclosed tag is passed over


def fill(template: str, **values: str) -> str:
    """The template with every {name} of `values` replaced, literally and in one pass: braces in a value are text, and so
    are braces of the template that name no value."""
    slots = "|".join(map(re.escape, values))
    return re.sub(f"{{({slots})}}", lambda match: values[match[1]], template)


def inert(tokenizer: Any, text: str) -> str:
    """The text with every special token's name broken up by a space, so that no text begins a turn or ends a conversation.

    A model can spell `<|im_end|>` in ordinary tokens, and so can a source; encoded with the template's own text it would be
    the real one. Other added tokens, such as `<think>`, stay.
    """
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    # A single character cannot be broken up, and where one is special (`!` that pads) it is still a character of texts
    names = {name for token in (*added, *tokenizer.all_special_tokens) if len(name := token.strip(" ")) > 1}
    # Once more, since the space can make another's name; a gap only grows, so this ends
    while found := sorted(name for name in names if name in text):
        for name in found:
            text = text.replace(name, f"{name[0]} {name[1:]}")
    return text


def inert_messages(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The conversation with the content of every message `inert`."""
    return [{**message, "content": inert(tokenizer, message["content"])} for message in messages]


def encode_question(tokenizer: Any, prompt: PromptFormat, question: str) -> list[int]:
    """Token ids of the task's prompt, ready to be continued.

    With `chat` the tokenizer's own template renders the conversation and adds every special token itself (a second BOS
    would shift all that follows); without it the plain text is encoded as the tokenizer does by default, where special
    tokens that the settings' template spells out are meant and those of the question are not.
    """
    if not prompt.chat:
        return list(tokenizer(prompt.template.replace("{question}", inert(tokenizer, question)))["input_ids"])
    text = prompt.template.replace("{question}", question)
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return encode_chat(tokenizer, [*system, {"role": "user", "content": text}])


def encode_message(tokenizer: Any, prompt: PromptFormat, text: str) -> list[int]:
    """Token ids of any text put to the policy: a user's message where the task's prompt is a conversation, plain text
    where it is plain; without the task's template and system text."""
    if prompt.chat:
        return encode_chat(tokenizer, [{"role": "user", "content": text}])
    return encode_text(tokenizer, text)


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a plain text as the tokenizer encodes texts by default, `inert` like a message's content."""
    return list(tokenizer(inert(tokenizer, text))["input_ids"])


def encode_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Token ids of a conversation that ends where the policy is to speak; what the messages say is `inert`.

    Raises JudgefreeError when the tokenizer has no chat template.
    """
    if not tokenizer.chat_template:
        raise JudgefreeError(
            f"the tokenizer of {tokenizer.name_or_path} has no chat template",
            "set chat: false for this data set's prompt",
        )
    text = tokenizer.apply_chat_template(
        inert_messages(tokenizer, messages), tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def guidelines(review: str) -> str | None:
    """The text inside the last closed <prompt> tag that holds any; None where there is none. Time is linear."""
    return next((text for found in reversed(_GUIDELINES.findall(review)) if (text := found.strip())), None)
