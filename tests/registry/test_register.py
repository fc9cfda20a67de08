"""From files to a champion: nights, gates, registration twice, at once and after a kill, loading what was registered."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

from judgefree.errors import JudgefreeError
from judgefree.registry.facts import read_model
from judgefree.registry.register import register, rollback
from judgefree.registry.runs import open_run
from judgefree.registry.store import open_store
from judgefree.registry.versions import CHALLENGER, CHAMPION, CONTENT, alias_of, archived, model_folder

Shares = Callable[..., list[bool]]


def aliases(root: Path) -> tuple[int | None, int | None, list[int]]:
    store = open_store(root)
    return (
        alias_of(store, "arithmetic", CHAMPION),
        alias_of(store, "arithmetic", CHALLENGER),
        list(archived(store, "arithmetic").values()),
    )


def night(project: Any, weights: int, right: list[bool]) -> Any:
    """The run is trained anew with other settings, evaluated, and registered."""
    project.run("rlvr", weights=weights, validation=0.5 + weights / 100)
    project.report("rlvr", right)
    return register(project.root, "arithmetic")


def test_nights(project: Any, shares: Shares) -> None:
    """Better than the base is promoted, a tie holds, worse is rejected, better than the champion is promoted; then
    rollback, and what was rolled back stays down."""
    first = night(project, 1, shares(0.5))
    assert (first.decision, first.version, first.champion, first.against) == ("PROMOTE", 1, 1, "its base tiny")
    tie = night(project, 2, shares(0.5))
    assert (tie.decision, tie.version, tie.champion, tie.against) == ("HOLD", 2, 1, "champion version 1")
    assert aliases(project.root) == (1, 2, [])
    worse = night(project, 3, shares(0.4))
    assert (worse.decision, worse.version) == ("REJECT", 3) and aliases(project.root) == (1, None, [])
    better = night(project, 4, shares(0.6))
    assert better.judgement is not None and better.judgement.scores == pytest.approx((0.6, 0.5))
    assert better.decision == "PROMOTE" and aliases(project.root) == (4, None, [1])

    again = register(project.root, "arithmetic")
    assert again.decision == "HOLD" and "champion already" in again.reason and again.version == 4
    done = rollback(project.root, "arithmetic")
    assert (done.was, done.now) == (4, 1) and aliases(project.root) == (1, None, [])
    stays = register(project.root, "arithmetic")
    assert stays.decision == "HOLD" and "rolled back" in stays.reason and aliases(project.root) == (1, None, [])

    client = open_store(project.root).client
    version = client.get_model_version("arithmetic", "4")
    assert {version.tags[name] for name in ("method", "base", "seed", "task")} == {"rlvr", "tiny", "0", "arithmetic"}
    assert version.description.startswith("## arithmetic: PROMOTE"), "the two nights after brought no new judgement"
    assert version.tags["judgefree.verdict"] == "PROMOTE"
    place = f"{client.get_run(version.run_id).info.artifact_uri}/registry/arithmetic"
    ledger = mlflow.artifacts.load_dict(f"{place}/champion-version-1.json")
    assert ledger["decision"] == "PROMOTE" and ledger["judgement"]["better"] == 30
    files = client.list_artifacts(version.run_id, "registry/arithmetic")
    assert [Path(file.path).name for file in files] == ["champion-version-1.json", "champion-version-1.md"]


def test_answers_that_were_not_graded_promote_nothing(project: Any, shares: Shares) -> None:
    project.run("rlvr", weights=1)
    project.report("rlvr", shares(0.5), ungraded=0.02)
    verdict = register(project.root, "arithmetic")
    assert verdict.decision == "HOLD" and "the grader gave up on 2.00%" in verdict.reason
    assert aliases(project.root) == (None, 1, [])


def test_lineage_names_a_commit_only_where_training_told_it(project: Any, shares: Shares) -> None:
    """The commit at hand when a run is synced later need not be the one that trained it."""
    git = ["git", "-C", str(project.root), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    (project.root / ".gitignore").write_text("*\n")
    for command in (["init", "-q"], ["add", "-f", ".gitignore"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    night(project, 1, shares(0.5))
    project.run("rlvr", weights=2, validation=0.6)
    store = open_store(project.root)
    open_run(store, read_model(project.root, "rlvr"), live=True)
    subprocess.run([*git, "commit", "-qm", "second", "--allow-empty"], check=True)
    project.report("rlvr", shares(0.6))
    register(project.root, "arithmetic")
    tags = [store.client.get_model_version("arithmetic", number).tags["git_commit"] for number in ("1", "2")]
    assert tags == ["unknown", commit]


def test_the_base_must_be_evaluated_where_there_is_no_champion(project: Any, shares: Shares) -> None:
    project.run("rlvr", weights=1)
    project.report("rlvr", shares(0.5))
    shutil.rmtree(project.root / "reports" / "runs" / "tiny")
    with pytest.raises(JudgefreeError, match="base tiny is not evaluated on arithmetic"):
        register(project.root, "arithmetic")


def test_reports_that_are_not_alike_are_not_compared(project: Any, shares: Shares) -> None:
    """The base answered with another limit on completions; nothing is judged until it is evaluated anew."""
    suite = {"dataset": "arithmetic", "max_completion_tokens": 4, "batch_rows": 64, "pass_at": []}
    project.params(suite=suite)
    project.run("rlvr", weights=1)
    project.report("rlvr", shares(0.5), suite=suite)
    with pytest.raises(JudgefreeError, match="base tiny and rlvr are not evaluated on arithmetic alike: suite differ"):
        register(project.root, "arithmetic")
    assert aliases(project.root)[0] is None
    project.report("tiny", shares(0.2), suite=suite)
    assert register(project.root, "arithmetic").decision == "PROMOTE"


@pytest.mark.parametrize(
    ("section", "key", "value", "why"),
    [
        ("prompts", "template", "Now: {question}", "its settings, inputs or code have changed"),
        ("suites", "max_completion_tokens", 4, "suite arithmetic or its prompt has changed"),
    ],
)
def test_what_is_not_what_params_describe_is_no_candidate(
    project: Any, shares: Shares, section: str, key: str, value: Any, why: str
) -> None:
    """Nobody evaluated the model under the settings that it would be registered with."""
    project.run("rlvr", weights=1)
    project.report("rlvr", shares(0.5))
    params = project.settings()
    params[section]["arithmetic"][key] = value
    project.write(params)
    with pytest.raises(JudgefreeError, match=f"rlvr: {why}") as caught:
        register(project.root, "arithmetic")
    assert "run `dvc repro`" in caught.value.fix
    assert open_store(project.root).client.search_model_versions("name = 'arithmetic'") == []


def test_the_candidate_is_chosen_by_validation_and_never_by_test(project: Any, shares: Shares) -> None:
    project.params(("a", "b", "c", "d", "e"))
    project.run("a", weights=1, validation=0.6)
    project.run("b", weights=2, validation=0.7)
    project.run("c", weights=3, validation=0.9, status="collapsed")
    project.run("d", weights=4, validation=0.95)
    for name, share in {"a": 0.9, "b": 0.5, "c": 0.9}.items():
        project.report(name, shares(share))
    verdict = register(project.root, "arithmetic")
    assert verdict.candidate == "b"
    assert verdict.passed_over == {
        "a": "validation 0.6000, the candidate has 0.7000", "c": "its training collapsed", "e": "not trained yet",
        "d": "these weights are not evaluated on arithmetic",
    }  # fmt: skip
    with pytest.raises(JudgefreeError, match="tasks are: arithmetic"):
        register(project.root, "arithmetik")
    project.params(("c", "e"))
    with pytest.raises(JudgefreeError, match="c: its training collapsed; e: not trained yet"):
        register(project.root, "arithmetic")


def test_one_version_from_two_processes_after_a_kill(
    project: Any, shares: Shares, forked: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("rlvr", weights=1)
    project.report("rlvr", shares(0.5))
    with monkeypatch.context() as patch:  # killed when the model is written and its version is not
        patch.setattr(
            mlflow.MlflowClient, "create_model_version", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        )
        forked(lambda root: register(root, "arithmetic"), [project.root], exitcode=-signal.SIGKILL)
    decisions = forked(lambda root: register(root, "arithmetic").decision, [project.root] * 2)
    assert sorted(decisions) == ["HOLD", "PROMOTE"]
    store = open_store(project.root)
    (version,) = store.client.search_model_versions("name = 'arithmetic'")
    (model,) = store.client.search_logged_models([store.experiment_id])
    assert version.source == f"models:/{model.model_id}" and aliases(project.root) == (1, None, [])


def test_a_champion_answers_again_when_the_suite_has_changed(project: Any, shares: Shares) -> None:
    """Its weights are in the registry only; the comparison must not mix two suites."""
    night(project, 1, shares(0.5))
    suite = {"dataset": "arithmetic", "max_completion_tokens": 4, "batch_rows": 64, "pass_at": []}
    project.params(suite=suite)
    project.run("rlvr", weights=2)
    project.report("rlvr", shares(0.5), suite=suite)
    verdict = register(project.root, "arithmetic")
    assert verdict.judgement is not None and verdict.judgement.scores[0] == 0.5
    store = open_store(project.root)
    champion = store.client.get_model_version("arithmetic", "1")
    items = pd.read_parquet(model_folder(store, champion) / "evaluation" / "arithmetic" / "items.parquet")
    assert items["length"].max() <= 4 and verdict.judgement.scores[1] == items["correct"].mean()
    assert (verdict.decision, champion.tags[CONTENT] != "") == ("PROMOTE", True)


def test_what_is_registered_loads_by_alias_and_generates(
    project: Any, shares: Shares, python: Callable[..., Any]
) -> None:
    """As a pipeline and as a pyfunc, also after the folder was moved; the pyfunc answers a plain question with the
    greedy completion that the policy gives."""
    night(project, 1, shares(0.5))
    shutil.move(project.root, project.root.with_name("moved"))
    script = """
