"""Names and meanings of metrics."""

import math

from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from judgefree.registry.catalogue import CATALOGUE, describe, markdown, mlflow_name, split_finite


@given(st.text())
def test_every_name_becomes_one_that_mlflow_takes(name: str) -> None:
    _validate_metric_name(mlflow_name(name))
    assert mlflow_name(mlflow_name(name)) == mlflow_name(name)


def test_names_by_hand() -> None:
    assert mlflow_name("validation/pass@1") == "validation/pass_at_1"
    assert mlflow_name("eval/words/sampled/pass@16_se") == "eval/words/sampled/pass_at_16_se"
    assert mlflow_name("clip_ratio/low_mean") == "clip_ratio/low_mean"  # TRL's own stays as it is
    assert mlflow_name("/a//../b") == "a/b"


def test_a_star_does_not_cross_a_slash() -> None:
    """That what training and evaluation write is described, their own tests say: a stage's history, a suite's metrics."""
    assert describe("eval/a/b/pass_at_1") is None and describe("eval/a/pass_at_1") is not None


def test_each_entry_is_whole_and_named_once() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert metric.meaning and (metric.lowest is None or metric.highest is None or metric.lowest < metric.highest)


def test_table() -> None:
    text = markdown(["reward/missing", "mine"])
    assert "| `reward/missing` | share | 0 to 1 | completions without a reward" in text
    assert "| `mine` | | | not described" in text


def test_values_that_are_not_finite_are_set_apart() -> None:
    finite, other = split_finite({"a": 1, "pass@1": math.inf, "b": math.nan, "c": None})
    assert finite == {"a": 1.0} and list(other) == ["pass_at_1", "b"]
