"""Public leaderboard figures from public judgements, on the mirror: raw rates exactly, length-controlled within a point.

The whole comparisons take about 20 s of one free core each and are marked `pipeline`; a sample of them runs by default.
"""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from judgefree.config_benchmarks import AlpacaEval
from judgefree.errors import JudgefreeError
from judgefree.pairwise_benchmarks import alpaca_data as public
from judgefree.pairwise_benchmarks.alpaca_eval import preferences, score
from judgefree.pairwise_benchmarks.difficulty import estimate_difficulty
from judgefree.pairwise_benchmarks.length_control import controlled_win_rate, fit, length_term, win_rate

MIRROR = os.environ.get("JUDGEFREE_MIRROR")
pytestmark = pytest.mark.skipif(not MIRROR, reason="JUDGEFREE_MIRROR names no folder with alpaca_eval/")
FOLDER = Path(MIRROR or ".") / "alpaca_eval"
LIMIT = 0.01  # mean absolute error


@pytest.fixture(scope="module")
def judged():
    return public.read_judgements(FOLDER / public.JUDGEMENTS)


@pytest.fixture(scope="module")
def names(judged) -> list[str]:
    return [name for name in judged[0] if name not in public.UNDETERMINED]


@pytest.fixture(scope="module")
def board() -> pd.DataFrame:
    return pd.read_csv(FOLDER / public.LEADERBOARD, index_col=0)


def errors(judged, board, estimated_from: list[str], models: list[str]) -> np.ndarray:
    """Our length-controlled rates of `models` less the published ones, with difficulties from others or the same."""
    preference, lengths, baseline = judged
    difficulty = estimate_difficulty(public.read_published(FOLDER, estimated_from))
    gamed = public.gamed_rows(FOLDER, baseline, difficulty)
    rates = [controlled_win_rate(fit(preference[name], length_term(baseline, lengths[name]), difficulty, gamed), difficulty)
             for name in models]  # fmt: skip
    return np.array([rate for rate, _ in rates]) - board.loc[models, "length_controlled_winrate"].to_numpy() / 100


def test_raw_rates_and_their_errors_are_the_published_ones(judged, names, board):
    assert len(names) == 49
    found = np.array([win_rate(judged[0][name]) for name in names]) * 100
    assert found[:, 0] == pytest.approx(board.loc[names, "win_rate"].to_numpy(), abs=2e-5)
    assert found[:, 1] == pytest.approx(board.loc[names, "standard_error"].to_numpy(), abs=2e-5)


def test_published_weights_give_the_published_rates_of_models_that_no_difficulty_was_estimated_from(judged, board):
    """148 models whose judgements are not at hand, but their weights are."""
    difficulty = estimate_difficulty(public.read_published(FOLDER))
    weights = pd.read_csv(FOLDER / public.WEIGHTS, index_col=0)
    held_out = [name for name in weights.index if name in board.index and name not in judged[0]]
    rates = expit(weights.iloc[:, 2].to_numpy()[:, None] + weights.iloc[:, 1].to_numpy()[:, None] * difficulty).mean(1)
    error = pd.Series(rates, weights.index)[held_out] - board.loc[held_out, "length_controlled_winrate"] / 100
    assert len(held_out) == 148
    assert error.abs().mean() < 0.001 and error.abs().max() < 0.005


def test_a_sample_of_held_out_models(judged, names, board):
    assert np.abs(errors(judged, board, names[::2], names[1::6])).mean() < LIMIT


@pytest.mark.pipeline
def test_all_models_that_the_public_files_determine(judged, names, board):
    error = np.abs(errors(judged, board, names, names))
    assert error.mean() < LIMIT and error.max() < 0.03


@pytest.mark.pipeline
def test_every_model_held_out_once(judged, names, board):
    halves = names[::2], names[1::2]
    error = np.abs(
        np.concatenate([errors(judged, board, halves[0], halves[1]), errors(judged, board, halves[1], halves[0])])
    )
    assert len(error) == 49 and error.mean() < LIMIT


def test_judgements_in_the_official_format_score_as_a_table(names):
    """text_davinci_003's 805 judgements: aligned rows score, a missing row is named."""
    settings = AlpacaEval.model_validate({
        "models": {}, "id": str(FOLDER), "judge": "official", "orders": "random", "seed": 0,
        "generation": {"chat": True, "max_completion_tokens": 1, "batch_rows": 1, "seed": 0},
    })  # fmt: skip
    benchmark = public.load_benchmark(settings, Path())
    assert benchmark.facts["difficulty"] == "estimated" and len(benchmark.instructions) == 805
    rows = json.loads((FOLDER / "text_davinci_003" / "annotations.weighted_alpaca_eval_gpt4_turbo.json").read_text())
    items = pd.DataFrame(rows)[["instruction", "output_1", "output_2", "preference"]]
    items = items.rename(columns={"output_1": "baseline_text", "output_2": "text"})
    found = score(items, benchmark)
    assert found["win_rate"] == pytest.approx(np.mean([row["preference"] - 1 for row in rows]))
    assert found["weight/length"] < 0 < found["length_controlled"] < 0.5  # longer answers are preferred
    with pytest.raises(JudgefreeError, match="row 500: its instruction is"):
        preferences(items.drop(500), benchmark)
