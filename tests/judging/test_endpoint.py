"""The endpoint judge against a real server: what is tried again, what is kept, what it costs, and who never sees the key."""

import json
import logging
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from judge_server import JudgeServer, endpoint, said, serving
from pydantic import ValidationError

from judgefree.config_judges import EndpointJudge
from judgefree.errors import JudgefreeError, MayPass
from judgefree.judging.endpoint import ANSWERS, GIVE_UP
from judgefree.judging.judges import Bill, Contest, Judge, Verdict, Work, total
from judgefree.judging.opening import identity, open_judge

TEXTS = {"criteria": "be short", "compare": "{criteria}|{instruction}|{first}|{second}", "rate": "{instruction}|{text}"}
COST = (100 * 2.0 + 20 * 10.0) / 1e6  # of a reply: 0.0004
KEY = "sk-very-secret-0123456789"
CONTESTS = [Contest(f"q{n}", f"one {n}", f"two {n}") for n in range(6)]


def judge_at(server: JudgeServer, root: Path, **changes: Any) -> Judge:
    return open_judge(EndpointJudge.model_validate(endpoint(server.url, **changes)), TEXTS, root)


def test_what_is_asked_and_what_is_read(tmp_path: Path) -> None:
    with serving(
        lambda prompt, times: said("A is longer. [[B>>A]]" if "|one" in prompt else "Fine. [[7.5]]")
    ) as server:
        judge = judge_at(server, tmp_path)
        (judgement,) = judge.compare([CONTESTS[3]])
        (rating,) = judge.rate([Work("q", "a {text} in braces")])
    assert (judgement.verdict, judgement.preference) == (Verdict.SECOND_MUCH, 1.0)
    assert judgement.said == "A is longer. [[B>>A]]" and judgement.bill == Bill(100, 20, pytest.approx(COST))
    assert rating.score == 7.5
    assert server.bodies == [
        {"model": "judge-1", "messages": [{"role": "user", "content": content}], "temperature": 0.0, "max_tokens": 256}
        for content in ("be short|q3|one 3|two 3", "q|a {text} in braces")
    ]
    assert server.authorizations == {None}


@pytest.mark.parametrize(
    "fault",
    [
        (429, '{"error": "slow down"}'), (500, "oops"), (503, b"\xff\xfe"), (408, ""), (200, "not json"), (200, "{}"),
        (200, '{"choices": []}'), (200, '{"choices": [{"message": {"content": 7}}]}'), (200, b"\xff\xff"), (200, ""),
    ],
    ids=str,
)  # fmt: skip
def test_what_may_pass_is_tried_again_and_then_given_up(fault: tuple, tmp_path: Path) -> None:
    with serving(lambda prompt, times: fault if times < 2 or "q1" in prompt else said("[[A>B]]")) as server:
        judge = judge_at(server, tmp_path)
        first, second = judge.compare(CONTESTS[:2])
    assert first.verdict is Verdict.FIRST and first.bill == Bill(100, 20, pytest.approx(COST))
    assert second.verdict is None and math.isnan(second.preference) and second.bill == Bill()
    assert str(fault[0]) in second.said if fault[0] != 200 else "chat completion" in second.said
    assert sorted(server.asked.values()) == [3, 3]


def test_a_server_is_given_the_time_it_asks_for(tmp_path: Path) -> None:
    wait = (429, "", {"Retry-After": "0.4"})
    with serving(lambda prompt, times: wait if times == 0 else said("[[A>B]]")) as server:
        judge_at(server, tmp_path).compare(CONTESTS[:1])
    assert server.times[1] - server.times[0] >= 0.4


def test_waits_double(tmp_path: Path) -> None:
    with serving(lambda prompt, times: (500, "")) as server:
        judge_at(server, tmp_path, attempts=4, backoff_s=0.1).compare(CONTESTS[:1])
    waits = [after - before for before, after in zip(server.times, server.times[1:], strict=False)]
    assert len(waits) == 3 and waits[0] >= 0.1 and waits[1] >= 0.2 and waits[2] >= 0.4


def test_a_time_out_and_a_dead_server(tmp_path: Path) -> None:
    def respond(prompt: str, times: int) -> tuple:
        time.sleep(0.6 if times == 0 else 0.0)
        return said("[[A=B]]")

    with serving(respond) as server:
        judge = judge_at(server, tmp_path, timeout_s=0.3)
        (judgement,) = judge.compare(CONTESTS[:1])
        assert judgement.verdict is Verdict.TIE and server.asked.total() == 2
    (lost,) = judge.compare(CONTESTS[1:2])
    assert lost.verdict is None and "ConnectError" in lost.said


def test_a_refused_request_is_not_repeated_and_others_go_on(tmp_path: Path) -> None:
    with serving(lambda prompt, times: (400, "context too long") if "q0" in prompt else said("[[B>A]]")) as server:
        judgements = judge_at(server, tmp_path).compare(CONTESTS)
    assert [one.verdict for one in judgements] == [None, *[Verdict.SECOND] * 5]
    assert judgements[0].said == "status 400: 'context too long'" and set(server.asked.values()) == {1}


