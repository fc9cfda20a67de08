"""Benchmarks run: tables, metrics, averages, the files of `judgefree reward-bench`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from reward_sets import FILES
from ruamel.yaml import YAML
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast
from typer.testing import CliRunner

from judgefree import cli
from judgefree.check import checked
from judgefree.config_rewards import Place, RewardBenchmarks
from judgefree.errors import JudgefreeError
from judgefree.files import listing, seal, verify
from judgefree.params import load_params, resolve
from judgefree.registry.catalogue import describe, mlflow_name
from judgefree.reward_benchmarks import run, stage
from judgefree.reward_benchmarks.items import Conversation
from judgefree.reward_benchmarks.rulers import length, rulers
from judgefree.reward_benchmarks.run import averages, run_benchmarks

PROJECT = Path(__file__).parents[2]
SIX = ("reward_bench", "reward_bench_2", "rm_bench", "ppe_preference", "ppe_correctness", "judge_bench")


def settings(places: dict[str, Place]) -> RewardBenchmarks:
    return RewardBenchmarks(
        max_tokens=16, tokens_per_batch=64, device="cpu", precision="fp32", seed=0, partial=True, sets=places
    )


def test_all_six_by_the_length_ruler(write: Callable[..., Place], tmp_path: Path) -> None:
    """Figures by hand from the texts of the fixtures."""
    tables, metrics = run_benchmarks(length, settings({name: write(name) for name in FILES}), tmp_path)
    assert set(tables) == set(SIX)
    assert metrics["reward_bench/reward_bench/overall"] == 1.0  # "good" is longer than "bad"
    assert metrics["reward_bench/reward_bench_2/section/precise_if"] == 1.0  # of 4, 1, 2 and 3 characters
    # Ties: red and hat are equally long, so neither accuracy is there, d is 1, the margin 0: tanh(-1)
    assert metrics["reward_bench/reward_bench_2/section/ties"] == pytest.approx(0.01 * -0.7615941559)
    assert metrics["reward_bench/rm_bench/level/easy"] == 1.0 and metrics["reward_bench/rm_bench/level/normal"] == 0.0
    assert metrics["reward_bench/rm_bench/overall"] == pytest.approx(1 / 3)
    assert (
        metrics["reward_bench/ppe_preference/overall"] == 0.5 and metrics["reward_bench/ppe_preference/excluded"] == 2
    )
    assert metrics["reward_bench/ppe_correctness/overall"] == 1.0  # "rr" over "r", "rrrr" over "rrr"
    assert metrics["reward_bench/ppe_correctness/items"] == 5 and metrics["reward_bench/ppe_correctness/excluded"] == 5
    assert "reward_bench/ppe_correctness/coverage" not in metrics  # nobody published how many there are
    assert metrics["reward_bench/judge_bench/overall"] == 0.5
    assert metrics["reward_bench/reward_bench/coverage"] == 46 / 2985
    assert not any("mean_of" in name or "average" in name for name in metrics)  # ppe_correctness alone is whole
    for name in metrics:
        assert describe(name) is not None and mlflow_name(name) == name, name
    same = {
        name.removeprefix("ruler/length/"): value for name, value in metrics.items() if name.startswith("ruler/length/")
    }
    assert same and all(metrics[f"reward_bench/{name}"] == value for name, value in same.items())
    first = tables["rm_bench"].iloc[0]
    assert list(first["scores"]) == [1, 2, 3, 1, 2, 3] and first["outcome"] == pytest.approx(1 / 3)
    assert first["outcome_length_short"] == pytest.approx(1 / 3) and list(first["right"]) == [True] * 3 + [False] * 3


def test_averages_are_named_by_what_they_are_over() -> None:
    def metrics_of(names: tuple[str, ...]) -> dict[str, float]:
        prefixes = ("reward_bench", *(f"ruler/{ruler}" for ruler in rulers(0)))
        return {f"{prefix}/{name}/{key}": 0.1 * (i + 1) if key == "overall" else 0.06
                for prefix in prefixes for i, name in enumerate(names) for key in ("overall", "overall_se")}  # fmt: skip

    six = averages(metrics_of(SIX))
    assert six["reward_bench/average_of_six"] == pytest.approx(0.35)  # of 0.1 to 0.6
    assert six["reward_bench/average_of_six_se"] == pytest.approx(0.06 / 6**0.5)
    assert six["ruler/random/average_of_six"] == pytest.approx(0.35)
    part = averages(
        {**metrics_of(SIX), "reward_bench/rm_bench/coverage": 0.6, "reward_bench/judge_bench/coverage": 1.0}
    )
    assert part[
        "reward_bench/mean_of_reward_bench_reward_bench_2_ppe_preference_ppe_correctness_judge_bench"
    ] == pytest.approx(0.36)
    assert averages(metrics_of(("judge_bench",))) == {} == averages(metrics_of(("llmbar", "xstest")))


def test_a_score_that_is_no_number_names_its_item(write: Callable[..., Place], tmp_path: Path) -> None:
    def broken(conversations: list[Conversation]) -> list[float]:
        return [float("nan") if i == 3 else 0.0 for i in range(len(conversations))]

    places = settings({"judge_bench": write("judge_bench")})
    with pytest.raises(JudgefreeError, match="response 1 of item mmlu-pro-law 1 .* has score nan"):
        run_benchmarks(broken, places, tmp_path)
    with pytest.raises(JudgefreeError, match="3 scores for 16 conversations"):
        run_benchmarks(lambda conversations: [0.0] * 3, places, tmp_path)


def test_the_random_ruler_is_a_function_of_seed_and_text() -> None:
    talks = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": str(i)}] for i in range(2000)]
    one, other = rulers(0)["random"], rulers(1)["random"]
    assert one(talks[::-1]) == one(talks)[::-1] and one(talks) != other(talks)
    assert all(0 <= score < 1 for score in one(talks)) and sum(one(talks)) / 2000 == pytest.approx(0.5, abs=0.03)


# ------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def project(tmp_path: Path, write: Callable[..., Place], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the tiny profile, two sets in the hub's layout, and a random reward model with a tokenizer of words."""
    torch.manual_seed(0)
    words = ["<pad>", "<eos>", "<unk>", "good", "bad", "first", "second", "one", "g", "gg", "ggg", "b", "bb", "bbb"]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}<eos>"
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, num_labels=1,
    )  # fmt: skip
    folder = tmp_path / "models" / "reward"
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    raw = YAML(typ="safe", pure=True).load((PROJECT / "profiles" / "tiny.yaml").read_text())
    places = {name: {"id": write(name).id} for name in ("rm_bench", "judge_bench")}
    raw["reward_benchmarks"] = {"max_tokens": 16, "tokens_per_batch": 64, "device": "cpu", "precision": "fp32", "seed": 0,
                                "partial": True, "sets": places}  # fmt: skip
    with (tmp_path / "params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(raw, file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the command sets it; here it is restored afterwards
    return tmp_path


def test_a_policy_is_refused_before_any_set_is_fetched(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetches(*arguments: object) -> None:
        raise AssertionError("rows were read for a model without a reward head")

    monkeypatch.setattr(run, "load_set", fetches)
    seal(project / "models" / "reward", {})
    config = project / "models" / "reward" / "config.json"
    config.write_text(config.read_text().replace("LlamaForSequenceClassification", "LlamaForCausalLM"))
    settings = stage.settings_of("reward", project)[0]
    with pytest.raises(JudgefreeError, match=r"config\.json"):
        stage.reward_bench("reward", settings, 1, project)  # damaged, which is said first
    seal(project / "models" / "reward", {})
    with pytest.raises(JudgefreeError, match=r"reward is no reward model: .* \['LlamaForCausalLM'\]"):
        stage.reward_bench("reward", settings, 1, project)
    (project / "empty").mkdir()
    with pytest.raises(JudgefreeError, match=r"empty holds no config\.json, so no model"):
        stage.reward_bench("empty", settings, 1, project)


def test_command(project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    shown = CliRunner().invoke(cli.app, ["reward-bench", "reward"])
    assert shown.exit_code == 0, shown.output
    report = project / "reports" / "reward-bench" / "reward"
    manifest = verify(report)
    assert set(manifest["files"]) == {"metrics.json", "table.md", "rm_bench.parquet", "judge_bench.parquet"}
    assert str(project) not in (report / "manifest.json").read_text()
    assert shown.stdout == (report / "table.md").read_text() and "| overall |" in shown.stdout
    metrics = json.loads((report / "metrics.json").read_text())
    items = pd.read_parquet(report / "judge_bench.parquet")
    right = [scores[0] > scores[1] for scores in items["scores"]]
    assert metrics["reward_bench/judge_bench/overall"] == sum(right) / 8 == items["outcome"].mean()
    assert items["scores"].map(tuple).nunique() == 2  # the model sees A and B, and unknown words besides
    assert metrics["reward_bench/rm_bench/truncated"] == 0 and metrics["ruler/length/rm_bench/level/easy"] == 1.0
    # A question of two words, none known; "first" or "second one", all known; the end: 2 of 4 and 2 of 5 tokens.
    assert (
        metrics["reward_bench/judge_bench/unknown"] == pytest.approx(4 / 9)
        and "44.4% of the tokens unk" in shown.stdout
    )
    assert "judge_bench: the tokenizer does not know 44 % of the tokens" in caplog.text
    before = listing(report)

    def loads(*args: object) -> None:
        raise AssertionError("the model was loaded though nothing is missing")

    shutil.rmtree(report)
    with monkeypatch.context() as patch:
        patch.setattr(stage, "_scorer", loads)
        assert CliRunner().invoke(cli.app, ["reward-bench", "models/reward"]).exit_code == 0
    assert listing(report) == before
    shutil.rmtree(project / ".work")
    shutil.rmtree(report)
    assert CliRunner().invoke(cli.app, ["reward-bench", "reward"]).exit_code == 0
    assert listing(report) == before  # scored anew, the same bytes


def test_what_is_missing_is_named(project: Path) -> None:
    with pytest.raises(JudgefreeError, match="gone is neither a model in models/ nor a folder"):
        stage.reward_bench("gone", settings({"judge_bench": Place(id="./sets/judge_bench")}), 1, project)
    shutil.copy(PROJECT / "profiles" / "all.yaml", project / "params.yaml")
    for name, made_by in (("judge", "reward_model"), ("save", "train_save")):
        with pytest.raises(JudgefreeError, match=f"models/{name} is not made yet") as early:
            stage.reward_bench(name, settings({"judge_bench": Place(id="./sets/judge_bench")}), 1, project)
        assert early.value.fix == f"run `dvc repro {made_by}@{name}`"
    shutil.copy(PROJECT / "profiles" / "tiny.yaml", project / "params.yaml")
    with pytest.raises(JudgefreeError, match="has no section reward_benchmarks"):
        stage.settings_of("reward", project)


def test_the_section_is_optional_and_touches_nothing_else(project: Path) -> None:
    with_it, without = load_params(project / "params.yaml"), checked(PROJECT / "profiles" / "tiny.yaml")
    assert resolve(with_it, project) == resolve(without, PROJECT)
    raw = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(raw.replace("judge_bench:", "judge-bench:"))
    with pytest.raises(JudgefreeError, match="reward_benchmarks.sets"):
        load_params(project / "params.yaml")
