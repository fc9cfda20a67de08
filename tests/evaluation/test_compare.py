import math

import numpy as np
import pandas as pd
import pytest

from judgefree.errors import JudgefreeError
from judgefree.evaluation.compare import align, compare
from judgefree.evaluation.tables import models_shown, print_table
from judgefree.files import listing, pretty_json, read_json, seal, write_atomic

SUITE = {"dataset": "toy", "max_completion_tokens": 6, "batch_rows": 8}
SAMPLED = {**SUITE, "samples": 4, "pass_at": [4], "temperature": 1.0, "seed": 0}
IDS = ["a", "b", "c", "d"]
MODELS = {
    "tiny": {"arm": "tiny", "start_from": None, "suites": ["toy"], "method": None, "seed": None},
    "warmup": {"arm": "warmup", "start_from": "tiny", "suites": ["toy"], "method": "sft", "seed": 0},
    "rl-0": {"arm": "rl", "start_from": "warmup", "suites": ["toy"], "method": "rlvr", "seed": 0},
    "rl-1": {"arm": "rl", "start_from": "warmup", "suites": ["toy"], "method": "rlvr", "seed": 1},
}
CORRECT = {"tiny": [0, 0, 0, 0], "warmup": [1, 0, 0, 0], "rl-0": [1, 1, 1, 0], "rl-1": [1, 1, 0, 0]}


def items_of(correct, counts=None, ids=IDS, golds=None):
    n = len(ids)
    return pd.DataFrame(
        {
            "id": ids,
            "gold": golds or ["1"] * n,
            "correct": [bool(one) for one in correct],
            "n_samples": [4 if counts else 0] * n,
            "n_correct": counts or [0] * n,
        }
    )


def write_report(root, name, items, suite=SUITE, extra=None, history=None, training=None):
    folder = root / "reports" / "runs" / name
    metrics = {
        "items": len(items),
        "pass@1": float(items["correct"].sum()) / max(1, len(items)),
        "unparsed": 0.25,
        "truncated": 0.0,
    }
    write_atomic(folder / "toy" / "items.parquet", items.to_parquet())
    write_atomic(folder / "toy" / "metrics.json", pretty_json({**metrics, "length": 9.5, **(extra or {})}))
    seal(folder / "toy", {"key": name, "suite": suite})
    if history is not None:
        write_atomic(folder / "history.parquet", history.to_parquet())
        write_atomic(folder / "training.json", pretty_json(training))
    seal(folder, {"model": name})


def write_settings(root, models=MODELS, suite=SUITE):
    options = {"resamples": 2000, "seed": 0, "confidence": 0.95}
    content = {"compare": options, "models": models, "suites": {"toy": suite}}
    write_atomic(root / "resolved" / "compare.json", pretty_json(content))


@pytest.fixture
def root(tmp_path):
    write_project(tmp_path)
    return tmp_path


def write_project(root):
    write_settings(root)
    for name, correct in CORRECT.items():
        write_report(root, name, items_of(correct))


def result_of(root):
    compare(root)
    result = read_json(root / "reports" / "compare" / "table.json")["suites"]["toy"]
    return {row["arm"]: row for row in result["arms"]}, result


def test_scores_and_differences_by_hand(root):
    arms, result = result_of(root)
    (pair,) = [pair for pair in result["pairs"] if (pair["arm"], pair["against"]) == ("rl", "warmup")]
    assert pair["differences"] == arms["rl"]["to_start"]  # one start for all runs: the same question, the same answer
    assert list(arms) == ["tiny", "warmup", "rl"]
    assert (result["items"], result["rough"]) == (4, True)
    assert [arms[arm]["scores"]["pass@1"]["value"] for arm in arms] == [0, 0.25, 0.625]
    assert arms["rl"]["seeds"] == [0, 1]
    assert arms["warmup"]["scores"]["pass@1"]["se"] == 0.25  # s^2 = (9/16 + 3/16) / 3 = 1/4; s / sqrt(4)
    assert arms["tiny"]["to_start"] == {"pass@1": None}
    assert arms["warmup"]["to_start"]["pass@1"]["value"] == 0.25
    assert arms["rl"]["to_start"]["pass@1"]["value"] == 0.375  # (1/2 + 1/4) / 2
    assert arms["rl"]["to_base"]["pass@1"]["value"] == 0.625
    pairs = {(pair["arm"], pair["against"]): pair["differences"]["pass@1"]["value"] for pair in result["pairs"]}
    assert pairs == {("warmup", "tiny"): 0.25, ("rl", "tiny"): 0.625, ("rl", "warmup"): 0.375}


