"""What `make reproduce` concludes about SAVE, and how its section gets into the page: figures are worked out by hand."""

import math
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import save_ruler
from benchmarks.reproduce import SAVE_PROFILE, starts_of, write_project
from benchmarks.save_claims import Watched, above_first, at_end, begin_and_end, drift, fall, pooled, save_claims
from benchmarks.save_results import TITLE, arms_table, read_run
from benchmarks.sections import joined, sections_of
from judgefree.config import PromptFormat
from judgefree.data.tables import SCHEMA, write_parquet
from judgefree.errors import JudgefreeError
from judgefree.files import pretty_json, seal, write_atomic
from judgefree.params import load_params

# Ten rollouts: the first two are the beginning, the last two the end. The ninth has 1 pair, the tenth 3.
PAIRS = [2.0] * 8 + [1.0, 3.0]


def watched(begin: float, end: float, first: float = 0.6, flattering: float = 0.5, greedy: float = 0.7) -> Watched:
    middle = [0.0] * 6
    return Watched([begin, begin, *middle, end, end], [0.0] * 8 + [first, first], PAIRS, [0.4] * 10,
                   [0.2, 0.2, *middle, flattering, flattering], greedy, greedy - 0.1, end - 0.1, first)  # fmt: skip


def test_pairs_weigh_by_their_number() -> None:
    assert pooled([0.5, 1.0, math.nan], [3, 1, 8]) == pytest.approx(0.625)
    assert math.isnan(pooled([math.nan], [0]))
    run = Watched([0.8] * 8 + [0.4, 0.8], [0.5] * 10, PAIRS, [0.5] * 9 + [0.3], [0.5] * 5 + [0.3] * 5, 0.0, 0.0)
    assert at_end(run, run.accuracy) == pytest.approx(0.7), "(1 x 0.4 + 3 x 0.8) / 4"
    assert fall(run) == pytest.approx(0.1) and above_first(run) == pytest.approx(0.2)
    assert begin_and_end(run.true) == pytest.approx((0.5, 0.4)) and drift(run) == pytest.approx(-0.2)


def test_claims_of_save() -> None:
    seeds = range(3)
    runs = {
        "save": {s: watched(0.8, 0.9 + s / 100, greedy=0.8) for s in seeds},
        "save-frozen": {s: watched(0.8, 0.6 + s / 100, flattering=0.8 + s / 100) for s in seeds},
        "save-hl-bt": {s: watched(0.8, 0.9 + s / 100) for s in seeds},
        "save-frozen-policy": {s: watched(0.8, 0.7 + s / 50) for s in seeds},
        "save-rloo": {0: watched(0.8, 0.9)},
    }
    claims = {claim.text: claim for claim in save_claims(runs)}
    verdicts = {text: claim.holds for text, claim in claims.items()}
    frozen = "that of the frozen reward model"
    assert verdicts == {
        "With the frozen reward model the policy drifts to the flaw: responses that flatter": True,
        "They are fewer at the end with SAVE": True,
        "The frozen reward model loses accuracy on the policy's responses": True,
        "SAVE's reward model ends above the initial one on the same responses": True,
        f"SAVE's reward model ends above {frozen}, each on its own policy's responses": True,
        "SAVE's reward model ends above that of HL-BT, each on its own policy's responses": False,
        "SAVE's reward model ends above the initial one on the common responses": True,
        f"SAVE's reward model ends above {frozen} on the common responses": True,
        "SAVE's reward model ends above that of HL-BT on the common responses": False,
        "SAVE's reward model ends above that of a policy that stays on the common responses": True,
        f"SAVE's policy ends above {frozen}, test greedy": True,
        f"SAVE's policy ends above {frozen}, test sampled": True,
    }, "nothing of an arm with one seed"
    # From 0.2 to 0.8, 0.81 and 0.82: 0.61 +- 4.3027 x 0.01 / sqrt(3); SAVE's ends at 0.5.
    figure = claims["With the frozen reward model the policy drifts to the flaw: responses that flatter"].figure
    assert figure.mean == pytest.approx(0.61) and figure.low == pytest.approx(0.61 - 4.302653 * 0.01 / math.sqrt(3))
    assert claims["They are fewer at the end with SAVE"].figure.mean == pytest.approx(0.31)


def test_what_is_unknown_is_in_no_claim() -> None:
    """A policy that gives no right response any more has no pairs."""
    lost = Watched([math.nan] * 10, [math.nan] * 10, [0.0] * 10, [0.0] * 10, [0.0] * 10, 0.0, 0.0)
    texts = [claim.text for claim in save_claims({"save": {0: lost, 1: lost}, "save-frozen": {0: lost, 1: lost}})]
    assert texts == [
        "With the frozen reward model the policy drifts to the flaw: responses that flatter",
        "They are fewer at the end with SAVE",
        "SAVE's policy ends above that of the frozen reward model, test greedy",
        "SAVE's policy ends above that of the frozen reward model, test sampled",
    ]
    assert "| save | 1 | - | - | - | - | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 | 0.0 |" in arms_table({"save": {0: lost}})


