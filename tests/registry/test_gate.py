"""The gate's decisions on items made by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.config import Compare, Gates
from judgefree.errors import JudgefreeError
from judgefree.registry.gate import Judgement, Report, Verdict, items_needed, judge

GATES = Gates(rank_by="validation", measure="pass@1", margin=0.0, min_items=30, max_unparsed_rise=0.01,
              max_truncated_rise=0.01, max_length_ratio=1.5)  # fmt: skip
COMPARE = Compare(resamples=1000, seed=0, confidence=0.95)


def items(
    right: int, of: int, *, unparsed: float = 0, truncated: float = 0, length: float = 10.0, ungraded: float = 0,
    sampled: dict[str, float] | None = None,
) -> Report:  # fmt: skip
    """The first `right` items are right, greedily and in all 4 samples; the other arguments are numbers of completions,
    `sampled` those of the samples where they are not clean."""
    counts = {"unparsed": unparsed, "truncated": truncated, "ungraded": ungraded}
    shares = {name: count / of for name, count in counts.items()} | {"length": length}
    rough = {"unparsed": 0, "truncated": 0, "ungraded": 0, "length": 10.0} | (sampled or {})
    correct = [item < right for item in range(of)]
    frame = pd.DataFrame({
        "id": range(of), "gold": "1", "correct": correct, "n_samples": 4, "n_correct": [4 * one for one in correct],
    })  # fmt: skip
    return Report(frame, shares | {f"sampled/{name}": value for name, value in rough.items()})


def judged(new: Report, old: Report, **gates: object) -> Judgement:
    return judge("s", new, old, GATES.model_copy(update=gates), COMPARE)


def test_better_is_promoted_a_tie_holds_and_worse_is_rejected() -> None:
    better = judged(items(150, 200), items(100, 200))
    assert better.decision == "PROMOTE" and better.gain.value == 0.25 and (better.better, better.worse) == (50, 0)
    # 50 of 200 items differ: the mean's error is sqrt(0.25 * 0.75 / 200) = 0.0306
    assert better.gain.low == pytest.approx(0.25 - 1.96 * 0.0306, abs=0.01)
    tie = judged(items(100, 200), items(100, 200))
    assert tie.decision == "HOLD" and tie.items_needed is None and "not better" in tie.reason
    assert judged(items(100, 200), items(150, 200)).decision == "REJECT"


def test_the_margin_must_be_cleared_by_the_lower_bound() -> None:
    assert judged(items(150, 200), items(100, 200), margin=0.15).decision == "PROMOTE"
    held = judged(items(150, 200), items(100, 200), margin=0.24)
    assert held.decision == "HOLD" and f"; {held.items_needed} items are needed" in held.reason
    assert judged(items(100, 200), items(100, 200), margin=0.1).decision == "HOLD", "a tie is not worse"


def test_one_point_on_twenty_items_holds_and_names_how_many_are_needed() -> None:
    verdict = judged(items(11, 20), items(10, 20))
    # d = 1/20, s^2 = (1/20 - 1/400) * 20/19 = 0.05; n > (1.959964^2 * 0.05) / 0.0025 = 76.83
    assert verdict.decision == "HOLD" and verdict.items_needed == 77
    assert "on only 20 items; 77 are needed" in verdict.reason
    for few in (judged(items(20, 20), items(0, 20)), judged(items(0, 20), items(20, 20))):
        assert "on only 20 items; 30 are needed" in few.reason and few.items_needed == 30


def test_too_few_items_hold_even_where_all_looks_bad() -> None:
    assert judged(items(0, 20, unparsed=20), items(20, 20)).decision == "HOLD"


@pytest.mark.parametrize(
    ("new", "named"),
    [
        (items(150, 200, unparsed=5), "unparsed went from 0 to 0.025"),
        (items(150, 200, truncated=5), "truncated went from 0 to 0.025"),
        (items(150, 200, length=15.1), "length went from 10 to 15.1"),
    ],
)
def test_a_broken_guard_rejects_what_is_better(new: Report, named: str) -> None:
    verdict = judged(new, items(100, 200))
    assert verdict.decision == "REJECT" and named in verdict.reason


def test_guards_hold_at_their_limits() -> None:
    assert judged(items(150, 200, unparsed=2, truncated=2, length=15), items(100, 200)).decision == "PROMOTE"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"unparsed": 0.02}, "sampled/unparsed went from 0 to 0.02"),
        ({"truncated": 0.02}, "sampled/truncated went from 0 to 0.02"),
        ({"length": 15.1}, "sampled/length went from 10 to 15.1"),
    ],
)
def test_guards_look_at_what_is_measured(broken: dict[str, float], reason: str) -> None:
    samples, greedy = items(150, 200, sampled=broken), items(150, 200, unparsed=50, truncated=50, length=90)
    old = items(100, 200)
    verdict = judged(samples, old, measure="sampled/accuracy")
    assert verdict.decision == "REJECT" and reason in verdict.reason
    assert judged(samples, old).decision == "PROMOTE"
    assert judged(greedy, old, measure="sampled/accuracy").decision == "PROMOTE"


def test_scores_that_the_grader_did_not_give_hold() -> None:
    new, old = items(150, 200, ungraded=3), items(100, 200)
    verdict = judged(new, old)
    assert verdict.decision == "HOLD" and verdict.items_needed is None and verdict.ungraded == (0.015, 0)
    assert "gave up on 1.50% of the candidate's completions and 0.00% of the other's" in verdict.reason
    assert judged(old, new).decision == "HOLD", "it would be rejected"
    assert judged(items(150, 200), items(100, 200, ungraded=3)).decision == "HOLD"
    assert judged(items(150, 200, ungraded=2), old).decision == "PROMOTE", "a hundredth is taken"
    assert judged(new, old, measure="sampled/accuracy").decision == "PROMOTE"
    rough = items(150, 200, sampled={"ungraded": 0.015})
    assert judged(rough, old, measure="sampled/accuracy").decision == "HOLD"
    assert judged(rough, old).decision == "PROMOTE"


def test_sampled_accuracy_needs_samples() -> None:
    assert judged(items(150, 200), items(100, 200), measure="sampled/accuracy").gain.value == 0.25
    without = Report(items(150, 200).items.assign(n_samples=0), {})
    with pytest.raises(JudgefreeError, match="draws no samples"):
        judged(without, items(100, 200), measure="sampled/accuracy")


def test_items_must_be_the_same() -> None:
    with pytest.raises(JudgefreeError, match="tested on different items"):
        judged(items(10, 40), items(10, 41))


def test_items_needed_by_hand() -> None:
    # d = 0.5, s = 1.5 * sqrt(4/3) / 3 ... : values 0, 0, 1, 1 have s^2 = 1/3; n > 1.959964^2 / 3 / 0.25 = 5.12
    assert items_needed(np.array([0.0, 0, 1, 1]), 0.0, 0.95) == 6
    assert items_needed(np.array([0.0, 0, 1, 1]), 0.25, 0.95) == 21  # d - margin = 0.25: 20.49
    assert items_needed(np.array([0.0, 0, 1, 1]), 0.5, 0.95) is None
    assert items_needed(np.array([1.0]), 0.0, 0.95) is None


@given(st.lists(st.integers(-1, 1), min_size=2, max_size=60))
def test_the_needed_number_is_the_first_that_suffices(values: list[int]) -> None:
    differences = np.array(values, dtype=np.float64)
    needed = items_needed(differences, 0.0, 0.95)
    if differences.mean() <= 0:
        assert needed is None
        return
    spread, mean = differences.std(ddof=1), differences.mean()
    assert needed is not None and mean > 1.959963 * spread / math.sqrt(needed)
    assert needed == 1 or mean <= 1.959965 * spread / math.sqrt(needed - 1)


def test_ledger_for_people() -> None:
    judgement = judged(items(150, 200), items(100, 200))
    verdict = Verdict(
        "sums", "PROMOTE", judgement.reason, "rlvr", 3, 3, "champion version 1", {"b": "collapsed"}, judgement
    )
    text = verdict.markdown()
    assert "## sums: PROMOTE" in text and "rlvr (version 3) against champion version 1: +25.00 points" in text
    assert "| pass@1 | 0.7500 | 0.5000 | +0.2500" in text and "50 better, 0 worse" in text
    assert "- b was no candidate: collapsed" in text
    assert verdict.ledger()["judgement"]["guards"][0]["name"] == "unparsed"


def summaries(rouge: float, *, empty: float = 0.0, words: float = 20.0, sampled: bool = False) -> Report:
    """Two hundred and one texts, whose mean ROUGE-L is this."""
    wave = [rouge + 0.01 * (item % 3 - 1) for item in range(201)]
    frame = pd.DataFrame({"id": range(201), "gold": "a", "rouge_l": wave, "n_samples": 0})
    shares = {"empty": empty, "truncated": 0.0, "length": words}
    if sampled:
        frame = frame.assign(**{"sampled/rouge_l": frame["rouge_l"] - 0.1})
        shares |= {f"sampled/{name}": value for name, value in shares.items()}
    return Report(frame, shares)


def test_texts_are_gated_by_their_own_measure() -> None:
    new, old = summaries(0.31, sampled=True), summaries(0.30, sampled=True)
    verdict = judged(new, old, text_measure="rouge_l")
    assert verdict.decision == "PROMOTE" and verdict.measure == "rouge_l" and verdict.ungraded is None
    assert verdict.gain.value == pytest.approx(0.01) and verdict.scores == pytest.approx((0.31, 0.3), abs=1e-3)
    assert judged(new, old, measure="sampled/rouge_l").measure == "sampled/rouge_l"
    assert judged(old, old, measure="rouge_l").decision == "HOLD"
    assert judged(old, new, measure="rouge_l").decision == "REJECT"
    assert judged(items(150, 200), items(100, 200), text_measure="rouge_l").measure == "pass@1"
    text = Verdict("memo", "PROMOTE", verdict.reason, "spyrl", 1, 1, "its base tiny", {}, verdict).markdown()
    assert "| rouge_l | 0.31" in text and "| empty | 0 | 0 |" in text and "ungraded" not in text


def test_guards_of_texts() -> None:
    old = summaries(0.30)
    mute = judged(summaries(0.35, empty=0.02), old, measure="rouge_l")
    assert mute.decision == "REJECT" and "empty went from 0 to 0.02" in mute.reason
    assert "length went from 20 to 31" in judged(summaries(0.35, words=31), old, measure="rouge_l").reason
    with pytest.raises(JudgefreeError, match="gates.measure is sampled/rouge_l and suite s draws no samples"):
        judged(old, old, measure="sampled/rouge_l")
    with pytest.raises(JudgefreeError, match="gates.measure is pass@1 and suite s does not measure it"):
        judged(old, old)
