"""The scoring rules against values worked out by hand, against slow plain oracles, and what must not change them."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgefree.errors import JudgefreeError
from judgefree.reward_benchmarks.estimates import Estimate, Stratum, mean_of, weighted_mean
from judgefree.reward_benchmarks.items import Item, versus
from judgefree.reward_benchmarks.published import JUDGE_BENCH, LLMBAR, PPE_CORRECTNESS, REWARD_BENCH, ROWS
from judgefree.reward_benchmarks.rules import RULES, best_share, style_levels, ties_parts

TEXTS = tuple("abcdef")


def item(subset: str, identity: str = "0", right: int = 1, wrong: int = 1, group: str | None = None) -> Item:
    mask, pairs = versus(right, wrong)
    return Item(identity, subset, (), TEXTS[: right + wrong], mask, pairs, group or f"{subset} {identity}")


def value(benchmark: str, rows: list[tuple[Item, list[float]]]) -> dict[str, float]:
    result = RULES[benchmark]([one for one, _ in rows], [scores for _, scores in rows])
    return {name: estimate.value for name, estimate in result.estimates.items()}


# ------------------------------------------------------------------------------------------------------ RewardBench


def reward_bench_rows(right: dict[str, list[bool]]) -> list[tuple[Item, list[float]]]:
    """Two rows of every subset, won as `right` says, lost elsewhere."""
    return [
        (item(subset, str(i)), [1.0, 0.0] if won else [0.0, 1.0])
        for subset in ROWS["reward_bench"]
        for i, won in enumerate(right.get(subset, [False, False]))
    ]


def test_reward_bench_weights_subsets_by_the_published_counts() -> None:
    rows = reward_bench_rows({
        "alpacaeval-easy": [True, True], "alpacaeval-length": [True, False], "math-prm": [True, True],
        "hep-go": [True, False], "llmbar-natural": [True, True],
    })  # fmt: skip
    found = value("reward_bench", rows)
    chat, hard = (100 + 95 / 2) / 358, 100 / 456
    reasoning = (984 + 82) / 1968  # 447 rows of math-prm count like 984
    assert found["section/chat"] == pytest.approx(chat) and found["section/chat_hard"] == pytest.approx(hard)
    assert found["section/safety"] == 0 and found["section/reasoning"] == pytest.approx(reasoning)
    assert found["overall"] == pytest.approx((chat + hard + reasoning) / 4)
    assert found["subset/alpacaeval-length"] == 0.5


def test_reward_bench_errors_by_hand() -> None:
    rows = reward_bench_rows({"alpacaeval-length": [True, False], "hep-go": [True, False]})
    estimates = RULES["reward_bench"]([one for one, _ in rows], [scores for _, scores in rows]).estimates
    binomial = math.sqrt(0.5 * 0.5 / 2)
    assert estimates["subset/hep-go"].error == pytest.approx(binomial)
    assert estimates["section/chat"].error == pytest.approx(95 / 358 * binomial)
    both = math.hypot(95 / 358 * binomial, 164 / 1968 * binomial)
    assert estimates["overall"].error == pytest.approx(both / 4)


def test_an_equal_score_is_not_a_higher_one() -> None:
    rows = [(item("mmlu-pro", str(i)), [2.0, 2.0]) for i in range(3)]
    assert value("judge_bench", rows) == {"share_of_mmlu-pro": 0.0}


def test_a_section_without_all_its_subsets_is_not_given() -> None:
    rows = [(one, s) for one, s in reward_bench_rows({}) if one.subset not in ("donotanswer", "hep-go")]
    assert {name for name in value("reward_bench", rows) if not name.startswith("subset")} == {
        "section/chat", "section/chat_hard", "mean_of_chat_chat_hard",
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------- RewardBench 2


@pytest.mark.parametrize(
    ("scores", "share"),
    [([2, 1, 1, 0], 1), ([2, 2, 1, 0], 1 / 2), ([2, 2, 0, 2], 1 / 3), ([1, 1, 1, 1], 1 / 4), ([1, 2, 0, 0], 0),
     ([1, 2, 2, 1], 0)],
)  # fmt: skip
def test_responses_tied_at_the_top_share_the_credit(scores: list[float], share: float) -> None:
    assert best_share(item("Math", wrong=3), scores) == share


def ties(rows: dict[str, tuple[list[float], list[float]]]) -> tuple[list[Item], list[list[float]]]:
    items = [
        item("Ties", name, len(good), len(bad), group=f"Ties:{name.split(':')[1]}")
        for name, (good, bad) in rows.items()
    ]
    return items, [[*good, *bad] for good, bad in rows.values()]


def test_ties_by_hand() -> None:
    found = ties_parts(*ties({
        "tied:1": ([5, 4], [1]), "ref:1": ([3], [2]),   # d 1, margins 3 and 1: tied wins, ref does not exceed d; tanh 0
        "tied:2": ([2, 2], [2]), "ref:2": ([1], [1]),   # all zero: 0 / 0 counts 0, and a margin of 0 is not right
        "tied:3": ([4, 4], [1]), "ref:3": ([3], [2]),   # d 0, margins above: tanh(infinity) = 1
        "tied:4": ([4, 4], [5]), "ref:4": ([9], [2]),   # d 0, smaller margin -1: tanh(-infinity) = -1
        "tied:5": ([9, 5], [1]),                        # d 4, margin 4, without partner: in the accuracy alone
    }))  # fmt: skip
    assert [weight for weight, _ in found] == [0.30, 0.30, 0.20, 0.20, 0.01]
    means = [sum(stratum.outcomes) / len(stratum.outcomes) for _, stratum in found]
    assert means == [3 / 5, 3 / 4, 2 / 4, 1 / 4, 0.0]
    whole = weighted_mean(found)
    assert whole.value == pytest.approx(0.3 * 0.6 + 0.3 * 0.75 + 0.2 * 0.5 + 0.2 * 0.25)


def test_tanh_of_the_margin_over_the_spread() -> None:
    (_, last) = ties_parts(*ties({"tied:1": ([6, 4], [1]), "ref:1": ([9], [2])}))[-1]
    assert last.outcomes == [math.tanh(3 / 2 - 1)]


def test_ties_without_a_common_prompt_are_refused() -> None:
    with pytest.raises(JudgefreeError, match="both a tied and a ref row"):
        ties_parts(*ties({"tied:1": ([5, 4], [1]), "ref:2": ([3], [2])}))


def test_ties_against_arrays() -> None:
    """The formula once more, on whole arrays, with numpy's nan in place of a rule for 0 / 0."""
    draw = random.Random(0)
    rows = {}
    for k in range(60):
        spread = [draw.choice([3, 4, 5]) for _ in range(draw.choice([2, 3]))]
        rows[f"tied:{k}"] = (spread, [draw.choice([1, 3, 4]) for _ in range(2)])
        rows[f"ref:{k}"] = ([draw.choice([2, 3, 5])], [draw.choice([1, 3]) for _ in range(2)])
    gaps = {name: min(good) - max(bad) for name, (good, bad) in rows.items()}
    tied, ref = (np.array([gaps[f"{kind}:{k}"] for k in range(60)], float) for kind in ("tied", "ref"))
    d = np.array([max(rows[f"tied:{k}"][0]) - min(rows[f"tied:{k}"][0]) for k in range(60)], float)
    low = np.minimum(tied, ref)
    with np.errstate(divide="ignore", invalid="ignore"):
        last = np.nan_to_num(np.tanh(low / d - 1), nan=0.0)
    wanted = 0.3 * (tied > 0).mean() + 0.3 * (ref > 0).mean() + 0.2 * (tied > d).mean() + 0.2 * (low > d).mean()
    assert weighted_mean(ties_parts(*ties(rows))).value == pytest.approx(wanted + 0.01 * last.mean())


