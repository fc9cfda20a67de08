"""Arena-Hard's rules by hand: scores, strong verdicts, dropped prompts, bootstrap, style."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from judgefree.config_benchmarks import ArenaHard
from judgefree.errors import JudgefreeError
from judgefree.pairwise_benchmarks.arena_data import load_prompts
from judgefree.pairwise_benchmarks.arena_hard import (
    battles,
    bootstrap_rows,
    by_category,
    game_scores,
    score_category,
    win_rate,
)
from judgefree.pairwise_benchmarks.style import controlled, style, style_terms
from tests.pairwise_benchmarks.world import ARENA, GENERATION, write_arena

OFFICIAL = {"A>B": [1], "A>>B": [1] * 3, "A=B": [0.5], "A<<B": [0] * 3, "A<B": [0],
            "B>A": [0], "B>>A": [0] * 3, "B=A": [0.5], "B<<A": [1] * 3, "B<A": [1]}  # fmt: skip


def games(*verdicts: tuple[str, str | None, str | None]) -> pd.DataFrame:
    """(id, verdict with the baseline first, verdict with the model first)."""
    return pd.DataFrame([
        {"id": name, "model_first": first, "verdict": verdict}
        for name, *pair in verdicts for first, verdict in zip((False, True), pair, strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize("label", OFFICIAL)
def test_all_ten_labels(label):
    assert game_scores(label, model_first=True) == OFFICIAL[label]
    assert game_scores(label, model_first=False) == [1 - score for score in OFFICIAL[label]]


@pytest.mark.parametrize("label", [None, "", "A", "A>A", "A>>>B", "C>B", "A=", "=", "AB"])
def test_what_is_no_verdict(label):
    assert game_scores(label, model_first=True) is None


def test_a_table_by_hand():
    table = games(
        ("a", "B>>A", "A>B"),  # model much better, model better: 1, 1, 1, 1
        ("b", "A=B", "B>>A"),  # tie, baseline much better: 0.5, 0, 0, 0
        ("c", "A>B", None),  # left out
        ("d", "A>B", "A>B"),  # always the first: 0, 1
    )
    rows = battles(table)
    assert rows["score"].tolist() == [1, 1, 1, 1, 0.5, 0, 0, 0, 0, 1]
    assert rows["id"].tolist() == ["a"] * 4 + ["b"] * 4 + ["d"] * 2
    found = score_category(table, "hard_prompt", seed=0)
    assert found["win_rate"] == 0.55 and (found["prompts"], found["dropped"]) == (3, 1)


def test_the_interval_is_that_of_a_plain_bootstrap():
    scores = np.array([1, 1, 1, 0, 0.5, 0, 0, 1])
    means = sorted(np.mean([scores[row] for row in draw]) for draw in bootstrap_rows(8, seed=4))
    assert len(means) == 100
    found = win_rate(scores, seed=4)
    # the 5th percentile of 100 values lies 0.95 of the way from the 5th to the 6th
    assert found.low == pytest.approx(means[4] + 0.95 * (means[5] - means[4]))
    assert found.high == pytest.approx(means[94] + 0.05 * (means[95] - means[94]))
    assert found == win_rate(scores, seed=4) and found.value == scores.mean()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(list(OFFICIAL)), st.sampled_from(list(OFFICIAL))), min_size=1, max_size=6))
def test_the_baseline_has_what_the_model_lacks(pairs):
    table = games(*((str(n), *pair) for n, pair in enumerate(pairs)))
    swapped = games(*((str(n), second, first) for n, (first, second) in enumerate(pairs)))
    assert battles(table)["score"].mean() == pytest.approx(1 - battles(swapped)["score"].mean())


def test_a_prompt_without_both_orders_is_named():
    with pytest.raises(JudgefreeError, match="prompt a was not judged once in each order"):
        battles(games(("a", "A>B", "A>B")).iloc[:1])


def test_the_default_is_the_category_of_hard_prompts():
    scored = {"creative_writing": {"win_rate": 0.3, "dropped": 1}, "hard_prompt": {"win_rate": 0.7, "dropped": 0}}
    found = by_category(scored, ["creative_writing", "hard_prompt"])
    assert found == {"win_rate": 0.7, "creative_writing/win_rate": 0.3, "creative_writing/dropped": 1,
                     "hard_prompt/win_rate": 0.7, "hard_prompt/dropped": 0}  # fmt: skip
    assert by_category(scored, ["creative_writing"])["win_rate"] == 0.3


def test_style_of_a_text():
    text = "# Head\n\nSome **bold** and __also__ this.\n1. one\n  - two\n* three\n```\n# no\n- no\n**no**\n```"
    assert style(text)[1:] == [1, 3, 2]
    assert style("two words, no more.") == [6, 0, 0, 0]
    assert style("") == [0, 0, 0, 0]


def test_style_terms_by_hand():
    # 3 words against 1; densities of bold 0 and 0
    assert style_terms(["a b c", ""], ["a", ""])[:, 0] == pytest.approx([0.5, 0])
    # "# a" has 2 signs and one header: density 1/3; "a b" none: (1/3) / (1/3 + 1) = 1/4
    assert style_terms(["# a"], ["a b"])[0].tolist() == pytest.approx([0, 0.25, 0, 0])


def test_style_control_is_the_median_of_plain_fits():
    generator = np.random.default_rng(2)
    terms = pd.DataFrame(generator.normal(size=(60, 4)), index=[str(n) for n in range(60)])
    wins = generator.random(60) < 1 / (1 + np.exp(-(0.5 + 2 * terms[0].to_numpy())))
    rows = pd.DataFrame({"id": terms.index, "score": wins.astype(float)})
    found = controlled(rows, terms, seed=1)
    scaled = terms.to_numpy() / terms.to_numpy().std(axis=0, ddof=1)

    def rate(draw):
        design, score = np.column_stack([np.ones(60), scaled])[draw], rows["score"].to_numpy()[draw]

        def loss(weights):
            logits = design @ weights
            gradient = design.T @ (expit(logits) - score)
            return (score * np.logaddexp(0, -logits) + (1 - score) * np.logaddexp(0, logits)).sum(), gradient

        return 1 / (1 + np.exp(-minimize(loss, np.zeros(5), jac=True, method="BFGS").x[0]))

    rates = [rate(draw) for draw in bootstrap_rows(60, seed=1)]
    assert found.value == pytest.approx(np.median(rates), abs=2e-3)
    assert found.low < found.value < found.high


def test_style_control_takes_out_a_love_of_length():
    """Only the longer answer wins, and the model's are mostly longer: at equal length nobody is better."""
    generator = np.random.default_rng(3)
    longer = generator.normal(0.7, 1.0, size=600)
    score = (generator.random(600) < 1 / (1 + np.exp(-2 * longer))).astype(float)
    names = [str(n) for n in range(600)]
    found = controlled(
        pd.DataFrame({"id": names, "score": score}), pd.DataFrame({"length": longer}, index=names), seed=0
    )
    assert score.mean() > 0.65 and found.low < 0.5 < found.high