def test_a_reply_without_a_verdict_is_paid_for_twice_at_most(tmp_path: Path) -> None:
    def respond(prompt: str, times: int) -> tuple:
        return said("hm" if "q0" in prompt or times == 0 else "[[A>B]]")

    with serving(respond) as server:
        never, later = judge_at(server, tmp_path, attempts=9).compare(CONTESTS[:2])
    assert never.verdict is None and "hm" in never.said and later.verdict is Verdict.FIRST
    assert never.bill == later.bill == Bill(200, 40, pytest.approx(2 * COST)) and set(server.asked.values()) == {2}


def test_answers_are_kept_and_failures_are_not(tmp_path: Path) -> None:
    """Rows that failed are asked again, others are not, and they cost what they cost when they were bought."""
    with serving(lambda prompt, times: (500, "") if "q1|" in prompt and times < 3 else said("[[A>B]]")) as server:
        first = judge_at(server, tmp_path).compare(CONTESTS)
        assert [one.verdict is None for one in first] == [False, True, *[False] * 4]
        second = judge_at(server, tmp_path).compare(CONTESTS)
        assert server.asked.total() == 5 + 3 + 1 and all(one.verdict for one in second)
        third = judge_at(server, tmp_path).compare(CONTESTS)
        assert server.asked.total() == 9
        assert [one.bill.cached for one in second] == [True, False, *[True] * 4] and total(
            [one.bill for one in third]
        ).cached
        assert total([one.bill for one in third]).cost == pytest.approx(6 * COST)
        judge_at(server, tmp_path, model="judge-2").compare(CONTESTS[:1])
        judge_at(server, tmp_path, request={"temperature": 0.5}).compare(CONTESTS[:1])
        assert server.asked.total() == 11, "another model, or other settings of the request, are other questions"
        judge_at(server, tmp_path, concurrency=1, attempts=1, price=None).compare(CONTESTS[:1])
        assert server.asked.total() == 11


