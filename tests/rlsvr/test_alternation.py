"""Stages by hand: thresholds, minimum stay, patience, the correction of the means, the other schedules, saved states."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from judgefree.rlsvr.alternation import Alternation, Schedule

PAPER = {"rule": "hysteresis", "start": "detection", "accuracy_high": 0.9, "na_low": 0.1, "error_high": 0.4, "na_high": 0.5,
         "decay": 0.95, "min_stay": 5, "patience": 20}  # fmt: skip


def alternation(**options: Any) -> Alternation:
    return Alternation(TypeAdapter(Schedule).validate_python({k: v for k, v in options.items() if v is not None}))


def trace(one: Alternation, seen: list[tuple[float, float]]) -> str:
    """The stage of each rollout, D or P, and J."""
    stages = ""
    for accuracy, na in seen:
        stages += one.stage[0].upper()
        one.observe(accuracy, na)
    return stages


def test_good_detectors_hand_over_after_the_minimum_stay_only() -> None:
    assert trace(alternation(**PAPER), [(0.95, 0.0)] * 7) == "DDDDDPP"
    assert trace(alternation(**PAPER), [(0.9, 0.1)] * 5 + [(0, 0)]) == "DDDDDP"  # both limits included
    assert trace(alternation(**PAPER), [(0.89, 0.0)] * 8) == "D" * 8
    assert trace(alternation(**PAPER), [(0.95, 0.11)] * 8) == "D" * 8


@pytest.mark.parametrize(("accuracy", "na"), [(0.5, 0.0), (0.6, 0.0), (0.9, 0.5)])
def test_bad_detectors_get_their_turn_back(accuracy: float, na: float) -> None:
    one = alternation(**{**PAPER, "start": "performing"})
    assert trace(one, [(accuracy, na)] * 6) == "PPPPPD"


def test_between_the_limits_a_stage_lasts_until_patience_ends() -> None:
    """(0.7, 0.2) neither hands over nor takes back."""
    assert trace(alternation(**PAPER), [(0.7, 0.2)] * 45) == "D" * 20 + "P" * 20 + "D" * 5
    assert trace(alternation(**{**PAPER, "patience": None}), [(0.7, 0.2)] * 45) == "D" * 45


def test_means_by_hand() -> None:
    """decay 0.5: m = 0.5, 0.25 + 0.1, ... over 1 - 0.5^t. From 1, 0.2, 0.2: 1, 0.35 / 0.75, 0.275 / 0.875."""
    one = alternation(**{**PAPER, "decay": 0.5})
    expected = [(1.0, 0.0), (0.35 / 0.75, 0.5 / 0.75), (0.275 / 0.875, 0.75 / 0.875)]
    for (accuracy, na), means in zip([(1.0, 0.0), (0.2, 1.0), (0.2, 1.0)], expected, strict=True):
        one.observe(accuracy, na)
        assert tuple(one.means.values()) == pytest.approx(means)


def test_a_trace_by_hand() -> None:
    """decay 0.5, stay 2. Means of accuracy: 1, 1 (hand over after 2), then with 0 seen 3/7 = 0.43, 0.2: the error of 0.8
    takes back after 2 rollouts. The means go on over the change of stages: 0.61, 0.81, 0.906, which hands over again."""
    one = alternation(**{**PAPER, "decay": 0.5, "min_stay": 2})
    assert [one.observe(a, 0.0) for a in (1, 1, 0, 0, 1, 1, 1, 1)] == [
        False, True, False, True, False, False, True, False,
    ]  # fmt: skip
    assert one.stage == "performing" and one.stay == 1


def test_other_schedules() -> None:
    seen = [(0.0, 1.0)] * 6
    assert trace(alternation(rule="fixed", start="detection", cycle=1), seen) == "DPDPDP"  # the released code
    assert trace(alternation(rule="fixed", start="performing", cycle=2), seen) == "PPDDPP"
    assert [trace(alternation(rule=rule), seen) for rule in ("joint", "performing", "detection")] == [
        "J" * 6, "P" * 6, "D" * 6,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "options", [PAPER, {**PAPER, "min_stay": 1, "decay": 0.5}, {"rule": "fixed", "start": "performing", "cycle": 3}]
)
def test_a_saved_state_goes_on_as_if_it_had_not_been_saved(options: dict[str, Any]) -> None:
    seen = [(0.95, 0.0)] * 7 + [(0.1, 0.4), (0.2, 0.0)] * 9
    for cut in range(len(seen)):
        whole, half = alternation(**options), alternation(**options)
        trace(whole, seen[:cut])
        half.load_state_dict(json.loads(json.dumps(whole.state_dict())))
        assert trace(half, seen[cut:]) == trace(whole, seen[cut:]) and half.state_dict() == whole.state_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "hysteresis"}, "start"), ({"rule": "sometimes"}, "rule"), ({"rule": "joint", "cycle": 1}, "cycle"),
        ({"rule": "fixed", "start": "joint", "cycle": 1}, "start"), ({"rule": "fixed", "start": "detection"}, "cycle"),
        ({**PAPER, "patience": 4}, r"patience \(4\) is below min_stay"), ({**PAPER, "decay": 1.0}, "decay"),
    ],
)  # fmt: skip
def test_schedules_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        alternation(**options)
