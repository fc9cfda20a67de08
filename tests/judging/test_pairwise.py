"""Both orders, the tie rule, and the figures, by hand; with judges that are made to err."""

import math
from collections.abc import Callable, Sequence

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_server import endpoint, said, serving

from judgefree.config import Compare
from judgefree.config_judges import EndpointJudge
from judgefree.errors import JudgefreeError
from judgefree.judging.judges import Bill, Contest, Judgement, Verdict
from judgefree.judging.opening import open_judge
from judgefree.judging.pairwise import measure, outcome, play
from judgefree.registry.catalogue import describe

COMPARE = Compare(resamples=200, seed=0, confidence=0.95)
A, TIE, B = Verdict.FIRST, Verdict.TIE, Verdict.SECOND


@pytest.mark.parametrize(
    ("shown_first", "shown_second", "expected"),
    [
        ("W", "W", "win"), ("W", "T", "win"), ("T", "W", "win"),
        ("W", "L", "tie"), ("T", "T", "tie"), ("L", "W", "tie"),
        ("T", "L", "loss"), ("L", "T", "loss"), ("L", "L", "loss"),
    ],
)  # fmt: skip
def test_the_nine_outcomes(shown_first: str, shown_second: str, expected: str) -> None:
    """By what happened to the text itself; a strong verdict counts as a weak one."""
    first = {"W": (A, Verdict.FIRST_MUCH), "T": (TIE,), "L": (B, Verdict.SECOND_MUCH)}[shown_first]
    second = {"W": (B, Verdict.SECOND_MUCH), "T": (TIE,), "L": (A, Verdict.FIRST_MUCH)}[shown_second]
    assert {outcome(one, other) for one in first for other in second} == {expected}


class Scripted:
    """A judge by a function of what it sees."""

    def __init__(self, verdict: Callable[[Contest], Verdict | None]) -> None:
        self.verdict = verdict

    def compare(self, contests: Sequence[Contest]) -> list[Judgement]:
        verdicts = [self.verdict(one) for one in contests]
        return [Judgement(one, 0.5 if one else math.nan, str(one or "lost"), Bill(10, 1, 0.25)) for one in verdicts]

    def rate(self, works: Sequence) -> list:
        raise NotImplementedError


def rows(*texts: tuple[str, str]) -> pd.DataFrame:
    frame = pd.DataFrame(texts, columns=["text", "against_text"])
    return frame.assign(id=[f"i{n}" for n in range(len(frame))], question="q")


def longer_wins(contest: Contest) -> Verdict:
    ahead = len(contest.first) - len(contest.second)
    return A if ahead > 0 else B if ahead < 0 else TIE


def test_figures_by_hand() -> None:
    """Five rows by length: two wins, two losses, a tie in both orders."""
    items = play(
        Scripted(longer_wins), "length", rows(("aaa", "b"), ("aa", "b"), ("a", "bb"), ("a", "bbb"), ("a", "b"))
    )
    assert items["outcome"].tolist() == ["win", "win", "loss", "loss", "tie"]
    assert items["score"].tolist() == [1, 1, 0, 0, 0.5]
    assert items["verdict"].tolist() == ["A>B", "A>B", "B>A", "B>A", "A=B"]
    assert items["verdict_swapped"].tolist() == ["B>A", "B>A", "A>B", "A>B", "A=B"]
    metrics = measure(items, COMPARE)
    assert not [name for name in metrics if describe(f"pairwise/stories/base-by-gpt/{name}") is None]
    low, high = metrics.pop("win_rate_low"), metrics.pop("win_rate_high")
    assert 0 <= low < 0.5 < high <= 1
    assert metrics.pop("win_rate_se") == pytest.approx(0.5 / 5**0.5)  # s = 1/2: squares 4 * 1/4 over 4
    assert metrics == {
        "items": 5, "failed": 0, "win_rate": 0.5, "strict": 0.4, "decided": 0.5, "wins": 2, "ties": 1, "losses": 2,
        "first_chosen": 0.5, "consistent": 1.0, "longer_chosen": 1.0, "length": 1.6, "against_length": 1.6,
        "prompt_tokens": 100, "completion_tokens": 10, "cost": 2.5,
    }  # fmt: skip