def test_another_process_finds_the_answers(tmp_path: Path) -> None:
    script = (
        "import json, sys; from pathlib import Path; from judgefree.config_judges import EndpointJudge\n"
        "from judgefree.judging.judges import Contest; from judgefree.judging.opening import open_judge\n"
        "settings, texts, root = json.loads(sys.argv[1])\n"
        "judge = open_judge(EndpointJudge.model_validate(settings), texts, Path(root))\n"
        "one, = judge.compare([Contest('q0', 'one 0', 'two 0')]); print(one.verdict, one.bill.cached)"
    )
    with serving(lambda prompt, times: said("[[A>>B]]")) as server:
        judge_at(server, tmp_path).compare(CONTESTS[:1])
        words = json.dumps([endpoint(server.url), TEXTS, str(tmp_path)])
        done = subprocess.run([sys.executable, "-c", script, words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["A>>B", "True"] and server.asked.total() == 1


def test_a_damaged_file_of_answers_is_named(tmp_path: Path) -> None:
    (tmp_path / ANSWERS).parent.mkdir(parents=True)
    (tmp_path / ANSWERS).write_text("no database, and long enough to be looked at as one " * 40)
    with (
        serving(lambda prompt, times: said("[[A>B]]")) as server,
        pytest.raises(JudgefreeError, match="answers.sqlite"),
    ):
        judge_at(server, tmp_path).compare(CONTESTS[:1])


def test_equal_questions_are_asked_and_billed_once(tmp_path: Path) -> None:
    with serving(lambda prompt, times: said("[[A>B]]")) as server:
        judge = judge_at(server, tmp_path)
        for _ in range(2):
            judgements = judge.compare([CONTESTS[0], CONTESTS[1], CONTESTS[0]])
            assert [one.verdict for one in judgements] == [Verdict.FIRST] * 3
            assert [one.bill.prompt_tokens for one in judgements] == [100, 100, 0]
    assert server.asked.total() == 2


def test_no_more_requests_at_a_time_than_allowed(tmp_path: Path) -> None:
    with serving(lambda prompt, times: said("[[A>B]]")) as server:
        server.delay = 0.1
        judge_at(server, tmp_path, concurrency=3).compare([Contest(f"q{n}", "a", "b") for n in range(12)])
    assert server.busiest == 3


def test_without_usage_cost_is_understated_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda prompt, times: said("[[A>B]]", usage=None)) as server, caplog.at_level(logging.WARNING):
        judgements = judge_at(server, tmp_path, concurrency=1).compare(CONTESTS)
    assert total([one.bill for one in judgements]).cost == 0.0 and len(caplog.records) == 1
    assert "understated" in caplog.text


def test_a_judge_that_answers_nothing_is_not_asked_to_the_end(tmp_path: Path) -> None:
    contests = [Contest(f"q{n}", "a", "b") for n in range(200)]
    with serving(lambda prompt, times: (503, "down for the night")) as server:
        with pytest.raises(MayPass, match=f"none of {GIVE_UP} requests: status 503: 'down for the night'"):
            judge_at(server, tmp_path, attempts=1).compare(contests)
        assert len(server.asked) < GIVE_UP + 20
        server.respond = lambda prompt, times: said("[[A>B]]") if "q7|" in prompt else (503, "")
        few = judge_at(server, tmp_path, attempts=1).compare(contests[:10])
    assert [one.verdict is not None for one in few] == [n == 7 for n in range(10)], "a few rows are told one by one"


# ---------------------------------------------------------------------------------------------------------------- the key


def test_the_key_goes_to_the_server_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    settings = EndpointJudge.model_validate(endpoint("http://127.0.0.1:9/v1", key_variable="JUDGE_KEY"))
    assert KEY not in repr(settings) + json.dumps(identity(settings, tmp_path))

    def echo(prompt: str, times: int) -> tuple:
        echoed = f"you sent Bearer {KEY}"
        if "q0" in prompt:
            return 400, echoed
        if "q1" in prompt:
            return 200, echoed
        return (500, echoed) if "q2" in prompt else said(echoed)

    with serving(echo) as server, caplog.at_level(logging.DEBUG):
        judge = judge_at(server, tmp_path, key_variable="JUDGE_KEY")
        judgements = judge.compare(CONTESTS[:4])
        assert server.authorizations == {f"Bearer {KEY}"}
        server.respond = lambda prompt, times: (401, f"wrong key: {KEY}")
        with pytest.raises(JudgefreeError, match="refuses the key") as caught:
            judge.compare(CONTESTS[4:])
    assert all(one.verdict is None and "***" in one.said for one in judgements)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in str(caught.value) + caplog.text + str(judgements) + repr(vars(judge)) and KEY.encode() not in kept
    assert "JUDGE_KEY" in caught.value.fix


@pytest.mark.parametrize("value", [None, "", "  \n", "sk-one\nsk-two", "sk-\u00e4", "two words"])
def test_a_key_that_is_none(value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("JUDGE_KEY", value)
    settings = EndpointJudge.model_validate(endpoint("http://127.0.0.1:9/v1", key_variable="JUDGE_KEY"))
    with pytest.raises(JudgefreeError, match="JUDGE_KEY") as caught:
        open_judge(settings, TEXTS, tmp_path)
    assert not value or not value.strip() or value not in str(caught.value)


def test_a_key_from_a_file_with_a_line_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", f"{KEY}\n")
    with serving(lambda prompt, times: said("[[A>B]]")) as server:
        judge_at(server, tmp_path, key_variable="JUDGE_KEY").compare(CONTESTS[:1])
    assert server.authorizations == {f"Bearer {KEY}"}


@pytest.mark.parametrize("status", [301, 404, 405])
def test_a_wrong_address_ends_it_at_once(status: int, tmp_path: Path) -> None:
    with serving(lambda prompt, times: (status, "no such page")) as server:
        with pytest.raises(JudgefreeError, match="does not serve judge-1") as caught:
            judge_at(server, tmp_path, concurrency=1).compare(CONTESTS)
        assert server.asked.total() == 1 and not isinstance(caught.value, MayPass)


def test_what_a_wrong_address_stopped_is_no_fault_of_the_server(tmp_path: Path) -> None:
    """More requests are under way at once than are needed to give a server up."""
    with serving(lambda prompt, times: (404, "no such page")) as server:
        many = [Contest(f"q{n}", f"one {n}", f"two {n}") for n in range(80)]
        with pytest.raises(JudgefreeError, match="does not serve judge-1") as caught:
            judge_at(server, tmp_path, concurrency=40).compare(many)
        assert not isinstance(caught.value, MayPass)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "api.example.org/v1"}, "no address"),
        ({"url": "https://me:sk-1@example.org/v1"}, "more than an address"),
        ({"url": "https://example.org/v1?key=sk-1"}, "more than an address"),
        ({"key_variable": "sk-1234"}, "no name of a variable"),
        ({"request": {"messages": []}}, "messages cannot be set"),
        ({"request": {"stream": True}}, "stream cannot be set"),
        ({"concurrency": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EndpointJudge.model_validate(endpoint("https://example.org/v1", **changes))


def test_what_changes_no_answer_is_no_part_of_a_judge_s_identity(tmp_path: Path) -> None:
    one, other, third = (
        identity(EndpointJudge.model_validate(endpoint("https://example.org/v1/", **changes)), tmp_path)
        for changes in ({}, {"concurrency": 9, "timeout_s": 1.0, "attempts": 9, "key_variable": "K"}, {"price": None})
    )
    assert one == other != third and one["url"] == "https://example.org/v1"
