"""Profiles: what each holds, how they are listed, and folders that are no clone of the repository."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from judgefree.check import checked
from judgefree.cli import app
from judgefree.params import load_params, resolve
from judgefree.profiles import available, list_profiles

ROOT = Path(__file__).parents[1]
PROFILES = sorted((ROOT / "profiles").glob("*.yaml"))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_profiles_are_valid(profile: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "prompts", tmp_path / "prompts")
    params = checked(Path(shutil.copy(profile, tmp_path / "params.yaml")))
    assert resolve(params, tmp_path)


@pytest.mark.parametrize("model", ["qwen3-4b", "olmo-3-7b"])
def test_srrl_at_its_papers_scale(model: str) -> None:
    """SRRL, Table 1 and section 4: what the paper states, and the room that a review's prompt needs."""
    params = load_params(ROOT / "profiles" / f"srrl-{model}.yaml")
    for name, group in (
        ("srrl", 3),
        ("rlvr", 6),
        ("srrl-no-memory", 3),
        ("srrl-no-distillation", 3),
        ("srrl-no-gate", 3),
    ):
        training = params.training_of(name)
        assert (training.group_size, training.examples_per_rollout, training.steps) == (group, 32, 219)
        assert (training.learning_rate, training.loss.kl_weight, training.loss.clip_high) == (1e-6, 0.001, 0.28)
        assert (training.save_every, training.validation_items, params.data["gsm8k"].validation) == (5, 473, 473)
        assert training.max_prompt_tokens >= 2 * training.sampling.max_completion_tokens + 1000
    options = {name: params.runs[name].options for name in params.runs}
    whole = options["srrl"]
    assert (
        whole["distillation_weight"] == 1.0 and whole["gate"] == "per_rollout" and whole["memory"]["rule"] == "latest"
    )
    without = {
        "srrl-no-memory": {k: v for k, v in whole.items() if k != "memory"},
        "srrl-no-distillation": {k: v for k, v in whole.items() if k != "distillation"} | {"distillation_weight": 0.0},
        "srrl-no-gate": {**whole, "gate": "always"},
    }
    assert {name: options[name] for name in without} == without


@pytest.mark.parametrize(
    ("task", "unit", "share", "words"),
    [("govreport", "characters", 0.2, 6000), ("writing", "characters", 0.2, 128), ("maths", "characters", 0.4, 1000)],
)
def test_spyrl_at_its_papers_scale(task: str, unit: str, share: float, words: int) -> None:
    """What the paper states; its released code's version and the ablations change what they are named after only."""
    params = load_params(ROOT / "profiles" / f"spyrl-qwen3-4b-{task}.yaml")
    training, options = params.training_of("spyrl"), params.runs["spyrl"].options
    assert (training.group_size, training.examples_per_rollout, training.steps) == (5, 128, 100)
    assert (training.learning_rate, training.loss.kl_weight, training.loss.clip_high) == (1e-6, 0.001, 0.2)
    assert (training.max_prompt_tokens, training.sampling.max_completion_tokens) == (12288, 4096)
    assert params.data[params.runs["spyrl"].dataset].max_source_words == words  # type: ignore[union-attr]
    assert {key: options[key] for key in options if key not in ("prompts", "schedule")} == {
        "detectors": "players", "information_loss": {"unit": unit, "share": share}, "beta": 0.1, "lam": 0.1,
        "baseline": {"rule": "update_first", "decay": 0.9}, "detection_reward": "plain",
    }  # fmt: skip
    assert options["schedule"] == {
        "rule": "hysteresis", "start": "detection", "accuracy_high": 0.9, "na_low": 0.1, "error_high": 0.4, "na_high": 0.5,
        "decay": 0.95, "min_stay": 5, "patience": 20,
    }  # fmt: skip
    changed = {
        "spyrl-released-code": {
            "detectors": "overseer", "overseer_votes": 8, "normalise_performing": True, "detection_reward": "shaped",
            "schedule": {"rule": "fixed", "start": "detection", "cycle": 1},
        },
        "spyrl-no-baseline": {"baseline": {"rule": "none"}}, "spyrl-joint": {"schedule": {"rule": "joint"}},
        "spyrl-performing": {"schedule": {"rule": "performing"}}, "spyrl-detection": {"schedule": {"rule": "detection"}},
        "spyrl-no-spy": {"spy": "none"}, "spyrl-3-players": {},
    }  # fmt: skip
    assert {name: run.options for name, run in params.runs.items()} == {
        "spyrl": options, **{name: {**options, **change} for name, change in changed.items()},
    }  # fmt: skip
    assert params.training_of("spyrl-3-players").examples_per_rollout == 128
    games = [suite.game for suite in params.suites.values() if suite.game]
    if task == "maths":  # nothing to compare an invented problem with
        assert not games and not params.pairs
        return
    (game,) = games  # the run's own, on the 100 rows of the paper's check
    assert (game.prompts, game.information_loss.model_dump()) == (options["prompts"], options["information_loss"])
    assert (game.players, game.items, game.temperature) == (5, 100, 1.0)
    if task == "writing":
        assert params.deciding_suite("writing") is None, "nobody is promoted by ROUGE of stories"
        (pair,) = params.pairs.values()
        assert (pair.model, pair.against) == ("spyrl", params.runs["spyrl"].start_from)


@pytest.mark.parametrize("columns", [80, 200])
def test_each_profile_is_listed_with_a_whole_sentence(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    listed: dict[str, str] = {}
    starts = set()
    for line in list_profiles(ROOT).splitlines():
        assert len(line) <= columns
        name, said = line[:27].split(" ", 1)[0], line.lstrip().split("  ")[-1].strip()
        name = name or list(listed)[-1]
        listed[name] = f"{listed.get(name, '')} {said}".strip()
        starts.add(line.rindex(said))
    assert list(listed) == [path.stem for path in available(ROOT)] and len(starts) == 1
    assert all(said.endswith(".") for said in listed.values())
    assert listed["save-qwen3-4b"].endswith("(Table 8), beside GRPO with the frozen reward model.")


@pytest.mark.parametrize("command", ["check", "profile", "profile tiny", "doctor", "doctor --fix", "runs"])
def test_a_folder_that_is_no_clone_is_told_so(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code and "is no project of judgefree" in str(result.exception)
    assert "run the command in a clone of the repository" in str(result.exception)


def test_a_clone_without_settings_is_told_to_take_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").touch()
    result = CliRunner().invoke(app, ["check"])
    assert str(result.exception).endswith("fix: run `judgefree profile tiny` to write one")


def test_a_profile_without_a_comment_is_listed_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").touch()
    assert list_profiles(tmp_path) == ""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "own.yaml").write_text("threads: 1\n")
    assert list_profiles(tmp_path) == "own"
