"""Reward models and the runs that are given one, in params.yaml: what they leave as it is, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from judgefree.errors import JudgefreeError
from judgefree.methods import options_of
from judgefree.params import parse_params, resolve

ROOT = Path(__file__).parents[2]
NEW = ("reward_models", "save_runs")
SAMPLING = {"temperature": 0.7, "max_completion_tokens": 8}
JUDGE = {
    "start_from": "warmup", "dataset": "pairs", "seed": 0, "device": "cpu", "precision": "fp32", "max_tokens": 96,
    "batch_tokens": 2000,
    "value_fit": {"policy": "warmup", "prompts": 8, "samples": 2, "sampling": SAMPLING, "sampling_batch_rows": 64,
                  "max_prompt_tokens": 64, "batch_size": 4, "epochs": 1, "learning_rate": 1e-3},
}  # fmt: skip
OPTIONS = {"reward_model": "judge", "update": "frozen", "batch_tokens": 2000}


def profile(name: str) -> dict[str, Any]:
    return dict(YAML(typ="safe", pure=True).load((ROOT / "profiles" / f"{name}.yaml").read_text()))


def resolved(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return resolve(parse_params(settings, "params.yaml"), ROOT)


def with_save() -> dict[str, Any]:
    """The tiny profile, with a data set of pairs, a reward model and two runs of its own."""
    settings = profile("tiny")
    settings["data"]["pairs"] = settings["data"]["arithmetic"] | {"pairs": {"train": 8, "validation": 4}}
    settings["prompts"]["pairs"] = settings["prompts"]["arithmetic"]
    run = {"method": "save", "dataset": "pairs", "start_from": "warmup", "seed": 0, "select": "last", "suites": []}
    runs = {"save": {**run, "options": OPTIONS}, "again": {**run, "options": {**OPTIONS, "reward_model": "save"}}}
    return settings | {"reward_models": {"judge": JUDGE}, "save_runs": runs}


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml")))
def test_sections_that_are_absent_are_empty_ones(name: str) -> None:
    settings = profile(name)
    files = resolved(settings)
    assert resolved({section: {} for section in NEW if section not in settings} | settings) == files
    if not settings.keys() & NEW:
        assert not [file for file in files if file.startswith("reward_model/")]
        added = {"flattery", "pairs"} & {key for content in files.values() for key in content.get("data", {})}
        assert not added and not any("words" in content.get("base", {}) for content in files.values())


def test_what_was_there_keeps_its_settings() -> None:
    before, after = resolved(profile("tiny")), resolved(with_save())
    assert after.keys() - before.keys() == {
        "data/pairs.json", "reward_model/judge.json", *(f"{kind}/{run}.json" for kind in ("train", "evaluate")
                                                        for run in ("save", "again")),
    }  # fmt: skip
    compare, compared = before.pop("compare.json"), after.pop("compare.json")
    assert {name: after[name] for name in before} == before
    assert compared["models"].items() >= compare["models"].items()


def test_runs_with_a_reward_model_stand_among_the_others() -> None:
    files = resolved(with_save())
    assert files["train/again.json"]["run"]["options"]["reward_model"] == "save"
    assert files["reward_model/judge.json"] == {
        "threads": 1, "reward_model": JUDGE, "prompt": files["train/save.json"]["prompt"]
    }  # fmt: skip


def unknown(settings: dict[str, Any]) -> None:
    settings["save_runs"]["save"]["options"] = {**OPTIONS, "reward_model": "jugde"}


def itself(settings: dict[str, Any]) -> None:
    settings["save_runs"]["again"]["options"] = {**OPTIONS, "reward_model": "again"}


def misplaced(settings: dict[str, Any]) -> None:
    settings["runs"]["other"] = settings["save_runs"].pop("save")


def without(settings: dict[str, Any]) -> None:
    settings["save_runs"]["rlvr2"] = settings["runs"]["rlvr"]


def forgotten(settings: dict[str, Any]) -> None:
    settings["save_runs"]["save"]["options"] = {k: v for k, v in OPTIONS.items() if k != "reward_model"}


def named_twice(settings: dict[str, Any]) -> None:
    """The only reward model, whose name the run takes: known names are not what is wrong."""
    settings["save_runs"]["judge"] = settings["save_runs"].pop("save")


def circle(settings: dict[str, Any]) -> None:
    settings["save_runs"]["save"]["options"] = {**OPTIONS, "reward_model": "again"}


def valued_by_its_result(settings: dict[str, Any]) -> None:
    settings["reward_models"]["judge"] = {**JUDGE, "value_fit": {**JUDGE["value_fit"], "policy": "save"}}


def started_from_its_result(settings: dict[str, Any]) -> None:
    settings["reward_models"]["judge"] = {**JUDGE, "start_from": "save"}


def started_from_what_it_improves(settings: dict[str, Any]) -> None:
    settings["save_runs"]["save"]["start_from"] = "again"


def a_list(settings: dict[str, Any]) -> None:
    settings["save_runs"] = ["save"]


def a_number(settings: dict[str, Any]) -> None:
    settings["prompts"][1] = settings["prompts"]["arithmetic"]


def a_numbered_model(settings: dict[str, Any]) -> None:
    settings["reward_models"][1] = JUDGE


def unseeded(settings: dict[str, Any]) -> None:
    del settings["save_runs"]["save"]["seed"]


def elsewhere(settings: dict[str, Any]) -> None:
    settings["save_runs"]["save"]["dataset"] = "piars"


def too_long(settings: dict[str, Any]) -> None:
    settings["reward_models"]["judge"] = {**JUDGE, "max_tokens": 161}


def twice(settings: dict[str, Any]) -> None:
    settings["save_runs"]["rlvr"] = settings["save_runs"]["save"]


def no_pairs(settings: dict[str, Any]) -> None:
    settings["reward_models"]["judge"] = {**JUDGE, "dataset": "arithmetic"}


def named_alike(settings: dict[str, Any]) -> None:
    settings["reward_models"]["tiny"] = JUDGE


@pytest.mark.parametrize(("break_it", "said"), [
    (unknown, "save_runs.save.options.reward_model: unknown name 'jugde'; did you mean 'judge'"),
    (itself, "save_runs.again.options.reward_model: unknown name 'again'"),
    (misplaced, "runs.other: a run with options.reward_model stands in the section save_runs"),
    (without, "save_runs.rlvr2.options.reward_model: missing; .*, or move the run to the section runs"),
    (forgotten, "save_runs.save.options.reward_model: missing; name a reward model there"),
    (twice, "save_runs.rlvr: is a name among runs too"),
    (no_pairs, "reward_models.judge.dataset: arithmetic has no preference pairs"),
    (named_alike, "reward_models.tiny: bases.tiny has that name too"),
    (named_twice, "reward_models.judge: save_runs.judge has that name too"),
    (circle, "again and save are made from each other"),
    (valued_by_its_result, "judge and save are made from each other .*value_fit.policy.*; let one of them start from"),
    (started_from_its_result, "judge and save are made from each other"),
    (started_from_what_it_improves, "again and save are made from each other"),
    (a_list, "save_runs: has no names; write it as the section runs"),
    (a_number, "prompts.1: a name is text; write it with quotes"),
    (a_numbered_model, "reward_models.1: a name is text; write it with quotes"),
    (unseeded, "save_runs.save.seed: missing; add it"),
    (elsewhere, "save_runs.save.dataset: unknown name 'piars'; did you mean 'pairs'"),
    (too_long, "reward_models.judge.max_tokens: 161, and bases.tiny, which the reward model comes from, takes 160"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(break_it: Any, said: str) -> None:
    settings = with_save()
    break_it(settings)
    with pytest.raises(JudgefreeError, match=said):
        parse_params(settings, "params.yaml")


@pytest.mark.parametrize(("options", "said"), [
    ({"value_wieght": 1.0}, ["save_runs.save.options.value_wieght: unknown key; did you mean 'value_weight'?"]),
    ({"batch_tokens": None}, ["save_runs.save.options.batch_tokens: Input should be a valid integer"]),
    ({"update": "bt_offline", "anchor": "value"}, ["save_runs.save.options: update: bt_offline", "remove anchor",
                                                   "add learning_rate", "add pairs_per_step"]),
    ({"m0": 0.5}, ["update: frozen has other options; remove m0, since nothing is filtered"]),
    ({"update": "save", "learning_rate": 1e-4}, ["update: save has an anchor; add anchor: value or anchor: mean_reward"]),
    ({"update": "save", "anchor": "value", "learning_rate": 1e-4},
     ["update: save with anchor: value has other options; add value_learning_rate, add value_weight"]),
])  # fmt: skip
def test_options_that_do_not_fit_are_named_as_they_stand_in_the_file(options: dict[str, Any], said: list[str]) -> None:
    settings = with_save()
    settings["save_runs"]["save"]["options"] = OPTIONS | options
    run = parse_params(settings, "params.yaml").runs["save"]
    with pytest.raises(JudgefreeError) as caught:
        options_of("save", run)
    assert all(part in caught.value.problem for part in said), caught.value.problem
