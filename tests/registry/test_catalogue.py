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


def test_what_training_and_evaluation_write_is_described() -> None:
    """The columns of a history and the metrics of a suite, as runs of the tiny profile write them."""
    training = (
        "bad_steps clip_ratio/region_mean completions/clipped_ratio completions/max_length completions/mean_length "
        "completions/unparsed_ratio entropy frac_reward_zero_std grad_norm learning_rate loss reward reward/missing "
        "reward_std ratio/abs_log_mean mean_token_accuracy num_tokens validation/mean_length validation/pass@1 kl "
        "own_signal own_signal/rollout reward/cluster reward/format reward/certainty cluster/entropy answers/entropy "
        "vote/accuracy cov/abs_log_ratio completions/distinct_2 completions/repetition monitor/alarms monitor/collapsed "
        "monitor/kl_high"
    )
    evaluation = (
        "items length length_right length_wrong pass@1 pass@1_se sampled/accuracy sampled/accuracy_se sampled/length "
        "sampled/length_right sampled/length_wrong sampled/pass@8 sampled/pass@8_se sampled/truncated sampled/ungraded "
        "sampled/unparsed truncated ungraded unparsed first/pass@1 first/pass@1_se retry/rounds retry/tokens retry/too_long"
    )
    names = training.split() + [f"eval/arithmetic/{name}" for name in evaluation.split()]
    assert [name for name in names if describe(mlflow_name(name)) is None] == []
    assert describe("eval/a/b/c/pass_at_1") is None, "a star does not cross a slash"


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