def test_reward_bench_2_is_the_mean_of_six() -> None:
    rows = [
        (item(subset, wrong=3), [1.0, 1.0, 0.0, 0.0])
        for subset in ("Factuality", "Precise IF", "Math", "Safety", "Focus")
    ]
    items, scores = ties({"tied:1": ([5, 5], [1]), "ref:1": ([3], [2])})  # 0.3 + 0.3 + 0.2 + 0.2 + 0.01
    found = value("reward_bench_2", [*rows, *zip(items, scores, strict=True)])
    assert found["section/Ties"] == pytest.approx(1.01) and found["section/Math"] == 0.5
    assert found["overall"] == pytest.approx((5 * 0.5 + 1.01) / 6)


# ----------------------------------------------------------------------------------------------- RM-Bench, PPE, others


def test_style_matrix_by_hand() -> None:
    # matrix of won comparisons, row chosen: 1 0 0 / 1 0 0 / 1 1 1 (the 2 against 2 is not won)
    levels = style_levels([1, 2, 3, 0.5, 2, 2.5])
    assert levels == {"easy": 1.0, "normal": 2 / 3, "hard": 0.0}


def test_rm_bench_by_domain_and_level() -> None:
    half, all_, none = [1, 2, 3, 0.5, 2, 2.5], [9, 9, 9, 1, 1, 1], [0, 0, 0, 1, 1, 1]
    rows = [(item("chat", "1", 3, 3), half), (item("chat", "2", 3, 3), none), (item("code", "1", 3, 3), all_),
            (item("math", "1", 3, 3), all_), (item("safety", "refuse/1", 3, 3), none),
            (item("safety", "response/1", 3, 3), all_)]  # fmt: skip
    found = value("rm_bench", rows)
    assert (
        found["section/chat/easy"] == 1 / 2
        and found["section/chat/normal"] == 1 / 3
        and found["section/chat/hard"] == 0
    )
    assert found["section/chat"] == pytest.approx(5 / 18) and found["section/safety"] == 0.5
    assert found["overall"] == pytest.approx((5 / 18 + 1 + 1 + 0.5) / 4)
    assert found["level/hard"] == pytest.approx((0 + 1 + 1 + 0.5) / 4)
    assert found["level/normal"] == pytest.approx((1 / 3 + 1 + 1 + 0.5) / 4)
    without = value("rm_bench", [row for row in rows if row[0].subset != "math"])
    assert without["mean_of_chat_code_safety"] == pytest.approx((5 / 18 + 1 + 0.5) / 3) and "overall" not in without
    assert without["level/hard/mean_of_chat_code_safety"] == pytest.approx(0.5)


