"""The paper-scale profiles, run on a CPU: every stage of each profile's main run, with all of its hyper-parameters.

What a machine without hub, vLLM and GPU makes different stands in `cpu` and nowhere else. Data are read where the profiles
look for them: a download below ./hub, or the mirror in the hub's place (paper_world.py).
"""

import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from paper_world import hub, mirror, policy, reward_model, tokenizer
from ruamel.yaml import YAML
from safetensors.torch import load_file

from judgefree.check import checked
from judgefree.cli import app
from judgefree.files import read_json, verify
from judgefree.methods import METHODS, Setting, models_of, options_of
from judgefree.registry.catalogue import describe, mlflow_name
from judgefree.scoring.answers import extract
from judgefree.scoring.grader import Grader

pytestmark = pytest.mark.pipeline
ROOT = Path(__file__).parents[2]
SPYRL = [f"spyrl-qwen3-4b-{task}" for task in ("govreport", "writing", "maths")]
SAVE = ["save-qwen3-4b", "save-qwen2.5-3b"]
SAID = 24  # tokens of a completion
GAMES = 2  # of a rollout; for SAVE: prompts
yaml = YAML(typ="safe", pure=True)


SMALL = {
    "engine": "transformers", "device": "cpu", "precision": "fp32", "processes": 1, "micro_batches": 2,
    "validation_items": 2,
}  # fmt: skip
CHANGED = {
    *SMALL,
    "vllm",
    "steps",
    "rollout_size",
    "sampling",
}  # of the section training; of sampling, the length alone


def cpu(profile: dict[str, Any], steps: int) -> dict[str, Any]:
    """The profile with what a CPU without a hub needs: other models, devices and sizes; no hyper-parameter of a method."""
    params = deepcopy(profile) | {"threads": 1, "python": "python"}
    for name, base in params["bases"].items():
        if base["kind"] == "hub":
            params["bases"][name] = {"kind": "folder", "path": "./tiny-policy", "suites": base["suites"]}
    training = params["training"]
    del training["vllm"]
    training |= {**SMALL, "steps": steps, "rollout_size": GAMES * training["group_size"]}
    training["sampling"] = training["sampling"] | {"max_completion_tokens": SAID}
    for suite in params["suites"].values():
        suite |= {"device": "cpu", "precision": "fp32", "max_completion_tokens": SAID, "items": 6}
    for model in params.get("reward_models", {}).values():
        model |= {"device": "cpu", "precision": "fp32"}
        model["value_fit"]["prompts"] = 6
        model["value_fit"]["sampling"] = model["value_fit"]["sampling"] | {"max_completion_tokens": SAID}
    return params


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompt files, downloads, a mirror, and a folder of tiny models for each family."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("machine")
    shutil.copytree(ROOT / "prompts", root / "prompts")
    hub(root)
    mirror(root)
    words = tokenizer(path.read_text() for path in sorted((ROOT / "prompts").glob("spyrl-*.yaml")))
    for family in ("qwen3", "qwen2.5"):
        policy(family, words, root / family)
    reward_model(words, root / "skywork-reward-v2-llama-3.2-3b")
    return root


Stages = Callable[..., None]


