"""What `make reproduce` concludes from curves: every figure here is worked out by hand."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchmarks import memo_faults, spyrl_results
from benchmarks.claims import (
    Claim,
    Interval,
    Played,
    facts,
    lifetime,
    over_seeds,
    paired,
    rises,
    rlif_claims,
    spyrl_claims,
    srrl_claims,
    steps_to,
    windows,
)
from benchmarks.reproduce import PROFILE
from benchmarks.results_page import arms_table, claims_table, first_alarm, retry_table
from judgefree.config import Run, Suite
from judgefree.files import pretty_json, write_atomic
from judgefree.params import load_params

HELD = {0: 0.5, 20: 0.8, 40: 0.9, 60: 0.9}
FELL = {0: 0.5, 20: 0.8, 40: 0.3, 60: 0.1}


def test_facts_of_a_run() -> None:
    assert facts(FELL) == {
        "start": 0.5, "peak": 0.8, "peak_step": 20, "collapse_step": 40, "retention": 0.125, "end": 0.1,
    }  # fmt: skip
    assert facts(HELD)["collapse_step"] is None
    assert (lifetime(HELD), lifetime(FELL)) == (1.0, pytest.approx(40 / 60))


def test_interval_over_seeds() -> None:
    # mean 2, standard deviation 1, three seeds: 2 +- 4.302653 / sqrt(3)
    interval = over_seeds([1.0, 2.0, 3.0])
    assert interval.mean == 2.0 and interval.seeds == 3
    assert interval.high - 2 == pytest.approx(4.302653 / math.sqrt(3), abs=1e-6)
    assert interval.low == pytest.approx(4 - interval.high)
    with pytest.raises(ValueError, match="two of them"):
        over_seeds([1.0])


def test_seeds_are_paired() -> None:
    runs = {"a": {0: {1: 0.5}, 1: {1: 0.9}, 2: {1: 0.1}}, "b": {1: {1: 0.8}, 0: {1: 0.4}}}
    assert paired(runs, "a", "b", lambda curve: curve[1]).mean == pytest.approx(0.1)
    assert paired(runs, "a", "b", lambda curve: curve[1]).low == pytest.approx(0.1), "no spread once paired"


def test_steps_until_a_level() -> None:
    assert steps_to(HELD, 0.85) == pytest.approx(40 / 60)
    assert steps_to(HELD, 0.95) == pytest.approx(80 / 60), "never: one checkpoint after the end"


def test_a_claim_holds_only_with_its_whole_interval() -> None:
    figure = Interval(0.85, 0.79, 0.91, 5)
    assert not Claim("keeps", figure, 0.8, True, "share").holds
    assert Claim("keeps", figure, 0.78, True, "share").holds
    assert Claim("loses", figure, 0.92, False, "share").holds
    assert not Claim("loses", figure, 0.9, False, "share").holds


def shifted(curve: dict[int, float], by: float) -> dict[int, dict[int, float]]:
    return {0: curve, 1: {step: value + by for step, value in curve.items()}}


def test_claims_of_rlif() -> None:
    runs = {"grpo": shifted(HELD, 0.01), "intuitor": shifted(FELL, 0.01), "cluster": shifted(FELL, 0.01),
            "multi": shifted(FELL, 0.02), "multi-kl-cov": shifted(HELD, 0.02), "combine": shifted(FELL, 0.02)}  # fmt: skip
    verdicts = [claim.holds for claim in rlif_claims(runs)]
    assert verdicts == [True, True, False, True, True, False, True, True]
    # grpo - multi-kl-cov at the peak: 0 and -0.01, so -0.5 +- 12.706 * 0.5 points: within 5 is not shown by two seeds
    within = rlif_claims(runs)[5].figure
    assert within.mean == pytest.approx(-0.005) and within.high == pytest.approx(-0.005 + 12.7062 * 0.005, abs=1e-5)


def test_claims_of_srrl() -> None:
    slow = {0: 0.3, 20: 0.4, 40: 0.5, 60: 0.6}
    fast = {0: 0.3, 20: 0.5, 40: 0.62, 60: 0.7}
    arms = ["rft-orders", "srrl-no-memory", "srrl-no-distillation", "srrl-no-gate"]
    runs = {"srrl": shifted(fast, 0.0), "rlvr-orders": shifted(slow, 0.0), **{arm: shifted(fast, 0.0) for arm in arms}}
    claims = srrl_claims(runs)
    assert claims[0].figure.mean == pytest.approx(0.1) and claims[0].holds
    assert claims[1].figure.mean == pytest.approx(20 / 60) and claims[1].holds
    assert [claim.holds for claim in claims[2:]] == [False] * 4, "nothing gained, and nothing lost without a piece"


def of_a_game(rouge: float, rho: float = -0.4) -> dict[str, float]:
    return {"rouge_l": rouge, "sampled/rouge_l": rouge - 0.1, "words": 4.0, "game/detector_accuracy": 0.5,
            "game/vote_rank_correlation": rho}  # fmt: skip


# Thirty rollouts: their tens have 0.4, 0.6 and 0.5 of the votes right; what is left at the end is no ten.
FOUND = [*([0.3, 0.5] * 5), *([0.6] * 10), *([0.5] * 10), 1.0]


def test_claims_of_spyrl() -> None:
    base = of_a_game(0.8)
    runs = {"spyrl": {seed: Played(of_a_game(0.9 + 0.01 * seed), base, FOUND) for seed in (0, 1)},
            "spyrl-joint": {seed: Played(of_a_game(0.6 + 0.01 * seed), base, FOUND) for seed in (0, 1)},
            "spyrl-no-spy": {0: Played(of_a_game(0.6), base, FOUND)}}  # fmt: skip
    greedy, sampled, risen, last, aligned, joint = spyrl_claims(runs)
    # 0.10 and 0.11 above the base: 0.105 +- 12.7062 * 0.005
    assert greedy.figure.mean == pytest.approx(0.105) == sampled.figure.mean
    assert greedy.figure.low == pytest.approx(0.105 - 12.7062 * 0.005, abs=1e-5) and greedy.holds
    assert windows(FOUND) == pytest.approx([0.4, 0.6, 0.5])
    assert risen.figure.mean == pytest.approx(0.2) and risen.holds
    assert last.figure.mean == 0 and not last.holds, "0.5 before and after"
    assert aligned.figure.mean == -0.4 and aligned.holds, "worse outputs have more votes: below 0"
    assert joint.figure.mean == pytest.approx(0.3) and joint.holds and "both sides" in joint.text
    with pytest.raises(ValueError, match="9 rollouts are fewer than 10"):
        windows(FOUND[:9])


def test_a_peak_is_not_what_noise_makes_of_it() -> None:
    """Accuracy that never changes: 5 seeds, 160 rollouts of 80 votes, 300 times. A 95 % interval errs above in 2.5 %."""
    rng = np.random.default_rng(0)
    held = [over_seeds(rises(rng.binomial(80, 0.45, size=(5, 160)) / 80)).low > 0 for _ in range(300)]
    assert np.mean(held) < 0.06
    assert rises([FOUND, [0.5] * 30]) == pytest.approx([0.0, 0.0]), "each other's peak: the first ten, then the second"


def test_a_run_in_which_nobody_votes_any_more_is_told_too(tmp_path: Path) -> None:
    silent = {key: value for key, value in of_a_game(0.6).items() if key != "game/vote_rank_correlation"}
    runs = {"spyrl": {seed: Played(silent, of_a_game(0.8), [0.0] * 20) for seed in (0, 1)}}
    assert [claim.holds for claim in spyrl_claims(runs)] == [False] * 4
    run = {"training": SimpleNamespace(validation_items=2, save_every=2), "start": "w", "curve": {0: 0.8}, "test": silent,
           "base": of_a_game(0.8), "detectors": [0.0] * 20, "completions": 1.0, "tokens": 1.0}  # fmt: skip
    text, _ = spyrl_results.section({"spyrl": {0: run}}, tmp_path / "plot.png")
    assert "| 0.0 | - | 0.0 | 50.0 | - | 0 | 0 |" in text, "one seed has no peak to be found in others"


def test_the_section_of_the_spy_game(tmp_path: Path) -> None:
    training = SimpleNamespace(validation_items=200, save_every=20)
    run = {"training": training, "start": "warmup", "curve": {0: 0.8, 20: 0.9}, "base": of_a_game(0.8), "detectors": FOUND,
           "completions": 10_240.0, "tokens": 61_800.0}  # fmt: skip
    arms = {"spyrl": {seed: {**run, "test": of_a_game(0.85 + 0.1 * seed)} for seed in (0, 1)}}
    text, claims = spyrl_results.section(arms, tmp_path / "plot.png")
    assert "| warmup (their start) | 1 |  |  | 80.0 | 4.0 | 70.0 |  |  |  | 50.0 | -0.40 |  |  |" in text
    start = "| spyrl | 2 | 80.0 ± 0.0 | 90.0 ± 0.0 | 90.0 ± 7.1 | 4.0 | 80.0 ± 7.1 |"
    assert f"{start} 40.0 ± 0.0 | 60.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 | -0.40 ± 0.00 | 10 | 62 |" in text
    assert "of 200 rows, every 20 steps" in text and len(claims) == 5
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_faults_of_a_memos_writers_counted_by_hand() -> None:
    source = "energy was audited. it cost 34 million. approved in 2014. sites in the north. a map follows."
    assert memo_faults.read(source) == {"agency": "energy", "amount": "34", "year": "2014", "region": "north"}
    # The spy saw "energy was audited." and "... in 2014. sites in the north." The second game's civilian says all but one.
    records = pd.DataFrame([
        {"step": 0, "prompt_id": "a", "role": "performer", "slot": 0, "spy": 0, "source": source, "span_start": 20.0,
         "span_end": 50.0, "output": "energy 34 2013", "votes": 3},
        {"step": 0, "prompt_id": "a", "role": "detector", "slot": 0, "spy": 0},
        {"step": 4, "prompt_id": "b", "role": "performer", "slot": 0, "spy": 1, "source": source, "span_start": 20.0,
         "span_end": 50.0, "output": "energy 34 2014", "votes": 1},
    ])  # fmt: skip
    table = memo_faults.by_part(records)
    spy = table.loc[("spy", 1)]
    assert (spy["left out"], spy["wrong"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3)), "no north, another year"
    assert (spy["hidden named"], spy["hidden right"], spy["votes"]) == (1, 1, 3)
    civilian = table.loc[("civilian", 5)]
    assert civilian["left out"] == 0.25 and civilian["wrong"] == 0 and civilian["votes"] == 1


def test_claims_are_made_of_arms_with_two_seeds_only() -> None:
    assert rlif_claims({"grpo": shifted(HELD, 0.01), "intuitor": {0: FELL}}) == []
    assert [claim.figure.seeds for claim in rlif_claims({"cluster": shifted(FELL, 0.01)})] == [2]
    assert srrl_claims({"srrl": shifted(HELD, 0.01), "rlvr-orders": {0: HELD}}) == []


def test_the_first_alarm_is_told() -> None:
    """Lengths and KL leave their limits at step 9: two alarms that did not stand in the first rollout."""
    monitor = load_params(PROFILE).training.monitor
    assert monitor
    limits = monitor.model_copy(update={"window": 1})
    healthy = {"completions/mean_length": 10.0, "kl": 0.01}
    rows = {1: healthy, 5: healthy, 9: {"completions/mean_length": 4.0, "kl": 2.0}, 13: healthy}
    assert first_alarm(rows, limits) == 9
    assert first_alarm({1: healthy, 5: healthy}, limits) is None and first_alarm(rows, None) is None


def test_tables_tell_every_arm_and_verdict() -> None:
    run = {"own_choice": 0.9, "test": {"pass@1": 0.85}, "completions": 9600.0, "tokens": 192_400.0, "alarm": 24}
    table = arms_table({"multi": {0: {"curve": HELD, **run}, 1: {"curve": FELL, **run}}})
    assert "| multi | 2 | 50.0 ± 0.0 | 85.0 ± 7.1 | 50.0 ± 56.6 |" in table
    assert "| 1 of 2 (from step 40) | 2 of 2 (from step 24) | 90.0 ± 0.0 | 85.0 ± 0.0 | - | 10 | 192 |" in table
    claims = [Claim("A", Interval(0.1, 0.05, 0.15, 5), 0.0, True, "points"),
              Claim("B", Interval(0.7, 0.6, 0.8, 5), 0.8, True, "share")]  # fmt: skip
    shown = claims_table(claims)
    assert "| A | +10.0 points | +5.0 to +15.0 | held |" in shown
    assert "| B | 0.70 share | 0.60 to 0.80 | **not held** |" in shown


def test_table_of_further_attempts(tmp_path: Path) -> None:
    """Two seeds of an arm with a retry suite, and a model without one, which is left out."""
    suite = {"dataset": "orders", "max_completion_tokens": 8, "batch_rows": 8}
    retry = {"procedure": "self_refine", "rounds": 1, "prompts": "prompts/x.yaml"}
    suites = {"orders": Suite.model_validate(suite), "refine": Suite.model_validate({**suite, "retry": retry})}
    run = {"method": "srrl", "dataset": "orders", "start_from": "base", "select": "last"}
    runs = {
        f"srrl-s{seed}": Run.model_validate({**run, "seed": seed, "arm": "srrl", "suites": ["orders", "refine"]})
        for seed in (0, 1)
    }
    runs["plain"] = Run.model_validate({**run, "seed": 0, "suites": ["orders"]})
    for name, model in runs.items():
        for suite_name in model.suites:
            seed = float(name.endswith("1"))
            metrics = {"pass@1": 0.5 + 0.1 * seed, "length": 10 + seed, "retry/tokens": 30 + seed}
            write_atomic(tmp_path / "reports" / "runs" / name / suite_name / "metrics.json", pretty_json(metrics))
        write_atomic(tmp_path / "reports" / "runs" / name / "manifest.json", "{}")
    table = retry_table(tmp_path, SimpleNamespace(suites=suites, runs=runs), "orders")
    assert "| arm | one attempt | tokens | self_refine | tokens |" in table
    assert "| srrl | 55.0 ± 7.1 | 10.5 | 55.0 ± 7.1 | 30.5 |" in table
    assert "plain" not in table
    assert retry_table(tmp_path, SimpleNamespace(suites=suites, runs=runs), "arithmetic") == ""
