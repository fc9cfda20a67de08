"""The prompt that stands in a registered model."""

from judgefree.bases.scratch import build_tokenizer
from judgefree.config import PromptFormat
from judgefree.prompting import encode_question
from judgefree.registry.package import generation_of, prompt_template

CHAT = PromptFormat(template='{"q": "{question}"}', system="Be {brief}", chat=True, answer="boxed")
PLAIN = PromptFormat(template="Q: {question}\nA:", chat=False, answer="marker", stop=["\nQ:"])


def test_the_template_asks_as_evaluation_does() -> None:
    tokenizer = build_tokenizer(["Q:", "A:", "{", "}", "one", "two"], 64)
    for prompt in (CHAT, PLAIN):
        text = prompt_template(tokenizer, prompt).format(prompt="one {two}")
        special = generation_of(prompt, 8)["add_special_tokens"]
        assert tokenizer(text, add_special_tokens=special)["input_ids"] == encode_question(
            tokenizer, prompt, "one {two}"
        )
    assert prompt_template(tokenizer, PLAIN) == "Q: {prompt}\nA:"
    assert prompt_template(tokenizer, CHAT) == '<system>Be {{brief}}<user>{{"q": "{prompt}"}}<assistant>'


def test_generation_is_greedy_and_stops_where_evaluation_does() -> None:
    assert generation_of(PLAIN, 8) == {
        "max_new_tokens": 8, "do_sample": False, "return_full_text": False, "add_special_tokens": True,
        "stop_sequence": ["\nQ:"],
    }  # fmt: skip
    assert "stop_sequence" not in generation_of(CHAT, 8)