def test_interval_of_four_items_by_hand(root):
    # Four draws with p = 1/4 of the one item that warm-up gained: P(0) = 0.32, P(3 or 4) = 0.05, P(4) = 0.004.
    arms, _ = result_of(root)
    assert arms["warmup"]["to_start"]["pass@1"] == {"value": 0.25, "low": 0.0, "high": 0.75}
    assert arms["tiny"]["scores"]["pass@1"] == {"value": 0.0, "low": 0.0, "high": 0.0, "se": 0.0}


def test_seeds_add_to_the_error_of_an_arm(root):
    # Var of the pooled mean over items is 0.0273 for item means 1, 1, 1/2, 0 (variance 11/64, / 4 = 0.043); the seeds
    # add their own, 1/64 / 2 for seed means 3/4 and 1/2, and the interaction that a draw of both makes.
    arms, _ = result_of(root)
    over_items = math.sqrt(11 / 64 / 4)
    assert over_items < arms["rl"]["scores"]["pass@1"]["se"] < math.sqrt(11 / 64 / 4 + 1 / 64 / 2 + 1 / 16 / 8) + 0.01


def test_a_run_is_paired_with_its_own_start(tmp_path):
    models = {
        "base": MODELS["tiny"] | {"arm": "base"},
        "warm-0": MODELS["warmup"] | {"arm": "warm", "start_from": "base"},
        "warm-1": MODELS["warmup"] | {"arm": "warm", "start_from": "base", "seed": 1},
        "rl-0": MODELS["rl-0"] | {"start_from": "warm-0"},
        "rl-1": MODELS["rl-1"] | {"start_from": "warm-1"},
    }
    write_settings(tmp_path, models, SAMPLED)
    for name, count in {"base": 0, "warm-0": 0, "warm-1": 2, "rl-0": 1, "rl-1": 3}.items():
        write_report(tmp_path, name, items_of([0] * 4, [count] * 4), SAMPLED)
    arms, result = result_of(tmp_path)
    assert arms["rl"]["to_start"]["sampled/accuracy"] == {"value": 0.25, "low": 0.25, "high": 0.25}
    (pair,) = [pair for pair in result["pairs"] if (pair["arm"], pair["against"]) == ("rl", "warm")]
    assert pair["differences"]["sampled/accuracy"] == {"value": 0.25, "low": -0.25, "high": 0.75}  # seeds independent


def test_order_of_rows_does_not_matter(root):
    before, _ = result_of(root)
    write_report(root, "warmup", items_of([0, 0, 0, 1], ids=["d", "c", "b", "a"]))
    after, _ = result_of(root)
    assert after == before


def test_a_start_without_the_suite_gives_no_difference(root):
    models = MODELS | {"tiny": MODELS["tiny"] | {"suites": []}}
    write_settings(root, models)
    arms, _ = result_of(root)
    assert list(arms) == ["warmup", "rl"]
    assert arms["warmup"]["to_base"] == {"pass@1": None}
    assert arms["rl"]["to_base"] == {"pass@1": None}
    assert arms["rl"]["to_start"]["pass@1"]["value"] == 0.375


def test_the_list_of_models_comes_from_the_settings(root):
    write_report(root, "stranger", items_of([1, 1, 1, 1]))
    arms, _ = result_of(root)
    assert "stranger" not in arms


def test_files_are_the_same_bytes_in_another_place(root, tmp_path_factory):
    compare(root)
    other = tmp_path_factory.mktemp("other")
    write_project(other)
    compare(other)
    files = listing(root / "reports" / "compare")
    assert files == listing(other / "reports" / "compare")
    assert set(files) == {"table.json", "table.md", "metrics.json", "plots/curves.png", "plots/bars-toy.png"}
    assert (root / "reports" / "compare" / "plots" / "bars-toy.png").read_bytes().startswith(b"\x89PNG")


def test_metrics_are_flat_numbers(root):
    compare(root)
    metrics = read_json(root / "reports" / "compare" / "metrics.json")
    assert metrics["toy"]["rl"] == {
        "pass@1": 0.625, "pass@1/vs_start": 0.375, "pass@1/vs_base": 0.625, "unparsed": 0.25, "truncated": 0.0,
        "length": 9.5,
    }  # fmt: skip
    assert "pass@1/vs_start" not in metrics["toy"]["tiny"]


