"""Instruction difficulties and gamed rows where AlpacaEval's own file (df_gamed.csv) is not at hand, from what else is
public: other models' judgements, their published weights, and the leaderboard.

Procedure. With a model's published weights the logit of its preference is constant + length weight x length term +
difficulty weight x difficulty, so an instruction's difficulty is the one unknown of a logistic regression over the models.
It has a normal prior, whose mean and precision are those with which the published weights give the models' published
length-controlled rates (least squares). The gamed baselines' rows are what their published weights predict for answers that
are longer or shorter than the baseline's by one factor, the ratio of the mean lengths on the leaderboard.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from judgefree.errors import JudgefreeError
from judgefree.pairwise_benchmarks.length_control import GamedRows, Values, length_term

_STEPS, _TOLERANCE = 100, 1e-8
_LONGEST_STEP = 1.0  # Newton's method overshoots where a logistic curve is flat


@dataclass(frozen=True)
class Published:
    """What is public of some models. preference: (models, items), for the model, in [0, 1]; length: the same shape, as
    `length_term` has it; weights: (models, 3), of length, difficulty and constant; rate: (models,), the published
    length-controlled win rate, a share."""

    preference: Values
    length: Values
    weights: Values
    rate: Values


def estimate_difficulty(published: Published) -> Values:
    """Difficulty per instruction, of shape (items,), on the scale of the published weights.

    Raises JudgefreeError for no models, or where the rates cannot be met.
    """
    if len(published.rate) < 3:
        raise JudgefreeError(
            f"{len(published.rate)} models are too few to estimate difficulties from", "give judgements of more models"
        )

    def misses(prior: Values) -> Values:
        difficulty = most_probable_difficulty(published, prior[0], float(np.exp(prior[1])))
        return (
            expit(published.weights[:, 2, None] + published.weights[:, 1, None] * difficulty).mean(1) - published.rate
        )

    found = least_squares(misses, np.array([0.0, np.log(0.25)]), diff_step=1e-3, x_scale=0.1)
    if not found.success:
        raise JudgefreeError(f"the difficulties were not found: {found.message}", "check weights against judgements")
    return most_probable_difficulty(published, found.x[0], float(np.exp(found.x[1])))


def most_probable_difficulty(published: Published, mean: float, precision: float) -> Values:
    """Difficulties of highest posterior density under a normal prior, by Newton's method."""
    slope = published.weights[:, 1, None]
    rest = published.weights[:, 2, None] + published.weights[:, 0, None] * published.length
    difficulty = np.full(published.preference.shape[1], mean)
    for _ in range(_STEPS):
        share = expit(rest + slope * difficulty)
        gradient = (slope * (share - published.preference)).sum(0) + precision * (difficulty - mean)
        curvature = (slope**2 * share * (1 - share)).sum(0) + precision
        step = np.clip(gradient / curvature, -_LONGEST_STEP, _LONGEST_STEP)
        difficulty = difficulty - step
        if np.abs(step).max() < _TOLERANCE:
            return difficulty
    raise JudgefreeError("the difficulties do not converge", "check weights against judgements")


def predicted_gamed_rows(
    weights: Values, length_ratios: Values, baseline_length: Values, difficulty: Values
) -> GamedRows:
    """Rows of gamed baselines, one after another.

    weights: (baselines, 3); length_ratios: (baselines,), mean length over the baseline's; baseline_length: (items,),
    characters of the baseline's answers.
    """
    lengths = [length_term(baseline_length, ratio * baseline_length) for ratio in length_ratios]
    preferences = [
        expit(constant + by_difficulty * difficulty + by_length * length)
        for (by_length, by_difficulty, constant), length in zip(weights, lengths, strict=True)
    ]
    return GamedRows(np.concatenate(preferences), np.concatenate(lengths), np.tile(difficulty, len(weights)))
