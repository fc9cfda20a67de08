"""AlpacaEval's tables: alignment, files in the hub's layout, difficulties."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from judgefree.errors import JudgefreeError
from judgefree.pairwise_benchmarks.alpaca_data import Benchmark, load_benchmark
from judgefree.pairwise_benchmarks.alpaca_eval import preferences, score
from judgefree.pairwise_benchmarks.difficulty import (
    Published,
    estimate_difficulty,
    most_probable_difficulty,
    predicted_gamed_rows,
)
from judgefree.pairwise_benchmarks.length_control import GamedRows
from tests.pairwise_benchmarks.world import BASELINE, DIFFICULTY, INSTRUCTIONS, write_alpaca


@pytest.fixture
def benchmark(tmp_path, alpaca_settings) -> Benchmark:
    write_alpaca(tmp_path / "alpaca")
    return load_benchmark(alpaca_settings, tmp_path)


@pytest.fixture
def items() -> pd.DataFrame:
    return pd.DataFrame({
        "instruction": INSTRUCTIONS, "baseline_text": BASELINE, "text": ["7", "5", "four", "7", "eight it is", "2"],
        "preference": [1.5, 1.0, 1.25, 2.0, 0.0, 1.5],
    })  # fmt: skip


def test_files_of_the_hub(benchmark):
    assert benchmark.instructions == INSTRUCTIONS and benchmark.baseline == BASELINE
    assert benchmark.difficulty.tolist() == DIFFICULTY
    assert benchmark.gamed.preference.tolist() == [0.65] * 6 + [0.25] * 6
    assert benchmark.gamed.length[:2] == pytest.approx([np.tanh(-0.4), np.tanh(-0.8)])
    assert benchmark.facts["difficulty"] == "published"
    assert sorted(benchmark.facts["files"]) == ["alpaca_eval_gpt4_baseline.json", "df_gamed.csv"]


def test_preferences_by_hand(items, benchmark):
    assert preferences(items, benchmark).tolist() == [0.5, 0.0, 0.25, 1.0, 0.5, 0.5]
    metrics = score(items, benchmark)
    assert metrics["win_rate"] == pytest.approx(2.75 / 6)
    assert metrics["items"] == 6 and metrics["length"] == pytest.approx((1 + 1 + 4 + 1 + 11 + 1) / 6)
    rate = expit(metrics["weight/constant"] + metrics["weight/difficulty"] * np.array(DIFFICULTY)).mean()
    assert metrics["length_controlled"] == pytest.approx(rate)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda t: t.iloc[:5], r"row 5 is missing: '1 \+ 1 = \?'"),
        (
            lambda t: t.drop(2).reset_index(drop=True),
            r"row 2: its instruction is '8 - 1 = \?' and the benchmark's is '2 \+",
        ),
        (lambda t: t.iloc[[1, 0, 2, 3, 4, 5]], "row 0: its instruction is '9 - 5"),
        (lambda t: t.assign(baseline_text=t["baseline_text"].replace("4", "5")), "row 2: its baseline_text is '5'"),
        (lambda t: t.assign(preference=t["preference"].replace(2.0, np.nan)), "row 3 has the preference nan"),
        (lambda t: t.assign(preference=t["preference"].replace(1.25, 0.25)), "row 2 has the preference 0.25"),
        (lambda t: t.assign(text=t["text"].replace("four", None)), "row 2 has no answer of the model"),
        (lambda t: pd.concat([t, t.iloc[:1]]), "row 6 belongs to no instruction"),
    ],
)
def test_rows_that_are_missing_or_misaligned_are_named(items, benchmark, spoil, told):
    with pytest.raises(JudgefreeError, match=told):
        score(spoil(items), benchmark)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda t: t.drop(3), "instruction 3 has 1 rows and not 2"),
        (lambda t: t.assign(std_delta_len=t["std_delta_len"].where(t.index != 7)), "row 7 lacks a value"),
        (lambda t: t.drop(columns="preference"), "has no column preference"),
        (lambda t: pd.concat([t, t.iloc[:2].assign(index=6)]), "rows of more than 6 instructions"),
    ],
)
def test_gamed_rows_that_do_not_fit_are_named(tmp_path, alpaca_settings, spoil, told):
    write_alpaca(tmp_path / "alpaca")
    path = tmp_path / "alpaca" / "df_gamed.csv"
    spoil(pd.read_csv(path)).to_csv(path, index=False)
    with pytest.raises(JudgefreeError, match=told):
        load_benchmark(alpaca_settings, tmp_path)


def test_answers_that_are_no_texts_are_named(tmp_path, alpaca_settings):
    write_alpaca(tmp_path / "alpaca")
    path = tmp_path / "alpaca" / "alpaca_eval_gpt4_baseline.json"
    rows = json.loads(path.read_text())
    rows[4]["output"] = None
    path.write_text(json.dumps(rows))
    with pytest.raises(JudgefreeError, match="row 4 has no text 'output'"):
        load_benchmark(alpaca_settings, tmp_path)


def test_a_folder_that_is_not_there(tmp_path, alpaca_settings):
    with pytest.raises(JudgefreeError, match="alpaca does not exist"):
        load_benchmark(alpaca_settings, tmp_path)


def made_up(models: int, items: int, mean: float, deviation: float) -> tuple[Published, np.ndarray]:
    """Models whose preferences and rates follow their weights exactly."""
    generator = np.random.default_rng(5)
    difficulty = generator.normal(mean, deviation, size=items)
    weights = np.column_stack([generator.normal(-1.5, 0.3, models), generator.uniform(0.5, 1, models),
                               generator.normal(-1, 1, models)])  # fmt: skip
    length = np.tanh(generator.normal(size=(models, items)))
    bare = weights[:, 2, None] + weights[:, 1, None] * difficulty
    preference = expit(bare + weights[:, 0, None] * length)
    return Published(preference, length, weights, expit(bare).mean(1)), difficulty


def test_difficulties_that_all_judgements_agree_on_are_found():
    published, difficulty = made_up(models=30, items=200, mean=-0.3, deviation=1.6)
    found = estimate_difficulty(published)
    assert np.corrcoef(found, difficulty)[0, 1] > 0.999
    rates = expit(published.weights[:, 2, None] + published.weights[:, 1, None] * found).mean(1)
    assert np.abs(rates - published.rate).max() < 0.003


def test_most_probable_difficulty_is_where_the_posterior_is_flat():
    published, _ = made_up(models=4, items=5, mean=0.0, deviation=2.0)

    def log_posterior(difficulty):
        logits = (published.weights[:, 2, None] + published.weights[:, 0, None] * published.length
                  + published.weights[:, 1, None] * difficulty)  # fmt: skip
        fit = published.preference * np.log(expit(logits)) + (1 - published.preference) * np.log(expit(-logits))
        return fit.sum(0) - 0.7 / 2 * (difficulty - 0.4) ** 2

    found, step = most_probable_difficulty(published, 0.4, 0.7), 1e-3
    best = log_posterior(found)
    assert (best > log_posterior(found + step)).all() and (best > log_posterior(found - step)).all()


def test_gamed_rows_by_hand():
    rows = predicted_gamed_rows(
        np.array([[-1.0, 2.0, 0.5]]), np.array([2.0]), np.array([10.0, 20.0, 30.0]), np.array([0.0, 1.0, -1.0])
    )
    # differences -10, -20, -30: sample deviation 10
    assert rows.length == pytest.approx(np.tanh([-1.0, -2.0, -3.0]))
    assert rows.preference == pytest.approx(expit([0.5 + np.tanh(1), 2.5 + np.tanh(2), -1.5 + np.tanh(3)]))
    assert isinstance(rows, GamedRows) and rows.difficulty.tolist() == [0.0, 1.0, -1.0]


def test_too_few_models_are_refused():
    published, _ = made_up(models=2, items=5, mean=0.0, deviation=1.0)
    with pytest.raises(JudgefreeError, match="2 models are too few"):
        estimate_difficulty(published)