def test_peak_last_and_collapse_are_told(root):
    history = pd.DataFrame(
        {"step": [0, 2, 4, 6], "reward": [np.nan, 0.2, 0.6, 0.1], "validation/pass@1": [0.9, 0.3, 0.5, 0.1]}
    )
    collapse = {"peak": 0.5, "peak_step": 4, "collapse_step": 6, "retention": 0.2}
    facts = {"method": "rlvr", "seed": 0, "select": "validation", "steps": 6, "selected_step": 4, "collapse": collapse}
    write_report(root, "rl-0", items_of(CORRECT["rl-0"]), history=history, training=facts)
    write_report(root, "rl-1", items_of(CORRECT["rl-1"]), history=history[["step", "reward"]],
                 training={"seed": 1, "status": "collapsed", "steps": 6})  # fmt: skip
    compare(root)
    training = read_json(root / "reports" / "compare" / "table.json")["training"]
    assert training.pop("rl-1") == {"seed": 1, "status": "collapsed", "steps": 6, "arm": "rl"}
    assert training == {"rl-0": {**facts, "arm": "rl", "validation_start": 0.9, "validation_last": 0.1}}
    table = (root / "reports" / "compare" / "table.md").read_text()
    assert "| rl-0 | 0 | 6 | validation @4 | 90.0 | 50.0 @4 | 10.0 | 20.0 | @6 |" in table
    assert "| rl-1 (collapsed) | 1 | 6 | - | - | - | - | - | - |" in table


def test_markdown_shows_scores_differences_and_matrix(root):
    compare(root)
    table = (root / "reports" / "compare" / "table.md").read_text()
    assert "| warmup | sft | 0 | 25.0 ± 25.0 | 25.0 | 0.0 | 9.5 |" in table
    assert "| warmup | start tiny | +25.0 [+0.0, +75.0] |" in table
    assert "| arm | tiny | warmup |" in table
    assert "so few items that intervals are rough" in table


def test_terminal_table_fits_100_columns(root, capsys):
    long_name = "a-run-with-a-very-long-name-indeed-0123456789"
    models = MODELS | {long_name: MODELS["rl-0"] | {"arm": long_name}}
    counts = {name: [sum(correct)] * 4 for name, correct in CORRECT.items()}
    write_settings(root, models, SAMPLED)
    for name in models:
        correct = CORRECT.get(name, [1, 1, 1, 1])
        extra = {"sampled/pass@4": 0.5, "sampled/ungraded": 0.02, "ungraded": 0.0}
        write_report(root, name, items_of(correct, counts.get(name, [4] * 4)), SAMPLED, extra)
    compare(root)
    capsys.readouterr()
    print_table(root)
    assert models_shown(root) == set(models)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    assert "62.5 ±" in printed and "pass@4" in printed and "ungraded" in printed
    assert "start warmup" in printed and "base tiny" in printed


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (items_of([], ids=[]), r"reports/runs/rl-1/toy/items\.parquet has no rows"),
        (items_of([1, 1, 0, 0], ids=["a", "b", "b", "d"]), r"rl-1/toy/items\.parquet has ids more than once: b\n"),
        (
            items_of([1, 1, 0], ids=["a", "b", "c"]),
            r"tiny and rl-1 were tested on different items of toy; only one has d\n",
        ),
        (items_of([1, 1, 0, 0], ids=["a", "b", "c", "e"]), r"tiny and rl-1 .* only one has d, e"),
        (items_of([1, 1, 0, 0], golds=["1", "1", "2", "1"]), r"tiny and rl-1 were graded against other answers of c"),
    ],
)
def test_items_that_do_not_match_are_named(root, frame, message):
    write_report(root, "rl-1", frame)
    with pytest.raises(JudgefreeError, match=message):
        compare(root)
    assert not (root / "reports" / "compare").exists()


def test_many_different_items_are_counted():
    frames = {"a": items_of([0] * 10, ids=[f"i{n}" for n in range(10)]), "b": items_of([0], ids=["i0"])}
    with pytest.raises(JudgefreeError, match="only one has i1, i2, i3, i4, i5 and 4 more"):
        align("toy", frames)


def test_missing_damaged_and_outdated_reports_are_named(root):
    items = root / "reports" / "runs" / "rl-0" / "toy" / "items.parquet"
    content = items.read_bytes()
    items.write_bytes(content[:-1])
    with pytest.raises(JudgefreeError, match=r"rl-0/toy/items\.parquet is not what was written"):
        compare(root)
    items.write_bytes(content)
    write_settings(root, suite={**SUITE, "max_completion_tokens": 7})
    with pytest.raises(JudgefreeError, match="tiny/toy was made with other settings of suite toy"):
        compare(root)
    write_settings(root, MODELS | {"new": MODELS["rl-0"]})
    with pytest.raises(JudgefreeError, match=r"reports/runs/new/manifest\.json is missing\n  fix: run `dvc repro`"):
        compare(root)