def test_a_model_that_wins_everything_needs_no_finite_strength():
    names = ["a", "b", "c"]
    found = controlled(pd.DataFrame({"id": names, "score": 1.0}), pd.DataFrame({"x": [0.0, 1.0, 2.0]}, index=names), 0)
    assert (found.low, found.value, found.high) == (1.0, 1.0, 1.0)


def arena_settings(**keys) -> ArenaHard:
    return ArenaHard.model_validate({
        "models": {}, "id": "./arena", "judge": "local", "seed": 0, "generation": GENERATION,
        "categories": ["hard_prompt", "creative_writing"], **keys,
    })  # fmt: skip


def test_each_category_has_its_own_baseline(tmp_path):
    write_arena(tmp_path / "arena")
    path = tmp_path / "arena/data/arena-hard-v2.0/model_answer/gemini-2.0-flash-001.jsonl"
    path.write_text(path.read_text().replace("**w1**", "by gemini"))
    prompts, facts = load_prompts(arena_settings(), tmp_path)
    assert list(zip(prompts["id"], prompts["category"], strict=True)) == ARENA
    assert prompts["baseline_text"].str.slice(0, 9).tolist() == ["**u1**\n- ", "**u2**\n- ", "**u3**\n- ", "by gemini"]
    assert len(facts["files"]) == 3
    only, _ = load_prompts(arena_settings(categories=["creative_writing"]), tmp_path)
    assert only["id"].tolist() == ["w1"]


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("question.jsonl", '"u2"', '"u1"', "prompt u1 stands in .* twice"),
        ("question.jsonl", '"prompt": "1 + 1 = ?"', '"prompt": ""', "row 1 has no prompt"),
        ("question.jsonl", "creative_writing", "poems", "no prompt of category creative_writing"),
        ("model_answer/o3-mini-2025-01-31.jsonl", '"uid": "u3"', '"uid": "u9"', "no answer to prompt u3"),
        ("model_answer/o3-mini-2025-01-31.jsonl", '{"answer"', '{"reply"', "the answer to prompt u1 is no text"),
        ("model_answer/o3-mini-2025-01-31.jsonl", '{"uid": "u1"', '"uid": "u1"', "row 0: malformed line"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, file, old, new, told):
    write_arena(tmp_path / "arena")
    path = tmp_path / "arena/data/arena-hard-v2.0" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(JudgefreeError, match=told):
        load_prompts(arena_settings(), tmp_path)


def test_prompts_are_named_for_every_category():
    with pytest.raises(ValueError, match="name a file for every one of the categories"):
        arena_settings(prompts={"hard_prompt": json.dumps("x")})