import sys
from pathlib import Path
import mlflow, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from judgefree.config import PromptFormat
from judgefree.prompting import encode_question
from judgefree.registry.doctor import examine, fix
from judgefree.registry.store import open_store
root = Path(sys.argv[1])
assert any("moved" in finding.problem and finding.fixable for finding in examine(root))
assert fix(root) and not [finding for finding in examine(root) if "moved" in finding.problem]
open_store(root)
answer = mlflow.pyfunc.load_model("models:/arithmetic@champion").predict(["3 + 4 = ?"])
pipeline = mlflow.transformers.load_model("models:/arithmetic@champion")
chat = pipeline([{"role": "user", "content": "3 + 4 = ?"}], max_new_tokens=8, do_sample=False)
tokenizer = AutoTokenizer.from_pretrained(root / "models" / "rlvr")
model = AutoModelForCausalLM.from_pretrained(root / "models" / "rlvr")
ids = encode_question(tokenizer, PromptFormat(template="{question}", chat=True, answer="marker"), "3 + 4 = ?")
with torch.no_grad():
    out = model.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)[0, len(ids):]
expected = tokenizer.decode(out, skip_special_tokens=True)
assert expected and answer == [expected] and chat[0]["generated_text"][-1]["content"] == expected, (answer, chat, expected)
print("well")
"""
    done = python(script, project.root.with_name("moved"))
    out, errors = done.communicate(timeout=200)
    assert out.split()[-1:] == ["well"], errors