@pytest.fixture
def stage(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    """Runs a judgefree command in a project of its own on that machine."""
    monkeypatch.setenv("JUDGEFREE_MIRROR", str(machine / "mirror"))
    monkeypatch.chdir(tmp_path)
    for name in ("prompts", "hub", "skywork-reward-v2-llama-3.2-3b"):
        Path(name).symlink_to(machine / name)
    return lambda *words: app(words, standalone_mode=False)


def made(profile: str, machine: Path, stage: Stages, steps: int, run: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """Every stage of a profile's run, from `check` of the profile as it is to the evaluation of base and run; returns the
    profile and the run's history by step."""
    settings = yaml.load((ROOT / "profiles" / f"{profile}.yaml").read_text())
    shutil.copy(ROOT / "profiles" / f"{profile}.yaml", "params.yaml")
    stage("check", "--quiet")
    Path("tiny-policy").symlink_to(machine / ("qwen3" if "qwen3" in profile else "qwen2.5"))
    with Path("params.yaml").open("w") as file:
        yaml.dump(cpu(settings, steps), file)
    stage("resolve")
    for name in settings["bases"]:
        stage("base", name)
    for name in settings["data"]:
        stage("prepare", name)
    for name in settings.get("reward_models", {}):
        stage("reward-model", name)
    stage("train", run)
    stage("pin")
    for name in (settings["runs"].get(run) or settings["save_runs"][run])["start_from"], run:
        stage("evaluate", name)
    history = pd.read_parquet(Path("models") / run / "history.parquet").set_index("step")
    assert [step for step in history.index if step > 0] == list(range(1, steps + 1))
    assert not [name for name in history if describe(mlflow_name(name)) is None]
    return settings, history


def keeps_its_hyper_parameters(settings: dict[str, Any], run: str, section: str) -> None:
    """The manifest tells what was trained with: the profile's numbers, but for sizes and places."""
    manifest = verify(Path("models") / run)
    assert (manifest["status"], manifest["method"], manifest["bad_steps"]) == (
        "finished",
        settings[section][run]["method"],
        0,
    )
    told = manifest["settings"]
    assert told["run"]["options"] == settings[section][run]["options"]
    assert told["prompt"] == {"stop": [], **settings["prompts"][settings[section][run]["dataset"]]}
    training, wanted = told["training"], settings["training"]
    assert without(training, CHANGED) == without(wanted, CHANGED)
    assert training["sampling"] == wanted["sampling"] | {"max_completion_tokens": SAID}


def without(settings: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in keys}


def weights_moved(start: str, run: str) -> bool:
    before, after = (load_file(Path("models") / name / "model.safetensors") for name in (start, run))
    return any(not value.equal(after[name]) for name, value in before.items())


def all_methods_are_made() -> None:
    """Of every run, the ablations among them."""
    params = checked(Path("params.yaml"))
    with Grader(1, 1.0) as grader:
        for name, run in params.runs.items():
            texts = read_json(Path("resolved") / "train" / f"{name}.json").get("texts", {})
            setting = Setting(
                params.training_of(name),
                params.prompts[run.dataset],
                grader,
                run.seed,
                texts,
                Path(),
                models_of(run, Path()),
            )
            METHODS[run.method](options_of(name, run), setting).state_dict()


@pytest.mark.parametrize("profile", SPYRL)
def test_spyrl(profile: str, machine: Path, stage: Stages) -> None:
    """Random votes hit one time in five, so detection trains until its patience ends; then the performers train."""
    patience = 20  # as in all three
    settings, history = made(profile, machine, stage, patience + 2, "spyrl")
    options, players = settings["runs"]["spyrl"]["options"], settings["training"]["group_size"]
    assert options["schedule"]["patience"] == patience
    keeps_its_hyper_parameters(settings, "spyrl", "runs")
    assert weights_moved("qwen3-4b-instruct", "spyrl")

    rows = history.loc[1:]
    assert list(rows["stage/detection"]) == [1.0] * patience + [0.0] * 2
    assert list(rows["stage/performing"]) == [0.0] * patience + [1.0] * 2
    assert list(rows["game/switched"]) == [0.0] * (patience - 1) + [1.0] + [0.0] * 2
    for stage_rows in (rows.loc[:patience], rows.loc[patience + 1 :]):
        assert (stage_rows["grad_norm"] > 0).any() and (stage_rows["kl"] >= 0).all()
    assert (rows["learning_rate"] == settings["training"]["learning_rate"]).all()
    assert (rows["votes/received_by_spy"] > 0).any() and (rows["votes/unreadable"] < 1).any()
    assert (rows["game/too_long"] == 0).all() and (rows["rollout/completions"] == GAMES * players * 2).all()
    assert ((rows["information_loss/ratio"] - options["information_loss"]["share"]).abs() < 0.05).all()
    assert (rows.loc[:patience, "baseline/spy"] == 0).all() and rows["baseline/spy"].iloc[-1] != 0

    records = pq.read_table(Path("models") / "spyrl" / "records").to_pandas()
    assert len(records) == (patience + 2) * GAMES * players * 2
    baseline_is_of_the_rewards(records, options, rows["baseline/spy"].iloc[-1])
    all_methods_are_made()
    assert read_json(Path("reports/runs/spyrl/training.json"))["steps"] == patience + 2
    if profile.endswith("maths"):
        problems_are_invented_and_solved(records)
    elif profile.endswith("govreport"):
        scores = read_json(Path("reports/runs/spyrl/govreport/metrics.json"))
        assert scores["items"] == scores["game/games"] == 4 and 0 <= scores["rouge_l"] <= 1
        assert history["validation/rouge_l"].notna().any()
    else:  # stories are written for judges, and games are played on them
        stories, games = (
            read_json(Path(f"reports/runs/spyrl/{one}/metrics.json")) for one in ("stories", "stories-game")
        )
        assert stories["items"] == games["game/games"] == 4 and "game/games" not in stories


def baseline_is_of_the_rewards(records: pd.DataFrame, options: dict[str, Any], baseline: float) -> None:
    """Eq. 6 from each game's votes, and the moving mean of the spies' rewards over the rollouts that trained performers."""
    beta, decay = options["beta"], options["baseline"]["decay"]
    expected = 0.0
    for _, seats in records[records["role"] == "performer"].groupby(["step", "prompt_id"], sort=False):
        spy = seats["slot"] == seats["spy"]
        reward = float(seats["reward"][spy].iloc[0])
        assert reward == pytest.approx(-beta * (seats["votes"][spy].iloc[0] - seats["votes"][~spy].mean()))
        assert seats["reward"].sum() == pytest.approx(0, abs=1e-9)
        if seats["stage"].iloc[0] == "performing":
            expected = decay * expected + (1 - decay) * reward
    assert baseline == pytest.approx(expected)


def problems_are_invented_and_solved(records: pd.DataFrame) -> None:
    """Trained on pages of mathematics, tested on GSM8K and MATH-500: pass@1 is the share of gold answers in boxes."""
    performed = records[records["role"] == "performer"]
    assert set(performed["prompt_id"]) <= set(pd.read_parquet("data/maths-text/train.parquet")["id"])
    assert performed["output"].str.contains("What is 2 \\+ 3").any()
    for model in ("qwen3-4b-instruct", "spyrl"):
        for suite in ("gsm8k", "math500"):
            folder = Path("reports/runs") / model / suite
            items = pd.read_parquet(folder / "items.parquet")
            golds = pd.read_parquet(Path("data") / suite / "test.parquet").set_index("id")["answer"]
            right = [
                extract(text, "boxed") == golds[item] for item, text in zip(items["id"], items["text"], strict=True)
            ]
            scores = read_json(folder / "metrics.json")
            assert scores["items"] == len(items) == 6
            assert scores["pass@1"] == pytest.approx(sum(right) / len(right))


@pytest.mark.parametrize("profile", SAVE)
def test_save(profile: str, machine: Path, stage: Stages) -> None:
    settings, history = made(profile, machine, stage, 2, "save")
    keeps_its_hyper_parameters(settings, "save", "save_runs")
    options = settings["save_runs"]["save"]["options"]
    rows = history.loc[1:]
    assert rows["reward_model/loss_v"].notna().all() and rows["reward_model/loss_r"].notna().all()
    assert (rows["reward_model/bad_updates"] == 0).all() and (rows["reward_model/kept"] > 0).any()
    assert (rows["grad_norm"] > 0).any()
    judge = verify(Path("models/judge"))
    wanted = settings["reward_models"]["judge"]
    changed = {"device", "precision", "value_fit"}
    assert without(judge["settings"], changed) == without(wanted, changed)
    changed = {"prompts", "sampling"}
    assert without(judge["settings"]["value_fit"], changed) == without(wanted["value_fit"], changed)
    before, after = Path("models/judge"), Path("models/save/reward_model")
    old, new = (load_file(folder / "value_head.safetensors")["weight"] for folder in (before, after))
    assert 0 < (old - new).abs().max() <= 2.1 * options["value_learning_rate"]  # AdamW: about the rate an update
    assert weights_moved("../models/judge", "save/reward_model") and weights_moved(
        settings["save_runs"]["save"]["start_from"], "save"
    )
    records = pq.read_table(Path("models/save/records")).to_pandas()
    assert len(records) == 2 * GAMES * settings["training"]["group_size"]
    assert set(records["prompt_id"]) <= set(pd.read_parquet("data/ultrafeedback/train.parquet")["id"])
    all_methods_are_made()