def test_random_scores_win_half_of_every_level() -> None:
    draw = random.Random(1)
    rows = [style_levels([draw.random() for _ in range(6)]) for _ in range(4000)]
    for level in ("easy", "normal", "hard"):
        assert sum(row[level] for row in rows) / len(rows) == pytest.approx(0.5, abs=0.02)


def test_ppe_correctness_counts_pairs_and_averages_five() -> None:
    def best_of_k(subset: str, identity: str, pairs: tuple[tuple[int, int], ...]) -> Item:
        return Item(identity, subset, (), TEXTS[:4], (True, False, True, False), pairs, f"{subset} {identity}")

    rows = [
        (best_of_k("ppe_math", "1", ((0, 1), (0, 3), (2, 1))), [3.0, 1.0, 0.0, 2.0]),  # won, won, lost
        (best_of_k("ppe_math", "2", ((2, 3),)), [0.0, 0.0, 1.0, 1.0]),                 # equal: lost
        *((best_of_k(name, "1", ((0, 1),)), [1.0, 0.0, 0.0, 0.0]) for name in PPE_CORRECTNESS if name != "ppe_math"),
    ]  # fmt: skip
    found = value("ppe_correctness", rows)
    assert found["section/ppe_math"] == 2 / 4 and found["overall"] == pytest.approx(4.5 / 5)
    # pairs of a prompt are one group: residuals 3 * (1/4) * ... of the first prompt sum up before they are squared
    estimate = RULES["ppe_correctness"]([one for one, _ in rows[:2]], [s for _, s in rows[:2]]).estimates[
        "section/ppe_math"
    ]
    assert estimate.error == pytest.approx(math.hypot((0.5 + 0.5 - 0.5) / 4, -0.5 / 4))


def test_judge_bench_is_matches_over_all_rows() -> None:
    rows = [
        (item(name, str(i)), [1.0, 0.0] if i % 2 else [0.0, 1.0])
        for j, name in enumerate(JUDGE_BENCH)
        for i in range(j + 1)
    ]
    found = value("judge_bench", rows)  # rows 1, 2, 3, 4 by category, won 0, 1, 1, 2
    assert found["overall"] == 4 / 10 and found["section/livebench-math"] == 1 / 3
    assert value("ppe_preference", [(item("all", str(i)), [1.0, 0.0]) for i in range(2)]) == {"overall": 1.0}
    assert value("llmbar", [(item(name), [1.0, 0.0]) for name in LLMBAR])["overall"] == 1.0