def test_a_judge_that_always_says_the_first_makes_ties(tmp_path: object) -> None:
    with serving(lambda prompt, times: said("[[A>>B]]")) as server:
        judge = open_judge(EndpointJudge.model_validate(endpoint(server.url)),
                           {"criteria": "", "compare": "{first}|{second}", "rate": ""}, tmp_path)  # fmt: skip
        items = play(judge, "gpt", rows(("aaa", "b"), ("a", "bbb"), ("a", "c")))
    metrics = measure(items, COMPARE)
    assert items["outcome"].tolist() == ["tie"] * 3 and metrics["win_rate"] == 0.5 and metrics["strict"] == 0.0
    assert metrics["first_chosen"] == 1.0 and metrics["consistent"] == 0.0
    assert "decided" not in metrics and "longer_chosen" not in metrics
    assert metrics["cost"] == pytest.approx(6 * 0.0004) and metrics["prompt_tokens"] == 600


def test_one_row_has_no_standard_error_and_lean_wins_count() -> None:
    """First where it stands first, a tie where it stands second: (W, T)."""
    items = play(Scripted(lambda one: A if one.first == "aaa" else TIE), "j", rows(("aaa", "b")))
    metrics = measure(items, COMPARE)
    assert metrics["win_rate"] == metrics["win_rate_low"] == metrics["win_rate_high"] == metrics["strict"] == 1.0
    assert "win_rate_se" not in metrics and metrics["consistent"] == 0.0


def test_too_many_rows_without_a_verdict_are_refused_by_name() -> None:
    """One failing order is enough; of a hundred rows one may be lost, and is left out and counted."""
    texts = [(f"a{n}", f"bb{n}") for n in range(100)]
    one = play(Scripted(lambda contest: None if contest.first == "a7" else longer_wins(contest)), "gpt", rows(*texts))
    metrics = measure(one, COMPARE)
    assert (metrics["items"], metrics["failed"], metrics["losses"]) == (99, 1, 99)
    assert metrics["cost"] == 50.0, "what failed was paid for as well"
    assert one["outcome"].isna().tolist() == [n == 7 for n in range(100)]
    lost = ("a7", "bb9")
    with pytest.raises(JudgefreeError, match=r"judge gpt gave no verdict on 2 of 100 rows.*i7 \(lost\); i9 \(lost\)"):
        play(Scripted(lambda contest: None if contest.first in lost else longer_wins(contest)), "gpt", rows(*texts))


@given(st.lists(st.tuples(st.sampled_from([A, TIE, B]), st.sampled_from([A, TIE, B])), min_size=1, max_size=12))
@settings(max_examples=15, deadline=None)
def test_the_opponent_s_win_rate_is_the_rest(verdicts: list[tuple[Verdict, Verdict]]) -> None:
    script = {(f"x{n}", f"y{n}"): first for n, (first, _) in enumerate(verdicts)}
    script |= {(f"y{n}", f"x{n}"): second for n, (_, second) in enumerate(verdicts)}
    judge = Scripted(lambda contest: script[contest.first, contest.second])
    ours = measure(play(judge, "j", rows(*[(f"x{n}", f"y{n}") for n in range(len(verdicts))])), COMPARE)
    theirs = measure(play(judge, "j", rows(*[(f"y{n}", f"x{n}") for n in range(len(verdicts))])), COMPARE)
    assert ours["win_rate"] + theirs["win_rate"] == pytest.approx(1)
    assert ours["win_rate"] == pytest.approx((ours["wins"] + ours["ties"] / 2) / len(verdicts))
    assert (ours["wins"], ours["ties"]) == (theirs["losses"], theirs["ties"])
    assert ours.get("first_chosen") == theirs.get("first_chosen") and ours["consistent"] == theirs["consistent"]
    assert ours["win_rate_low"] <= ours["win_rate"] <= ours["win_rate_high"]
