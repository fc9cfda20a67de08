"""params.yaml: what is read, and what is refused with the key's path and the fix."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from judgefree.check import check_params, checked
from judgefree.config import Strict
from judgefree.config_data import ScratchBase
from judgefree.errors import JudgefreeError
from judgefree.params import Params, load_params, parse_params, resolve
from judgefree.refusals import refusals
from judgefree.training.arguments import sft_arguments

ROOT = Path(__file__).parents[1]
TINY = ROOT / "profiles" / "tiny.yaml"


def raw() -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(TINY.read_text())


RLVR = raw()["runs"]["rlvr"]
AGAIN: dict[str, Any] = {
    "dataset": "arithmetic", "max_completion_tokens": 32, "batch_rows": 250,
    "retry": {"procedure": "reflexion", "rounds": 2, "prompts": "prompts/reflexion.yaml", "buffer": 1},
}  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    """The tiny profile with one key set (removed where the value is `...`)."""
    settings = raw()
    *parents, last = path.split(".")
    place = settings
    for part in parents:
        place = place.setdefault(part, {})
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return settings


def test_what_is_all_right_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "prompts", tmp_path / "prompts")
    check_params(Path(shutil.copy(ROOT / "profiles" / "all.yaml", tmp_path / "params.yaml")), quiet=True)
    said = capsys.readouterr().out
    assert "; save <- warmup <- tiny, with judge), 1 reward models (judge <- warmup <- tiny)" in said
    assert said.endswith("judge, save judged by held_out_pairs, 2 suites: all right\n")


def test_exponent_without_a_dot_is_a_number(tmp_path: Path) -> None:
    """PyYAML reads 1e-5 as text; YAML 1.2 as a number."""
    text = TINY.read_text().replace("learning_rate: 1e-4", "learning_rate: 1e-5")
    (tmp_path / "params.yaml").write_text(text)
    assert load_params(tmp_path / "params.yaml").training.learning_rate == 1e-5


@pytest.mark.parametrize(
    ("path", "value", "named", "fix"),
    [
        ("training.lerning_rate", 1e-4, "training.lerning_rate: unknown key", "did you mean 'learning_rate'"),
        ("training.steps", ..., "training.steps: missing", "add it"),
        ("training.group_size", 1, "a group of one has no baseline", "use 2 or more"),
        ("training.rollout_size", 100, "100 completions cannot be split into groups of 8", "use a multiple such as 96"),
        ("training.save_every", 6, "save_every: 6 is off the rollout boundary", "use a multiple of updates_per_rollout (4)"),
        ("training.steps", 241, "steps: 241 is off the rollout boundary", "multiple"),
        ("training.loss.clip_low", -0.1, "training.loss.clip_low", "greater than 0"),
        ("runs.rlvr.start_from", "warmpu", "runs.rlvr.start_from: unknown name 'warmpu'", "did you mean 'warmup'"),
        ("runs.rlvr.dataset", "nope", "runs.rlvr.dataset: unknown name 'nope'", "known: arithmetic"),
        ("runs.warmup.start_from", "rlvr", "is a cycle", "let one of them start from a base"),
        ("runs.rlvr.training", {"group_size": 1}, "runs.rlvr.training: group_size", "use 2 or more"),
        ("runs.rlvr.training", {"stepps": 1}, "runs.rlvr.training.stepps: unknown key", "did you mean 'steps'"),
        ("runs.rlvr.suites", ["arithmetik"], "runs.rlvr.suites: unknown name", "did you mean 'arithmetic'"),
        ("runs.Bad.Name", {}, "runs.Bad", ""),
        ("runs", {"-rlvr": RLVR}, "runs.-rlvr: a name is made of", "begins with a letter or digit"),
        ("runs", {"rlvr\n": RLVR}, "a name is made of", "rename it"),
        ("training.learning_rate", float("inf"), "training.learning_rate: Input should be a finite number", ""),
        ("gates.margin", float("nan"), "gates.margin: Input should be a finite number", ""),
        ("training.max_grad_norm", True, "training.max_grad_norm: Input should be a valid number", ""),
        ("threads", True, "threads: Input should be a valid integer", ""),
        ("threads", "1", "threads: Input should be a valid integer", ""),
        ("prompts.arithmetic.chat", 1, "prompts.arithmetic.chat: Input should be a valid boolean", ""),
        ("runs.warmup.training", {"steps": "300"}, "runs.warmup.training.steps: Input should be a valid integer", ""),
        ("bases.tiny.kind", "magic", "bases.tiny", "scratch"),
        ("bases.tiny.vocabulary", "orders", "arithmetic is of kind arithmetic and the base's vocabulary is orders",
         "start from a base with vocabulary: arithmetic"),
        ("bases.tiny.max_value", 8, "numbers up to 12 and the base knows them up to 8", "raise the base's max_value"),
        ("data.arithmetic.test", 0, "data.arithmetic.test", "greater than or equal to 1"),
        ("data.arithmetic.min_steps", 9, "data.arithmetic: min_steps is above max_steps", "lower min_steps"),
        ("prompts.arithmetic", ..., "prompts.arithmetic: missing", "say how a question"),
        ("prompts.arithmetic.template", "Solve it", "no {question}", "add it where the question goes"),
        ("suites.arithmetic.pass_at", [16], "k above samples", "raise samples or lower k"),
        ("training.vllm", {"mode": "colocate", "memory_share": 0.4}, "vllm: settings are given exactly when", "remove"),
        ("runs.rlvr-b", {"method": "rlvr", "dataset": "arithmetic", "start_from": "warmup", "seed": 0, "select": "last",
                         "suites": [], "arm": "rlvr"}, "differs from runs.rlvr by more than its seed", "another arm"),
        ("runs.rlvr-b", {**RLVR, "arm": "rlvr"}, "has seed 0 too", "change one"),
        ("runs.rlvr.arm", "tiny", "runs.rlvr.arm: 'tiny' is the name of a base", "use another"),
        ("runs.rlvr.arm", "warmup", "runs.rlvr.arm: differs from runs.warmup", "another arm"),
        ("runs.rlvr.arm", "A b", "runs.rlvr.arm: 'A b': a name is made of", "rename it"),
        ("runs", {**raw()["runs"], "a": {**RLVR, "arm": "b"}, "b": {**RLVR, "arm": "c", "seed": 1}},
         "runs.a.arm: 'b' is the name of a run of arm 'c'", "use another"),
        ("runs.rlvr-b", {**RLVR, "arm": "rlvr", "seed": 1, "start_from": "tiny"},
         "runs.rlvr-b.start_from: tiny and warmup, which runs.rlvr of arm 'rlvr' starts from", "start from the same"),
        ("bases.tiny.suites", [], "bases.tiny.suites: without arithmetic, which decides on arithmetic", "add arithmetic"),
        ("suites.arithmetic", {k: v for k, v in raw()["suites"]["arithmetic"].items() if k != "samples"} | {"pass_at": []},
         "gates.measure: sampled/accuracy, and suite arithmetic, which decides on arithmetic, draws no samples",
         "set suites.arithmetic.samples or use pass@1"),
        ("suites.again", {**AGAIN, "samples": 4, "pass_at": [1], "temperature": 1.0, "seed": 0},
         "suites.again: samples and retry exclude each other", "use a suite for each"),
        ("suites.again", {**AGAIN, "retry": {**AGAIN["retry"], "buffer": None}},
         "suites.again.retry: buffer is given exactly when", "add or remove it"),
        ("suites.again", {**AGAIN, "retry": {**AGAIN["retry"], "procedure": "self_refine"}},
         "suites.again.retry: buffer is given exactly when", "add or remove it"),
        ("suites.again", {**AGAIN, "retry": {**AGAIN["retry"], "round": 1}}, "suites.again.retry.round: unknown key",
         "did you mean 'rounds'"),
        ("data.arithmetic.pairs", {"train": 8, "validation": 4, "flattery": 0.5},
         "data.arithmetic.pairs.flattery: unknown key", "did you mean 'flattery' beside 'pairs', one level up?"),
        ("data.arithmetic.demonstrations", {**raw()["data"]["arithmetic"]["demonstrations"], "max_source_words": 3},
         "data.arithmetic.demonstrations.max_source_words: unknown key", "remove it"),
        ("training.learning_rate", "1e-4", "and '1e-4' is text", "write it without quotes"),
        ("prompts.arithmetic.chat", "true", "and 'true' is text", "write it without quotes"),
    ],
)  # fmt: skip
def test_refused(path: str, value: Any, named: str, fix: str) -> None:
    with pytest.raises(JudgefreeError) as caught:
        parse_params(changed(path, value), "params.yaml")
    assert named in str(caught.value) and fix in str(caught.value), str(caught.value)


@pytest.mark.parametrize("text", ["fast", "2%", "yes", "nan", "infinity"])
def test_text_that_has_no_quotes_is_not_said_to_have_them(text: str) -> None:
    with pytest.raises(JudgefreeError) as caught:
        parse_params(changed("training.max_grad_norm", text), "params.yaml")
    assert str(caught.value).endswith(f"and {text!r} is text")


@pytest.mark.parametrize("section", Params.model_fields)
def test_a_missing_key_names_a_file_that_has_its_section(section: str) -> None:
    (line,) = refusals(
        ValidationError.from_exception_data("", [{"type": "missing", "loc": (), "input": {}}]), Params, section
    )
    file = ROOT / line.split("(")[1].split(" has such a section")[0]
    assert f"\n{section}:" in file.read_text()


def test_an_integer_stands_for_a_float() -> None:
    assert parse_params(changed("training.max_grad_norm", 1), "params.yaml").training.max_grad_norm == 1.0


def test_an_arm_may_start_from_the_runs_of_an_arm() -> None:
    settings = raw()
    settings["runs"] |= {
        "warmup-1": {**settings["runs"]["warmup"], "seed": 1, "arm": "warmup"},
        "rlvr-1": {**RLVR, "seed": 1, "arm": "rlvr", "start_from": "warmup-1"},
    }
    parse_params(settings, "params.yaml")
    del settings["runs"]["warmup-1"]["arm"]
    with pytest.raises(JudgefreeError, match="runs.rlvr-1.start_from: warmup-1 and warmup, .* are no runs of one arm"):
        parse_params(settings, "params.yaml")


def test_nothing_trains_on_a_test_split() -> None:
    settings = raw()
    quality = settings["data"]["arithmetic"]["quality"]
    settings["data"]["mawps"] = {"kind": "mawps", "subset": "test", "quality": quality}
    settings["prompts"]["mawps"] = settings["prompts"]["arithmetic"]
    settings["suites"]["mawps"] = {**settings["suites"]["arithmetic"], "dataset": "mawps"}
    parse_params(settings, "params.yaml")
    settings["runs"]["rlvr"]["dataset"] = "mawps"
    with pytest.raises(JudgefreeError, match="runs.rlvr.dataset: mawps has a test split only"):
        parse_params(settings, "params.yaml")


def test_a_suite_that_decides_on_nothing_needs_no_samples() -> None:
    settings = raw()
    settings["suites"]["more"] = {"dataset": "arithmetic", "max_completion_tokens": 32, "batch_rows": 250}
    parse_params(settings, "params.yaml")
    settings["gates"]["measure"] = "pass@1"
    settings["suites"]["arithmetic"] = settings["suites"]["more"]
    parse_params(settings, "params.yaml")


def test_what_looks_at_the_gold_answers_decides_on_nothing() -> None:
    settings = raw()
    settings["gates"]["measure"] = "pass@1"
    settings["suites"]["again"] = AGAIN
    parse_params(settings, "params.yaml")
    settings["suites"]["arithmetic"] = AGAIN
    with pytest.raises(JudgefreeError, match="suites.arithmetic.retry: reflexion asks the gold answers .* decide on"):
        parse_params(settings, "params.yaml")
    refine = {"procedure": "self_refine", "rounds": 2, "prompts": "prompts/self-refine.yaml"}
    settings["suites"]["arithmetic"] = {**AGAIN, "retry": refine}
    parse_params(settings, "params.yaml")
    settings["suites"] = {"only": AGAIN}
    settings["bases"]["tiny"]["suites"] = ["only"]
    for run in settings["runs"].values():
        run["suites"] = ["only"]
    with pytest.raises(JudgefreeError, match="suites.only.retry: reflexion asks"):
        parse_params(settings, "params.yaml")


def written(folder: Path, settings: dict[str, Any]) -> Path:
    with (folder / "params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(settings, file)
    return folder / "params.yaml"


@pytest.mark.parametrize(
    ("batch_size", "processes", "micro_batches", "message"),
    [
        (3, 1, 4, r"runs\.warmup\.options\.batch_size: 3 rows .*\n.*use a multiple of 4, such as 4"),
        (128, 1, 3, r"runs\.warmup\.options\.batch_size: 128 rows .*\n.*use a multiple of 3, such as 129"),
        (12, 2, 4, r"into 2 \(training.processes\) x 4 \(training.micro_batches\).*\n.*multiple of 8, such as 16"),
        (128, 2, 4, None),
    ],
)
def test_no_demonstration_is_left_out_of_a_batch(
    tmp_path: Path, batch_size: int, processes: int, micro_batches: int, message: str | None
) -> None:
    settings = changed("runs.warmup.options", {"batch_size": batch_size})
    settings["runs"]["warmup"]["training"] |= {"processes": processes, "micro_batches": micro_batches}
    path = written(tmp_path, settings)
    with pytest.raises(JudgefreeError, match=message) if message else nullcontext():
        checked(path)
    training = parse_params(settings, "params.yaml").training_of("warmup")
    with pytest.raises(JudgefreeError) if message else nullcontext():
        assert sft_arguments(training, tmp_path, 0, batch_size).per_device_train_batch_size == 16


@pytest.mark.parametrize("run", ["warmup", "rlvr"])
def test_weights_are_chosen_by_a_signal_that_is_there(tmp_path: Path, run: str) -> None:
    path = written(tmp_path, changed(f"runs.{run}.select", "own_signal"))
    with pytest.raises(JudgefreeError, match=rf"runs\.{run}\.select: .* no own_signal\n.*select: last"):
        checked(path)


def test_the_content_of_an_accelerate_config_is_a_setting(tmp_path: Path) -> None:
    path = written(tmp_path, changed("runs.rlvr.training", {"accelerate_config": "several.yaml"}))
    with pytest.raises(
        JudgefreeError, match=r"runs\.rlvr: training\.accelerate_config: .*several\.yaml does not exist"
    ):
        check_params(path, quiet=True)
    (tmp_path / "several.yaml").write_text("distributed_type: FSDP\n")
    with pytest.raises(
        JudgefreeError, match=r"runs\.rlvr: .*several\.yaml asks for FSDP, and training wants whole weights"
    ):
        check_params(path, quiet=True)
    (tmp_path / "several.yaml").write_text("distributed_type: MULTI_GPU\n")
    before = resolve(load_params(path), tmp_path)
    (tmp_path / "several.yaml").write_text("distributed_type: NO\n")
    after = resolve(load_params(path), tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"train/rlvr.json"}


def test_covariance_methods_need_two_updates() -> None:
    settings = raw()
    settings["training"]["loss"]["kl_cov"] = {"share": 0.02, "weight": 1.0}
    settings["training"]["updates_per_rollout"] = 1
    with pytest.raises(JudgefreeError, match="updates_per_rollout: KL-Cov and Clip-Cov do nothing"):
        parse_params(settings, "params.yaml")


def test_truncated_sampling_with_correction_must_be_allowed_by_name() -> None:
    settings = raw()
    settings["training"] |= {"engine": "vllm", "vllm": {"mode": "colocate", "memory_share": 0.4, "correction_cap": 3.0}}
    settings["training"]["sampling"]["top_p"] = 0.9
    with pytest.raises(JudgefreeError, match="allow_truncated_sampling_with_correction: true"):
        parse_params(settings, "params.yaml")
    settings["training"]["vllm"]["allow_truncated_sampling_with_correction"] = True
    parse_params(settings, "params.yaml")


def test_broken_files(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    (tmp_path / "dvc.yaml").touch()
    with pytest.raises(JudgefreeError, match="does not exist"):
        load_params(path)
    path.write_text("runs: [\n")
    with pytest.raises(JudgefreeError, match="not readable as YAML"):
        load_params(path)
    path.write_text("threads: \x07\n")
    with pytest.raises(JudgefreeError, match="params.yaml is not readable as YAML: .*special characters"):
        load_params(path)
    path.write_text("just text")
    with pytest.raises(JudgefreeError, match="no mapping"):
        load_params(path)
    path.write_text("threads: 1\nthreads: 2\n")
    with pytest.raises(JudgefreeError, match="threads"):
        load_params(path)


def test_overrides_are_laid_over_key_by_key() -> None:
    settings = changed("runs.rlvr.training", {"sampling": {"temperature": 0.7}, "steps": 8, "save_every": 8})
    training = parse_params(settings, "params.yaml").training_of("rlvr")
    assert training.sampling.temperature == 0.7 and training.steps == 8
    assert training.sampling.max_completion_tokens == raw()["training"]["sampling"]["max_completion_tokens"]


def test_a_key_that_does_not_touch_a_run_leaves_its_resolved_settings() -> None:
    before = resolve(parse_params(raw(), "params.yaml"))
    settings = changed("runs.other", {**raw()["runs"]["rlvr"], "seed": 7, "training": {"learning_rate": 1e-5}})
    settings["suites"]["more"] = {**settings["suites"]["arithmetic"], "items": 10}
    after = resolve(parse_params(settings, "params.yaml"))
    same = {name for name in before if before[name] == after[name]}
    assert set(before) - same == {"compare.json"}
    assert set(after) - set(before) == {"train/other.json", "evaluate/other.json"}


def test_no_setting_hides_in_the_code() -> None:
    """A default other than "off" would be a value that params.yaml does not show and DVC does not see."""

    def models(kind: type) -> set[type]:
        return {kind}.union(*(models(sub) for sub in kind.__subclasses__()))

    for model in models(Strict) - {Strict}:
        if model.__module__ in (Strict.__module__, ScratchBase.__module__, Params.__module__):
            for name, field in model.model_fields.items():  # type: ignore[attr-defined]
                assert field.is_required() or field.default in (None, [], {}), f"{model.__name__}.{name}"


def texts_beside_maths() -> dict[str, Any]:
    """The tiny profile with a data set and a run of its own whose answers are texts."""
    settings = raw()
    quality = {
        "max_quarantined_share": 0.1,
        "min_question_words": 1,
        "max_question_chars": 100,
        "max_answer_chars": 100,
    }
    settings["data"]["memo"] = {
        "kind": "govreport", "id": "./reports", "layout": "published", "seed": 0, "max_source_words": 10, "quality": quality
    }  # fmt: skip
    settings["prompts"]["memo"] = {"template": "{question}", "chat": True, "answer": "line", "measure": "rouge"}
    settings["suites"]["memo"] = {"dataset": "memo", "max_completion_tokens": 32, "batch_rows": 250}
    settings["bases"]["tiny"]["suites"].append("memo")
    settings["runs"]["writer"] = {**RLVR, "dataset": "memo", "suites": ["memo"]}
    return settings


def test_each_kind_of_task_has_its_gate_measure() -> None:
    settings = texts_beside_maths()
    with pytest.raises(
        JudgefreeError, match="gates.measure: sampled/accuracy, and suite memo.* measures texts; set gates.text_m"
    ):
        parse_params(settings, "params.yaml")
    settings["gates"]["text_measure"] = "rouge_l"
    gates = parse_params(settings, "params.yaml").gates
    assert (gates.measure_of(texts=True), gates.measure_of(texts=False)) == ("rouge_l", "sampled/accuracy")
    settings["gates"]["text_measure"] = "sampled/rouge_l"
    with pytest.raises(
        JudgefreeError, match="gates.text_measure: sampled/rouge_l, .* draws no samples; .* or use rouge_l"
    ):
        parse_params(settings, "params.yaml")
    settings["suites"]["memo"] |= {"samples": 4, "temperature": 1.0, "seed": 0}
    parse_params(settings, "params.yaml")
    settings["gates"] |= {"measure": "rouge_l", "text_measure": None}
    with pytest.raises(JudgefreeError, match="suite arithmetic, .* measures values; set gates.measure: pass@1"):
        parse_params(settings, "params.yaml")


def test_what_needs_right_and_wrong_is_refused_for_texts_and_pass_at_is_needed_without() -> None:
    for wrong in ({"samples": 4, "pass_at": [1], "temperature": 1.0, "seed": 0}, {"retry": AGAIN["retry"]}):
        settings = texts_beside_maths()
        settings["gates"]["text_measure"] = "rouge_l"
        settings["suites"]["memo"] |= wrong
        with pytest.raises(JudgefreeError, match="suites.memo: (pass_at|retry) is for answers that are right or wrong"):
            parse_params(settings, "params.yaml")
    settings = raw()
    settings["suites"]["arithmetic"]["pass_at"] = []
    with pytest.raises(JudgefreeError, match="suites.arithmetic: samples needs pass_at"):
        parse_params(settings, "params.yaml")


def test_texts_are_not_rewarded_as_values(tmp_path: Path) -> None:
    settings = texts_beside_maths()
    settings["gates"]["text_measure"] = "rouge_l"
    with (tmp_path / "params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(settings, file)
    with pytest.raises(
        JudgefreeError, match="runs.writer.method: rlvr rewards answers that are values, and those of memo"
    ):
        checked(tmp_path / "params.yaml")