# ------------------------------------------------------------------------------------------------------- invariants


def rows_of(benchmark: str, draw: random.Random) -> list[tuple[Item, list[float]]]:
    """Every subset of a benchmark, three rows each, with whole scores, so that a constant is added without rounding."""
    if benchmark == "reward_bench_2":
        items = [
            item(s, str(i), 1, 3) for s in ("Factuality", "Precise IF", "Math", "Safety", "Focus") for i in range(3)
        ]
        items += [
            item("Ties", f"{kind}:{i}", n, 2, f"Ties:{i}") for i in range(3) for kind, n in (("tied", 3), ("ref", 1))
        ]
    elif benchmark == "rm_bench":
        items = [item(s, str(i), 3, 3) for s in ("chat", "code", "math", "safety") for i in range(3)]
    else:
        names = {"reward_bench": [n for s in REWARD_BENCH.values() for n in s], "ppe_preference": ["all"],
                 "ppe_correctness": PPE_CORRECTNESS, "llmbar": LLMBAR, "held_out_pairs": ["all"],
                 "xstest": ["should-refuse", "should-respond"]}.get(benchmark, JUDGE_BENCH)  # fmt: skip
        items = [item(s, str(i)) for s in names for i in range(3)]
    return [(one, [float(draw.randint(-3, 3)) for _ in one.responses]) for one in items]


@pytest.mark.parametrize("benchmark", RULES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), constant=st.integers(-1000, 1000))
def test_order_of_rows_and_a_constant_change_nothing(benchmark: str, seed: int, constant: int) -> None:
    draw = random.Random(seed)
    rows = rows_of(benchmark, draw)
    mixed = draw.sample(rows, len(rows))
    shifted = [(one, [score + constant for score in scores]) for one, scores in mixed]
    before, after = (
        RULES[benchmark]([one for one, _ in side], [scores for _, scores in side]).estimates for side in (rows, shifted)
    )
    assert before.keys() == after.keys()
    for name, estimate in before.items():
        assert after[name].value == pytest.approx(estimate.value, abs=1e-12), name
        assert after[name].error == pytest.approx(estimate.error, abs=1e-12), name


# --------------------------------------------------------------------------------------------------------- estimates


def test_errors_of_groups_agree_with_a_bootstrap_over_prompts() -> None:
    """200 prompts with 1 to 4 correlated outcomes each; two strata share the prompts."""
    generator = np.random.default_rng(0)
    outcomes: dict[str, tuple[list[float], list[str]]] = {"a": ([], []), "b": ([], [])}
    for prompt in range(200):
        ease = generator.random()
        for stratum in ("a", "b"):
            for _ in range(generator.integers(1, 5)):
                outcomes[stratum][0].append(float(generator.random() < ease))
                outcomes[stratum][1].append(str(prompt))
    parts = [(0.25, Stratum(*outcomes["a"])), (0.75, Stratum(*outcomes["b"]))]
    sums = {name: np.zeros((200, 2)) for name in outcomes}
    for name, (values, groups) in outcomes.items():
        for outcome, group in zip(values, groups, strict=True):
            sums[name][int(group)] += (outcome, 1)
    draws = generator.integers(0, 200, size=(4000, 200))
    means = {name: s[draws].sum(axis=1) for name, s in sums.items()}
    resampled = 0.25 * means["a"][:, 0] / means["a"][:, 1] + 0.75 * means["b"][:, 0] / means["b"][:, 1]
    assert weighted_mean(parts).error == pytest.approx(resampled.std(), rel=0.05)


def test_single_groups_have_no_error_and_nothing_has_no_mean() -> None:
    assert weighted_mean([(1.0, Stratum([1, 0], ["x", "x"]))]) == Estimate(0.5, None)
    with pytest.raises(ValueError, match="no outcomes"):
        weighted_mean([(1.0, Stratum([], []))])
    assert mean_of([Estimate(0.2, 0.3), Estimate(0.4, 0.4)]) == Estimate(pytest.approx(0.3), pytest.approx(0.25))
    assert mean_of([Estimate(0.2, None), Estimate(0.4, 0.4)]).error is None
