"""AlpacaEval 2's length-controlled win rate: what the win rate would be were the model's answers as long as the baseline's.

Source: papers.md 6.3 (`length_controlled_v1` of alpaca_eval). A logistic model explains the judge's preference for the model
by three terms and no other intercept: tanh of the standardised difference in length, the difficulty of the instruction, and
a constant which gamed rows (the baseline told to be verbose or concise) do not have. The rate is the mean prediction with
the length term left out. All rates here are shares, not percentages.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from judgefree.errors import JudgefreeError
from judgefree.evaluation.statistics import mean_and_error

Values = NDArray[np.float64]

FOLDS = 5
STRENGTHS = np.logspace(-4, 4, 10)  # inverse strengths of the L1 penalty that cross-validation chooses from
GAMED_WEIGHT = 0.2  # of all gamed rows of one instruction together
GAMED_BASELINES = 2
RANDOM_STATE = 123  # liblinear visits the coordinates in an order of its own
_LEAST_PROBABILITY = 1e-15


@dataclass(frozen=True)
class GamedRows:
    """Judgements of the gamed baselines against the baseline itself; arrays of one length. preference: for the gamed one,
    in [0, 1]; length: as `length_term` has it; difficulty: of the instruction."""

    preference: Values
    length: Values
    difficulty: Values


@dataclass(frozen=True)
class Weights:
    """Of the three terms, and the inverse strength of the penalty that they were fitted with."""

    length: float
    difficulty: float
    constant: float
    strength: float


def win_rate(preference: Values) -> tuple[float, float]:
    """Mean preference for the model and its standard error. preference: of shape (items,), in [0, 1]."""
    return mean_and_error(preference)


def length_term(baseline: NDArray, model: NDArray) -> Values:
    """tanh of (baseline - model) over the difference's sample deviation. Lengths in characters, of shape (items,).

    Raises JudgefreeError where all differences are equal: their effect cannot be told from the constant.
    """
    difference = np.asarray(baseline, dtype=np.float64) - np.asarray(model, dtype=np.float64)
    deviation = float(np.std(difference, ddof=1)) if len(difference) > 1 else 0.0
    if deviation == 0:
        raise JudgefreeError(
            "all answers differ from the baseline's by the same number of characters, so length cannot be controlled for",
            "look at the answers; use the raw win rate",
        )
    return np.tanh(difference / deviation)


def fit(preference: Values, length: Values, difficulty: Values, gamed: GamedRows | None) -> Weights:
    """The three weights. preference: for the model, in [0, 1]; length: as `length_term` has it; all of shape (items,).

    A preference p is a row with outcome 1 and weight p and one with outcome 0 and weight 1 - p. The penalty's strength is
    the one with the best mean log-loss over five folds; both rows of an item are in the same fold. gamed: None leaves the
    regularisation to the gamed baselines out.

    Raises JudgefreeError for fewer rows than folds.
    """
    terms = np.column_stack([length, difficulty, np.ones(len(preference))])
    importance = np.ones(len(preference))
    if gamed is not None:
        rows = np.column_stack([gamed.length, gamed.difficulty, np.zeros(len(gamed.preference))])
        terms, preference = np.concatenate([rows, terms]), np.concatenate([gamed.preference, preference])
        importance = np.concatenate([np.full(len(rows), GAMED_WEIGHT / GAMED_BASELINES), importance])
    if len(preference) < FOLDS:
        raise JudgefreeError(
            f"{len(preference)} judged rows are too few to control for length", f"judge at least {FOLDS} instructions"
        )
    with config_context(
        assume_finite=True, skip_parameter_validation=True
    ):  # 51 small fits: checks would take the most
        strength = _best_strength(terms, preference, importance)
        by_length, by_difficulty, constant = _coefficients(terms, preference, importance, strength)
    return Weights(float(by_length), float(by_difficulty), float(constant), strength)


def controlled_win_rate(weights: Weights, difficulty: Values) -> tuple[float, float]:
    """Mean predicted preference at equal length, and the standard error of that mean over items."""
    return mean_and_error(expit(weights.constant + weights.difficulty * difficulty))


def is_extreme(raw: float, controlled: float) -> bool:
    """Whether control changed the rate so much that the fit may have failed: by more than 10 points and a quarter of the
    way to the nearer end (alpaca_eval warns by the same rule)."""
    low, high = min(raw * 0.75, raw - 0.1), max(raw + (1 - raw) / 4, raw + 0.1)
    return not low <= controlled <= high


def _best_strength(terms: Values, preference: Values, importance: Values) -> float:
    losses = np.zeros(len(STRENGTHS))
    for train, test in GroupKFold(FOLDS).split(terms, groups=np.arange(len(terms))):
        for place, strength in enumerate(STRENGTHS):
            weights = _coefficients(terms[train], preference[train], importance[train], strength)
            losses[place] += _log_loss(terms[test] @ weights, preference[test], importance[test])
    return float(STRENGTHS[int(np.argmin(losses))])


def _coefficients(terms: Values, preference: Values, importance: Values, strength: float) -> Values:
    model = LogisticRegression(
        l1_ratio=1.0, C=strength, solver="liblinear", fit_intercept=False, random_state=RANDOM_STATE
    )
    outcomes = np.repeat([1, 0], len(preference))
    weights = np.concatenate([preference, 1 - preference]) * np.tile(importance, 2)
    return model.fit(np.concatenate([terms, terms]), outcomes, sample_weight=weights).coef_[0]


def _log_loss(logits: Values, preference: Values, importance: Values) -> float:
    """Mean over rows of the loss times the row's weight; the weights are not normalised."""
    share = np.clip(expit(logits), _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    loss = -(preference * np.log(share) + (1 - preference) * np.log(1 - share))
    return float(np.mean(loss * importance))
