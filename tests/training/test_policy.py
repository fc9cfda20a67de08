"""What methods may ask of the policy."""

from pathlib import Path

import pytest
from harness import load
from world import training

from judgefree.config import PromptFormat
from judgefree.errors import JudgefreeError, PromptTooLong
from judgefree.training.policy import TrainedPolicy


def policy(tiny: Path, limit: int) -> TrainedPolicy:
    prompt = PromptFormat(template="{question}", chat=False, answer="marker")
    settings = training(max_prompt_tokens=limit)
    return TrainedPolicy(load(tiny)[1], prompt, settings, 0, lambda *asked: [], lambda turns: [])


def test_a_prompt_above_the_limit_is_refused_and_none_is_cut(tiny: Path) -> None:
    question = " ".join(["w1"] * 40)
    ids = policy(tiny, 1000).encode(question)
    assert policy(tiny, len(ids)).encode(question) == ids
    with pytest.raises(JudgefreeError) as caught:
        policy(tiny, len(ids) - 1).encode(question)
    assert f"{len(ids)} tokens, above training.max_prompt_tokens ({len(ids) - 1})" in caught.value.problem
    assert f"'{question[:60]}...'" in caught.value.problem and "raise training.max_prompt_tokens" in caught.value.fix


def test_so_is_a_conversation(tiny: Path) -> None:
    roomy, narrow = policy(tiny, 1000), policy(tiny, 3)
    for one in (roomy, narrow):
        one.tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    messages = [{"role": "user", "content": "w1 w2"}, {"role": "user", "content": "w3 w4"}]
    assert len(roomy.encode_chat(messages)) > 3
    with pytest.raises(JudgefreeError, match=r"max_prompt_tokens \(3\): 'w3 w4'"):
        narrow.encode_chat(messages)


def test_a_message_goes_without_template_and_system_text(tiny: Path) -> None:
    one = policy(tiny, 5)
    one.prompt = PromptFormat(template="w9 {question}", chat=False, answer="marker")
    assert one.encode_message("w1 w2") == one.tokenizer("w1 w2")["input_ids"] != one.encode("w1 w2")
    one.tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}w8"
    one.prompt = PromptFormat(template="w9 {question}", system="w7", chat=True, answer="marker")
    assert one.encode_message("w1 w2") == one.tokenizer("w1 w2 w8")["input_ids"]
    assert one.encode("w1") == one.tokenizer("w7 w9 w1 w8")["input_ids"]
    for chat in (True, False):
        one.prompt = PromptFormat(template="{question}", chat=chat, answer="marker")
        with pytest.raises(PromptTooLong, match=r"max_prompt_tokens \(5\)"):
            one.encode_message("w1 " * 6)
