import socket

import pytest

from judgefree.config_data import Quality
from judgefree.data import checks
from judgefree.errors import JudgefreeError
from judgefree.files import pretty_json

LIMITS = Quality(
    max_quarantined_share=0.1, min_gold_parse_share=0.9, max_question_chars=9, max_answer_chars=3,
    near_overlap_ngram=13, near_overlap_share=0.5,
)  # fmt: skip
SOUND = [{"id": "a", "question": "one?", "answer": "1"}, {"id": "b", "question": "two?", "answer": "2"}]
LENGTHS = "column_value_lengths_to_be_between"
FACTS = {"split": "train", "gold_parse_share": 0.95, "overlap": 0}


def judged(rows, size=(2, 2), **facts) -> dict[tuple[str, str | None], tuple]:
    verdict = checks.validate({"train": rows}, {"train": size}, [{**FACTS, **facts}], LIMITS)
    pretty_json(verdict)  # is JSON
    found = [check for part in ("train", "data set") for check in verdict[part]]
    return {(check["expectation"], check["column"]): (check["observed"], check["success"]) for check in found}


def test_sound_rows_pass_every_expectation_and_row_counts_come_first() -> None:
    found = judged(SOUND)
    assert list(found)[0] == ("table_row_count_to_be_between", None)
    assert len(found) == 9 and all(success for _, success in found.values())
    assert found["table_row_count_to_be_between", None] == (2, True)
    assert found["column_min_to_be_between", "gold_parse_share"] == (0.95, True)


@pytest.mark.parametrize(
    ("rows", "size", "facts", "failing", "observed"),
    [
        (SOUND, (3, 4), {}, ("table_row_count_to_be_between", None), 2),
        ([{**SOUND[0], "answer": None}, SOUND[1]], (2, 2), {}, ("column_values_to_not_be_null", "answer"), 1),
        ([SOUND[0], {**SOUND[1], "id": "a"}], (2, 2), {}, ("column_values_to_be_unique", "id"), 2),
        ([SOUND[0], {**SOUND[1], "question": "q" * 10}], (2, 2), {}, (LENGTHS, "question"), 1),
        ([SOUND[0], {**SOUND[1], "answer": ""}], (2, 2), {}, (LENGTHS, "answer"), 1),
        (SOUND, (2, 2), {"gold_parse_share": 0.89}, ("column_min_to_be_between", "gold_parse_share"), 0.89),
        (SOUND, (2, 2), {"overlap": 1}, ("column_max_to_be_between", "overlap"), 1),
    ],
)  # fmt: skip
def test_each_expectation_can_fail_alone(rows, size, facts, failing, observed) -> None:
    found = judged(rows, size, **facts)
    assert [name for name, (_, success) in found.items() if not success] == [failing]
    assert found[failing][0] == observed


def test_a_split_without_rows_fails_on_its_row_count() -> None:
    assert judged([], (1, 5))["table_row_count_to_be_between", None] == (0, False)


def test_the_report_names_what_was_observed_and_allowed() -> None:
    verdict = checks.validate({"test": SOUND}, {"test": (5, 9)}, [FACTS], LIMITS)
    with pytest.raises(JudgefreeError) as caught:
        checks.enforce("mine", verdict, "there.json")
    assert str(caught.value) == (
        "mine: 1 of 9 expectations on the data fail\n"
        "    test table_row_count_to_be_between: observed 2, allowed {'min_value': 5, 'max_value': 9}\n"
        "  fix: see there.json; mend the source, or the limits in data.mine.quality"
    )


def test_nothing_calls_home(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: calls.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **_: calls.append(address))
    assert all(success for _, success in judged(SOUND).values())
    assert calls == []


# ---------------------------------------------------------------------------------------------------- preference pairs


def pair(place: int, split: str = "train", **changed) -> dict:
    said = [{"role": "user", "content": f"question {place}"}]
    return {"id": f"p{place}", "split": split, "prompt": said, "chosen": "yes", "rejected": "no", **changed}


PAIRS = [pair(0), pair(1), pair(2, "validation")]
TALK = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]


def judged_pairs(pairs) -> dict[str | None, tuple]:
    verdict = checks.validate_pairs(pairs)
    pretty_json(verdict)
    return {f"{check['column']} {check['expectation']}": (check["observed"], check["success"]) for check in verdict}


def test_sound_pairs_pass() -> None:
    found = judged_pairs([*PAIRS, pair(3, prompt=TALK)])
    assert len(found) == 10 and all(success for _, success in found.values())


@pytest.mark.parametrize(
    ("pairs", "failing", "observed"),
    [
        ([], "None table_row_count_to_be_between", 0),
        ([*PAIRS, pair(1)], "id column_values_to_be_unique", 2),
        ([*PAIRS, pair(3, id=None)], "id column_values_to_not_be_null", 1),
        ([*PAIRS, pair(3, "test")], "split column_values_to_be_in_set", 1),
        ([*PAIRS, pair(3, chosen=" ")], "chosen_words column_min_to_be_between", 0),
        ([*PAIRS, pair(3, rejected=None)], "rejected_words column_min_to_be_between", 0),
        ([*PAIRS, pair(3, prompt=[{"role": "user", "content": ""}])], "prompt_words column_min_to_be_between", 0),
        ([*PAIRS, pair(3, prompt=[{"role": "user", "content": None}])], "prompt_words column_min_to_be_between", 0),
        ([*PAIRS, pair(3, rejected="yes")], "equal column_max_to_be_between", 1),
        ([*PAIRS, pair(3, prompt=TALK[:3])], "wrong_roles column_max_to_be_between", 1),
        ([*PAIRS, pair(3, "validation", prompt=PAIRS[0]["prompt"])], "overlap column_max_to_be_between", 1),
    ],
)  # fmt: skip
def test_each_fault_of_a_pair_is_found(pairs, failing, observed) -> None:
    found = judged_pairs(pairs)
    failed = [name for name, (_, success) in found.items() if not success]
    assert failing in failed and found[failing][0] == observed
    assert len(failed) == 1 or not pairs, failed


def test_no_limits_are_blamed_for_pairs_which_have_none() -> None:
    verdict = {"pairs": checks.validate_pairs([pair(1), pair(1)])}
    with pytest.raises(JudgefreeError) as caught:
        checks.enforce("mine", verdict, "there.json")
    assert caught.value.fix == "see there.json; mend the source"
