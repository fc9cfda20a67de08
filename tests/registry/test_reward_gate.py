"""The gate of reward models, on outcomes made by hand."""

from dataclasses import replace

import pandas as pd
import pytest

from judgefree.config import Compare
from judgefree.config_rewards import RewardGates
from judgefree.errors import JudgefreeError
from judgefree.registry.gate import Judgement, Report, Verdict
from judgefree.registry.reward_gate import best_ruler, judge_rewards, prompt_scores

GATES = RewardGates(rank_by="llmbar", margin=0.0, min_items=30, max_fall=0.02)
COMPARE = Compare(resamples=2000, seed=0, confidence=0.95)


def report(
    right: int, of: int = 200, *, longest: int = 0, shortest: int = 0, chance: int = 0, **others: float
) -> Report:
    """The first `right` prompts are right, as many by the rulers; others: overall scores of other benchmarks."""
    counts = {"": right, "_length": longest, "_length_short": shortest, "_random": chance}
    frame = pd.DataFrame({"group": [f"{item:04d}" for item in range(of)]})
    for ruler, count in counts.items():
        frame[f"outcome{ruler}"] = [float(item < count) for item in range(of)]
    metrics = {f"reward_bench/{name}/overall": value for name, value in others.items()}
    return Report(frame, {"reward_bench/llmbar/overall": right / of, **metrics})


def judged(new: Report, old: Report | None, choices: int = 1, **gates: object) -> Judgement:
    return judge_rewards(new, old, GATES.model_copy(update=gates), COMPARE, choices)


def test_better_is_promoted_a_tie_holds_and_worse_is_rejected() -> None:
    better = judged(report(150), report(100))
    assert better.decision == "PROMOTE" and better.gain.value == 0.25 and (better.better, better.worse) == (50, 0)
    # 50 of 200 prompts differ: the mean's error is sqrt(0.25 * 0.75 / 200) = 0.0306
    assert better.gain.low == pytest.approx(0.25 - 1.96 * 0.0306, abs=0.01) and better.measure == "llmbar"
    assert judged(report(100), report(100)).decision == "HOLD"
    assert judged(report(100), report(150)).decision == "REJECT"
    assert judged(report(150), report(100), margin=0.24).decision == "HOLD"
    few = judged(report(20, 20), report(10, 20))
    assert few.decision == "HOLD" and "on only 20 items; 30 are needed" in few.reason


def test_the_first_must_beat_the_best_ruler() -> None:
    """Of the rulers, the shortest wins most: 120 of 200. Four prompts more may be chance, as many are none."""
    rulers = {"longest": 80, "shortest": 120, "chance": 100}
    assert best_ruler(report(0, **rulers).items) == "length_short"
    verdict = judged(report(160, **rulers), None)
    assert verdict.decision == "PROMOTE" and verdict.scores == (0.8, 0.6) and verdict.gain.value == pytest.approx(0.2)
    # 2 of 200 differ: the lower end of the interval is at or just above 0
    assert judged(report(122, **rulers), None, margin=0.001).decision == "HOLD"
    tie = judged(report(120, **rulers), None)
    assert tie.decision == "REJECT" and tie.reason == "0.6 is not above 0.6 of ruler length_short"


def test_what_beats_the_champion_must_beat_the_rulers_too() -> None:
    verdict = judged(report(150, longest=150, chance=160), report(100))
    assert verdict.decision == "REJECT"
    assert verdict.reason == "0.75 is not above 0.75 of ruler length; 0.75 is not above 0.8 of ruler random"
    assert judged(report(150, longest=149), report(100)).decision == "PROMOTE"
    text = Verdict("a", "REJECT", verdict.reason, "judge", 1, None, "champion version 1", {}, verdict).markdown()
    assert "| ruler length | 0.75 | 0.75 | 0 | below 0: broken |" in text
    assert "The interval is of 0.95 confidence, from 2,000 resamples." in text
    assert "| ruler length_short | 0.75 | 0 | -0.75 | below 0: held |" in text


def test_no_benchmark_may_fall_far() -> None:
    """0.73 after 0.75 is a fall of just the limit; a figure by its parts is a guard too."""
    old = report(100, xstest=0.75)
    assert judged(report(150, xstest=0.73), old).decision == "PROMOTE"
    fallen = judged(report(150, xstest=0.72), old)
    assert fallen.decision == "REJECT" and "reward_bench/xstest/overall went from 0.75 to 0.72" in fallen.reason
    assert judged(report(100, xstest=0.5), old).decision == "REJECT"
    names = ("overall", "overall_se", "mean_of_chat_code", "section/chat", "items")
    whole = [Report(side.items, {f"reward_bench/rm_bench/{name}": value for name in names})
             for side, value in ((report(150), 0.1), (report(100), 0.9))]  # fmt: skip
    guards = [guard.name for guard in judged(*whole).guards if not guard.strict]
    assert guards == ["reward_bench/rm_bench/overall", "reward_bench/rm_bench/mean_of_chat_code"]


def test_the_official_score_of_the_deciding_benchmark_may_not_fall_far_either() -> None:
    """More prompts are right, but of the sections that weigh less."""
    score = "reward_bench/llmbar/overall"
    fallen = judged(replace(report(150), metrics={score: 0.4}), replace(report(100), metrics={score: 0.5}))
    assert fallen.decision == "REJECT" and f"{score} went from 0.5 to 0.4" in fallen.reason


def test_prompts_count_once() -> None:
    """Two items of prompt a are one score; without that, 3 of 4 items were right."""
    frame = pd.DataFrame({"group": ["b", "a", "a", "c"], "outcome": [1.0, 1.0, 0.0, 1.0]})
    assert prompt_scores(frame).to_dict() == {"a": 0.5, "b": 1.0, "c": 1.0}
    verdict = judged(report(150, 200), report(100, 200))
    doubled = [Report(pd.concat([side.items, side.items]), side.metrics) for side in (report(150), report(100))]
    assert judged(*doubled).gain == verdict.gain and judged(*doubled).items == 200


def test_choosing_the_best_of_many_by_the_same_rows_makes_the_interval_surer() -> None:
    one, ten = judged(report(150), report(100)), judged(report(150), report(100), choices=10)
    # z of 99.5 % against 95 %: 2.81 / 1.96 = 1.43 times as far
    assert (ten.gain.value - ten.gain.low) / (one.gain.value - one.gain.low) == pytest.approx(1.43, abs=0.15)
    assert (one.confidence, one.resamples) == (0.95, 2000)
    assert (ten.confidence, ten.resamples) == (pytest.approx(0.995), 20_000)
    close = report(107)  # 7 of 200 differ
    assert judged(close, report(100)).decision == "PROMOTE"
    assert judged(close, report(100), choices=1000).decision == "HOLD"


def test_prompts_must_be_the_same() -> None:
    with pytest.raises(JudgefreeError, match="judged by different prompts of llmbar"):
        judged(report(10, 40), report(10, 41))
