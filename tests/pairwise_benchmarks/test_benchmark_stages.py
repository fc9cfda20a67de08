"""Both benchmarks from a scratch policy to a report, with a judge behind real HTTP."""

import re

import pandas as pd
import pytest

from judgefree import cli
from judgefree.errors import JudgefreeError
from judgefree.files import listing, read_json, verify
from judgefree.pairwise_benchmarks.stage import alpaca_eval, arena_hard
from judgefree.registry.catalogue import describe
from judgefree.registry.store import open_store
from judgefree.registry.sync import sync

from_judge = re.compile(r"<answer_A>\n\s*(.*?)\n\s*</answer_A>.*<answer_B>\n\s*(.*?)\n\s*</answer_B>", re.DOTALL)


def longer(prompt: str) -> str:
    """A judge that prefers the longer answer."""
    first, second = from_judge.search(prompt).groups()
    return "[[A>B]]" if len(first) > len(second) else "[[B>A]]" if len(first) < len(second) else "[[A=B]]"


def test_alpaca_eval_judges_every_instruction_once_and_scores_for_the_model(project):
    project.server.verdict = longer
    metrics = alpaca_eval("tiny", project.root)
    report = project.root / "reports" / "alpaca-eval" / "tiny"
    items, games = pd.read_parquet(report / "items.parquet"), pd.read_parquet(report / "games.parquet")
    assert len(project.server.prompts) == len(items) == len(games) == metrics["items"] == 6
    assert set(games["model_first"]) == {True, False}  # the seed draws both places
    ours, theirs = items["text"].str.strip().str.len(), items["baseline_text"].str.len()
    wanted = 1 + (ours > theirs) * 1.0 + (ours == theirs) * 0.5
    assert items["preference"].tolist() == wanted.tolist()
    assert metrics["win_rate"] == pytest.approx((wanted - 1).mean())
    assert 0 <= metrics["length_controlled"] <= 1
    assert metrics["prompt_tokens"] == 60 and metrics["completion_tokens"] == 12 and metrics["no_verdict"] == 0
    facts = verify(report)
    assert facts["source"]["difficulty"] == "published" and facts["baseline"] == "gpt4_1106_preview"
    assert str(project.root) not in (report / "manifest.json").read_text()


def test_both_orders_cancel_a_judge_that_goes_by_the_place(project):
    project.change("alpaca_eval", orders="both")
    metrics = alpaca_eval("tiny", project.root)
    assert metrics["games"] == 12 and metrics["win_rate"] == 0.5 and metrics["first_chosen"] == 1.0


def test_what_is_done_asks_nobody_and_gives_the_same_bytes(project):
    alpaca_eval("tiny", project.root)
    report = project.root / "reports" / "alpaca-eval" / "tiny"
    before, asked = listing(report), len(project.server.prompts)
    project.server.verdict = lambda prompt: "[[B>A]]"
    alpaca_eval("tiny", project.root)
    assert listing(report) == before and len(project.server.prompts) == asked


def test_a_row_without_verdict_is_named_and_the_answers_are_kept(project):
    project.server.verdict = lambda prompt: "who knows" if "9 - 5 + 1" in prompt else "[[A>B]]"
    with pytest.raises(JudgefreeError, match=r"no verdict in 1 of 6 games, the first of row 1: "):
        alpaca_eval("tiny", project.root)
    assert not (project.root / "reports").exists()
    answers = list((project.root / ".work" / "answers").glob("*/answers.parquet"))
    written = answers[0].stat().st_mtime_ns
    project.server.verdict = lambda prompt: "[[A>B]]"
    project.server.prompts.clear()
    assert alpaca_eval("tiny", project.root)["items"] == 6
    assert len(project.server.prompts) == 1 and answers[0].stat().st_mtime_ns == written


def test_arena_hard_plays_both_orders_in_each_category(project):
    # The baseline's answers hold their prompt's id, which no answer of the model does.
    def verdict(prompt: str) -> str:
        first, _ = from_judge.search(prompt).groups()
        baseline_first = "**" in first
        if "u1" in prompt:
            return "[[B>>A]]" if baseline_first else "[[A>B]]"  # the model, much better and better
        if "u2" in prompt:
            return "[[A=B]]" if baseline_first else "no verdict"
        return "First I thought [[B>A]]. My verdict: [[A>B]]"  # always who is shown first

    project.server.verdict = verdict
    metrics = arena_hard("tiny", project.root)
    assert len(project.server.prompts) == 8
    # u1: 1, 1, 1 and 1; u2 left out; u3: 0 (second) and 1 (first)
    assert metrics["hard_prompt/win_rate"] == metrics["win_rate"] == pytest.approx(5 / 6)
    assert (metrics["hard_prompt/prompts"], metrics["hard_prompt/dropped"]) == (2, 1)
    assert metrics["creative_writing/win_rate"] == 0.5 and metrics["creative_writing/dropped"] == 0
    assert 0 <= metrics["hard_prompt/win_rate_low"] <= 5 / 6 <= metrics["hard_prompt/win_rate_high"] <= 1
    assert 0 <= metrics["creative_writing/style_controlled"] <= 1
    assert sum("Creativity" in prompt for prompt in project.server.prompts) == 2  # the category's own criteria
    report = project.root / "reports" / "arena-hard" / "tiny"
    assert verify(report)["baseline"] == {
        "hard_prompt": "o3-mini-2025-01-31",
        "creative_writing": "gemini-2.0-flash-001",
    }
    before = listing(report)
    arena_hard("tiny", project.root)
    assert listing(report) == before


def test_a_category_without_verdicts_is_no_score(project):
    project.server.verdict = lambda prompt: "[[A>B]]" if "Creativity" not in prompt else "hm"
    with pytest.raises(JudgefreeError, match="no prompt of category creative_writing has two verdicts"):
        arena_hard("tiny", project.root)


def test_the_command_says_what_it_found(project, monkeypatch, capsys):
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cli.alpaca_eval("tiny")
    metrics = read_json(project.root / "reports" / "alpaca-eval" / "tiny" / "metrics.json")
    told = capsys.readouterr().out
    assert f"win rate {metrics['win_rate']:.1%}, length-controlled {metrics['length_controlled']:.1%} of 6" in told
    cli.arena_hard("tiny")
    assert "tiny: win rate 50.0% in reports/arena-hard/tiny" in capsys.readouterr().out


def test_mlflow_shows_both_with_the_model_under_the_name_of_the_judge(project):
    found = {"alpaca_eval": alpaca_eval("tiny", project.root), "arena_hard": arena_hard("tiny", project.root)}
    assert sync(project.root) == {"tiny": "logged"} and sync(project.root) == {"tiny": "unchanged"}
    store = open_store(project.root)
    (run,) = store.client.search_runs([store.experiment_id])
    wanted = {f"{name}/by-local/{metric}": value for name, own in found.items() for metric, value in own.items()}
    assert run.data.metrics == pytest.approx(wanted) and not [name for name in wanted if describe(name) is None]
    for name in found:
        shown = {file.path for file in store.client.list_artifacts(run.info.run_id, name)}
        assert shown == {f"{name}/{file}" for file in ("items.parquet", "manifest.json", "metrics.json")}
    assert {entry.dataset.name for entry in run.inputs.dataset_inputs} == set(found)
    project.change("alpaca_eval", orders="both")
    again = alpaca_eval("tiny", project.root)
    assert sync(project.root) == {"tiny": "logged"}
    assert store.client.get_run(run.info.run_id).data.metrics["alpaca_eval/by-local/win_rate"] == again["win_rate"]
