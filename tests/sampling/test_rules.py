from types import SimpleNamespace

import pytest

from judgefree.episodes import Prompt
from judgefree.errors import JudgefreeError
from judgefree.sampling.rules import check_keys, completion, cut_at_stop, end_ids, token_limits


def with_eos(model_eos, tokenizer_eos):
    return SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=model_eos)), SimpleNamespace(
        eos_token_id=tokenizer_eos
    )


@pytest.mark.parametrize(
    ("model_eos", "tokenizer_eos", "expected"),
    [(5, 5, {5}), ([5, 7], 5, {5, 7}), ([5, 7], 9, {5, 7, 9}), (None, 9, {9}), (5, None, {5})],
)
def test_end_ids_are_those_of_model_and_tokenizer(model_eos, tokenizer_eos, expected):
    assert end_ids(*with_eos(model_eos, tokenizer_eos)) == expected


def test_a_model_without_any_end_token_is_refused():
    with pytest.raises(JudgefreeError, match="eos_token"):
        end_ids(*with_eos(None, None))


def test_a_prompt_leaves_what_the_window_has_left():
    prompts = [Prompt([3] * 4, ("a",)), Prompt([3] * 9, ("b",))]
    assert token_limits(prompts, 5, 10) == [5, 1]
    assert token_limits(prompts, 5, None) == [5, 5]


@pytest.mark.parametrize("ids", [[], [3] * 10])
def test_an_empty_or_too_long_prompt_is_refused_by_name(ids):
    with pytest.raises(JudgefreeError, match="gsm8k-7/attempt/0"):
        token_limits([Prompt(ids, ("gsm8k-7", "attempt", 0))], 5, 10)


def test_equal_keys_are_refused():
    check_keys([Prompt([3], ("a", 0)), Prompt([3], ("a", 1))])
    with pytest.raises(ValueError, match="'a', 1"):
        check_keys([Prompt([3], ("a", 1)), Prompt([4], ("a", 1))])


def test_text_is_cut_before_the_earliest_stop_string():
    assert cut_at_stop("one\ntwo##three", ["##", "\n"]) == "one"
    assert cut_at_stop("one", ["##"]) == "one"
    assert cut_at_stop("##", ["##"]) == ""
    assert cut_at_stop("one", []) == "one"


def ids_of(text: str) -> list[int]:
    return [ord(c) - ord("!") + 2 for c in text]


@pytest.mark.parametrize(
    ("ids", "stop", "limit", "text", "reason"),
    [
        ([*ids_of("AB"), 1], [], 8, "AB", "stop"),
        ([*ids_of("AB"), 1], [], 3, "AB", "stop"),  # the last allowed token is the end token: not truncated
        (ids_of("ABC"), [], 3, "ABC", "length"),
        ([*ids_of("A"), 0, *ids_of("B")], [], 3, "AB", "length"),  # a special token inside is not shown
        (ids_of("AB##"), ["##"], 8, "AB", "stop"),
        (ids_of("AB##"), ["##"], 4, "AB", "stop"),
        ([1], [], 8, "", "stop"),
    ],
)
def test_a_finished_completion(tokenizer, ids, stop, limit, text, reason):
    made = completion(list(ids), None, tokenizer=tokenizer, eos_ids={1}, stop=stop, limit=limit)
    assert (made.ids, made.text, made.finish_reason) == (ids, text, reason)


def test_an_end_token_that_is_not_special_is_kept_out_of_the_text(tokenizer):
    made = completion(ids_of("AB#"), None, tokenizer=tokenizer, eos_ids=set(ids_of("#")), stop=[], limit=8)
    assert (made.text, made.finish_reason) == ("AB", "stop")