def test_a_run_is_read_by_rollout(tmp_path: Path) -> None:
    """Rows of updates between rollouts have none of the rollout's figures."""
    names = ["pair_accuracy", "first_pair_accuracy", "pairs"]
    rows = [{f"reward_model/{name}": value for name, value in zip(names, values, strict=True)} | {"reward/true": 0.5}
            for values in ((0.5, 0.6, 4.0), (math.nan, math.nan, 0.0))]  # fmt: skip
    table = pd.DataFrame([{"step": 1, **rows[0]}, {"step": 2}, {"step": 3, **rows[1]}])
    (tmp_path / "models" / "r").mkdir(parents=True)
    table.to_parquet(tmp_path / "models" / "r" / "history.parquet")
    metrics = tmp_path / "reports" / "runs" / "r" / "arithmetic" / "metrics.json"
    write_atomic(metrics, pretty_json({"pass@1": 0.75, "sampled/accuracy": 0.5}))
    texts = {1: ["sure\n#### 3", "#### 3"], 3: ["#### 4", "#### 5"]}
    (tmp_path / "models" / "r" / "records").mkdir()
    for step, written in texts.items():
        pd.DataFrame({"step": step, "text": written}).to_parquet(
            tmp_path / "models" / "r" / "records" / f"{step}.parquet"
        )
    run = read_run(tmp_path, "r", "arithmetic", "sure")
    assert run.flattering == [0.5, 0.0]
    assert run.pairs == [4.0, 0.0] and run.true == [0.5, 0.5] and run.first[0] == 0.6 and math.isnan(run.accuracy[1])
    assert (run.greedy, run.sampled) == (0.75, 0.5)


def test_a_section_is_put_in_place_of_the_old_one(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    assert sections_of(page)[1] == {}
    page.write_text("# Head\n\nWords.\n\n## One\n\na\n\n### Part\n\nb\n\n## Two\n\nc\n")
    head, sections = sections_of(page)
    assert (head, sections) == ("# Head\n\nWords.", {"One": "a\n\n### Part\n\nb", "Two": "c"})
    assert joined(head, sections) == page.read_text()
    assert joined(head, {**sections, TITLE: "d"}).endswith(f"## Two\n\nc\n\n## {TITLE}\n\nd\n")


def test_arms_are_repeated_with_what_they_need(tmp_path: Path) -> None:
    write_project(tmp_path, ["save", "save-hl-bt"], SAVE_PROFILE)
    params = load_params(tmp_path / "params.yaml")
    assert [name for name in params.runs if name.startswith("save-hl")] == [f"save-hl-bt-s{seed}" for seed in range(10)]
    assert len([name for name in params.save_runs if params.runs[name].arm == "save"]) == 10
    assert starts_of("save-s0", params.model_dump() | {"save_runs": {}}) >= set(params.reward_models)
    with pytest.raises(JudgefreeError, match="no arm nonsense in reproduce-save"):
        write_project(tmp_path, ["nonsense"], SAVE_PROFILE)


def test_common_responses_are_those_of_both_policies_at_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six rollouts of one prompt, of which the last four count; a reward model that likes the shorter text."""
    row = dict.fromkeys(SCHEMA.names) | {"id": "a", "question": "1 + 2 = ?", "answer": "3"}
    write_parquet(tmp_path / "data" / "d" / "train.parquet", [row], SCHEMA)
    seal(tmp_path / "data" / "d", {})
    for run, text in (("save-s0", "#### 3"), ("save-frozen-s0", "1 + 2 = 4\n#### 4")):
        records = tmp_path / "models" / run / "records" / "steps-0.parquet"
        records.parent.mkdir(parents=True)
        pd.DataFrame([{"step": s, "prompt_id": "a", "text": text} for s in range(6)]).to_parquet(records)
    (asked,) = save_ruler.asked_of(tmp_path, ["save-s0", "save-frozen-s0"], "d")
    assert asked.question == "1 + 2 = ?" and asked.truths == [1.0] * 4 + [0.0] * 4
    monkeypatch.setattr(save_ruler, "load_reward_model", lambda folder: folder.name)
    sign = {"judge": 1, "reward_model": -1}
    monkeypatch.setattr(
        save_ruler, "rewards_of",
        lambda model, rows, _: ([sign[model] * len(text) for text in one.texts] for one in rows),
    )  # fmt: skip
    prompt = PromptFormat.model_validate({"template": "{question}", "chat": True, "answer": "marker"})
    arms = {"save": "save-s0", "save-frozen": "save-frozen-s0"}
    assert save_ruler.measured(tmp_path, arms, "d", prompt, "judge") == {"judge": 0, "save": 1, "save-frozen": 1}
    assert save_ruler.measured(tmp_path, {"save": "save-s0"}, "d", prompt, "judge") == {}
