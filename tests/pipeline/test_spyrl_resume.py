"""SpyRL killed in either of its stages, then the same command: the same bytes, baselines and schedule included."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from project import REPOSITORY, command, hashes
from ruamel.yaml import YAML
from test_resume import kill_and_repeat

pytestmark = pytest.mark.pipeline


def write_memo_params(root: Path) -> None:
    """The spy game of `make reproduce`, made small: four games a rollout, stages of two rollouts, a checkpoint each."""
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load((REPOSITORY / "profiles" / "reproduce.yaml").read_text())
    for section, names in (("bases", ["tiny-memo"]), ("data", ["memo", "memo-lessons"]), ("suites", ["memo"]),
                           ("prompts", ["memo", "memo-lessons"]), ("runs", ["warmup-memo", "spyrl"])):  # fmt: skip
        params[section] = {name: params[section][name] for name in names}
    params["bases"]["tiny-memo"].update({"hidden_size": 48, "intermediate_size": 96, "layers": 2, "heads": 4})
    params["data"]["memo"].update({"train": 60, "validation": 10, "test": 10})
    params["data"]["memo-lessons"].update({"train": 1000, "validation": 10})
    params["runs"]["warmup-memo"]["options"]["batch_size"] = 32
    params["runs"]["warmup-memo"]["training"].update({"steps": 80, "save_every": 80})
    spyrl = params["runs"]["spyrl"]
    spyrl["training"].update({"steps": 8, "save_every": 1, "rollout_size": 20, "micro_batches": 1})
    spyrl["options"]["schedule"].update({"min_stay": 2, "patience": 2})
    params["training"]["validation_items"] = 10
    with (root / "params.yaml").open("w") as file:
        yaml.dump(params, file)
    shutil.copytree(REPOSITORY / "prompts", root / "prompts")


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A project with a finished spy game, and the hashes of what it made."""
    root = tmp_path_factory.mktemp("games")
    write_memo_params(root)
    for words in (["resolve"], ["base", "tiny-memo"], ["prepare", "memo-lessons"], ["prepare", "memo"],
                  ["train", "warmup-memo"], ["train", "spyrl"]):  # fmt: skip
        command(root, "judgefree", *words)
    return root, hashes(root / "models" / "spyrl")


def test_both_stages_teach(games: tuple[Path, dict[str, str]]) -> None:
    """Otherwise equal bytes would say nothing."""
    history = pd.read_parquet(games[0] / "models" / "spyrl" / "history.parquet").set_index("step")
    assert history["stage/performing"].dropna().tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert (history["grad_norm"].dropna() > 0).all() and len(history["grad_norm"].dropna()) == 8
    assert (history["baseline/spy"].dropna().iloc[3:] != 0).all() and history["votes/unreadable"].min() < 0.5


@pytest.mark.parametrize(("step", "stage"), [(2, "detection"), (4, "performing")])
def test_killed_in_a_stage(games: tuple[Path, dict[str, str]], step: int, stage: str) -> None:
    """At the second rollout of a stage, of which the first has a checkpoint."""
    root, untouched = games
    again = root.with_name(f"{root.name}-{step}")
    shutil.copytree(root, again, ignore=shutil.ignore_patterns(".work"))
    said = kill_and_repeat(again, "spyrl", step, moment=0.01)
    assert f"going on from step {step - 1}" in said or f"going on from step {step}" in said, stage
    assert hashes(again / "models" / "spyrl") == untouched
