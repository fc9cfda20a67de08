"""Files in the hub's layout as items, and every kind of bad row refused by file and row."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reward_sets import FILES, best_of_four, best_of_k, judge_bench, pair, ppe_preference, rm_bench

from judgefree.config_rewards import Place, RewardBenchmarks
from judgefree.errors import JudgefreeError
from judgefree.reward_benchmarks.items import Item
from judgefree.reward_benchmarks.loaders import Loaded, load_set

Write = Callable[..., Place]


@pytest.fixture
def load(write: Write, tmp_path: Path) -> Callable[..., Loaded]:
    return lambda name, rows=None, partial=True: load_set(name, write(name, rows), partial, tmp_path)


def preferred(item: Item) -> list[tuple[str, str]]:
    return [(item.responses[right], item.responses[wrong]) for right, wrong in item.pairs]


@pytest.mark.parametrize("name", FILES)
def test_every_set_is_read(name: str, load: Callable[..., Loaded]) -> None:
    loaded = load(name)
    rows = FILES[name][1]
    assert len(loaded.items) + sum(loaded.excluded.values()) == len(rows)
    assert loaded.facts["kind"] == "folder" and list(loaded.facts["files"]) == [FILES[name][0]]
    first = loaded.items[0]
    assert first.conversations()[0] == [{"role": "user", "content": rows[0].get("prompt", rows[0].get("question"))},
                                        {"role": "assistant", "content": first.responses[0]}]  # fmt: skip


def test_what_is_preferred(load: Callable[..., Loaded]) -> None:
    assert preferred(load("reward_bench").items[0]) == [("good", "bad")]
    assert [preferred(item) for item in load("ppe_preference").items] == [
        [("first", "second one")],
        [("second one", "first")],
    ]
    assert load("ppe_preference").excluded == {"tie": 2}
    assert [preferred(item)[0][0] for item in load("judge_bench").items[:2]] == ["first", "second one"]
    assert {item.subset for item in load("rm_bench").items} == {"chat", "code", "math", "safety"}
    assert len(load("rm_bench").items) == 10  # ids repeat between the halves of safety
    ties = [item for item in load("reward_bench_2").items if item.subset == "Ties"]
    assert [(item.id, item.right, item.group) for item in ties[:2]] == [
        ("ref:0", (True, False), "Ties:0"), ("tied:0", (True, True, False), "Ties:0"),
    ]  # fmt: skip


def test_of_best_of_k_only_compared_responses_are_kept(load: Callable[..., Loaded]) -> None:
    loaded = load("ppe_math", [best_of_k(1, [[2, 3], [0, 3]]), best_of_k(2, [])])
    (item,) = loaded.items
    assert item.responses == ("r", "rrr", "rrrr") and item.right == (False, False, True)
    assert preferred(item) == [("rrrr", "rrr"), ("rrrr", "r")] and loaded.excluded == {"no pair": 1}


def test_a_prompt_may_be_a_conversation(load: Callable[..., Loaded]) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    row = {**rm_bench()[0], "prompt": turns}
    assert load("rm_bench", [row]).items[0].messages == tuple(turns)


def bad(rows: list[dict[str, Any]], place: int, **changes: Any) -> list[dict[str, Any]]:
    return [{**row, **changes} if i == place else row for i, row in enumerate(rows)]


MATH = best_of_four("Math", "0", ["a"], ["c"])
BAD = {
    "missing": ("reward_bench", bad([pair("hep-go", 0), pair("hep-go", 1)], 1, rejected=None), 1, "rejected is missing"),
    "subset": ("reward_bench", [pair("hep-perl", 0)], 0, "subset 'hep-perl' is none of"),
    "repeated": ("reward_bench", [pair("hep-go", 0), pair("hep-go", 1), pair("hep-go", 0)], 2, "repeats id 0 of .*, row 0"),
    "chosen": ("reward_bench_2", [best_of_four("Math", "0", ["a", "b"], ["c"])], 0, "chosen has 2 texts, not 1"),
    "counted": ("reward_bench_2", bad([MATH], 0, num_incorrect=3), 0, "num_incorrect is 3"),
    "ties": ("reward_bench_2", [best_of_four("Ties", "7", ["a"], ["c"])], 0, "neither ref:k nor tied:k"),
    "none wrong": ("reward_bench_2", bad([MATH], 0, rejected=[]), 0, "rejected is no list"),
    "styles": ("rm_bench", bad(rm_bench(), 3, chosen=["a", "b"]), 3, "chosen has 2 texts, not 3"),
    "no text": ("rm_bench", bad(rm_bench(), 4, rejected=["a", None, "c"]), 4, "rejected is no list of texts"),
    "domain": ("rm_bench", bad(rm_bench(), 0, domain="sport"), 0, "domain 'sport' is none of"),
    "no object": ("rm_bench", [*rm_bench(), "x"], 10, "is str, not an object"),
    "no prompt": ("rm_bench", bad(rm_bench(), 1, prompt=[{"role": "user"}]), 1, "prompt is neither text nor a list"),
    "winner": ("ppe_preference", bad(ppe_preference(), 2, winner="both"), 2, "winner 'both' is neither"),
    "outside": ("ppe_gpqa", [best_of_k(1, [[0, 4]])], 0, r"\[0, 4\] lies outside the 4 scores"),
    "no conflict": ("ppe_gpqa", [best_of_k(1, [[0, 1]]), best_of_k(2, [[0, 2]])], 1, "is no conflict: both are False"),
    "no pair": ("ppe_gpqa", [best_of_k(1, [[0, 1, 2]])], 0, "is no pair of places"),
    "no response": ("ppe_gpqa", bad([best_of_k(1, [[0, 1]])], 0, response_2=None), 0, "response_2 is missing"),
    "label": ("judge_bench", bad(judge_bench(), 5, label="A=B"), 5, "label 'A=B' is neither"),
    "source": ("judge_bench", bad(judge_bench(), 1, source="trivia"), 1, "source 'trivia' belongs to none"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_named(case: str, load: Callable[..., Loaded]) -> None:
    name, rows, place, reason = BAD[case]
    with pytest.raises(
        JudgefreeError, match=rf"{re.escape(FILES[name][0])}: row {place} \(the first is 0\): .*{reason}"
    ):
        load(name, rows)


def test_a_row_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own" / "x_response_model=gpt-4o.jsonl"
    path.parent.mkdir()
    path.write_text('{"pair_id": "1"}\n{"pair_id": \n')
    with pytest.raises(JudgefreeError, match=r"x_response_model=gpt-4o\.jsonl: row 1 .*malformed line"):
        load_set("judge_bench", Place(id="./own"), True, tmp_path)


def test_missing_rows_are_an_error_unless_partial(load: Callable[..., Loaded]) -> None:
    with pytest.raises(JudgefreeError, match="reward_bench: 2 rows of alpacaeval-easy, published are 100"):
        load("reward_bench", partial=False)
    with pytest.raises(JudgefreeError, match="reward_bench_2: 14 rows, published are 1865(.|\n)*partial: true"):
        load("reward_bench_2", partial=False)
    assert load("ppe_preference").published == 16038 and load("ppe_math").published is None
    with pytest.raises(JudgefreeError, match="101 rows of alpacaeval-easy, published are 100") as many:
        load("reward_bench", [pair("alpacaeval-easy", i) for i in range(101)])
    assert "remove those that are too many" in many.value.fix and "partial" not in many.value.fix


def test_a_row_without_an_id_that_is_repeated_is_named(tmp_path: Path) -> None:
    rows = [{"input": f"q{i}", "output_1": "a", "output_2": "b", "label": 1} for i in range(100)]
    path = tmp_path / "own" / "Natural" / "dataset.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([*rows, rows[7]]))
    with pytest.raises(
        JudgefreeError, match="101 rows of llmbar-natural, published are 100; 100 of llmbar-natural repeats 7"
    ):
        load_set("llmbar", Place(id="./own"), True, tmp_path)


def test_cut_json_is_to_be_got_again(tmp_path: Path) -> None:
    """No stage makes what lies in a folder of the user's or in a mirror."""
    path = tmp_path / "own" / "Natural" / "dataset.json"
    path.parent.mkdir(parents=True)
    path.write_text('[{"input": "q"')
    with pytest.raises(JudgefreeError, match=r"Natural/dataset\.json is not valid JSON") as cut:
        load_set("llmbar", Place(id="./own"), True, tmp_path)
    assert cut.value.fix == "get the file again"


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    with pytest.raises(JudgefreeError, match="llmbar is read from a mirror and JUDGEFREE_MIRROR is not set") as unset:
        load_set("llmbar", Place(), True, tmp_path)
    assert unset.value.fix == (
        "set JUDGEFREE_MIRROR to a folder that holds llmbar/**/dataset.json, give reward_benchmarks.sets.llmbar an id and a "
        "revision of the hub, or leave it out"
    )
    with pytest.raises(JudgefreeError, match=r"folder .*nowhere does not exist"):
        load_set("llmbar", Place(id="./nowhere"), True, tmp_path)
    write("rm_bench")
    monkeypatch.setenv("JUDGEFREE_MIRROR", str(tmp_path))
    (tmp_path / "sets" / "rm_bench").rename(tmp_path / "rm-bench")
    hub = Place(id="THU-KEG/RM-Bench", revision="0" * 40)
    assert load_set("rm_bench", hub, True, tmp_path).facts["kind"] == "mirror"  # goes before the hub
    with pytest.raises(JudgefreeError, match=r"holds no file llmbar/\*\*/dataset\.json(.|\n)*leave this set out"):
        load_set("llmbar", Place(), True, tmp_path)


@pytest.mark.parametrize("place", [{"id": "THU-KEG/RM-Bench"}, {"id": "THU-KEG/RM-Bench", "revision": "main"}])
def test_a_hub_set_needs_a_commit(place: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is no full commit id of THU-KEG/RM-Bench"):
        RewardBenchmarks.model_validate({
            "max_tokens": 8, "tokens_per_batch": 8, "device": "cpu", "precision": "fp32", "seed": 0,
            "sets": {"rm_bench": place},
        })  # fmt: skip


def test_llmbar_folders_are_subsets(tmp_path: Path) -> None:
    rows = [{"input": "q", "output_1": "a", "output_2": "b", "label": label} for label in (1, 2)]
    for folder in ("Natural", "Adversarial/GPTInst", "Adversarial/Neighbor"):
        path = tmp_path / "own" / folder / "dataset.json"
        path.parent.mkdir(parents=True)
        path.write_text(str(rows).replace("'", '"'))
    items = load_set("llmbar", Place(id="./own"), True, tmp_path).items
    assert {item.subset for item in items} == {"llmbar-natural", "llmbar-adver-GPTInst", "llmbar-adver-neighbor"}
    assert [preferred(item) for item in items[:2]] == [[("a", "b")], [("b", "a")]]


def xstest(tmp_path: Path, rows: list[tuple[str, str, str]]) -> Loaded:
    path = tmp_path / "own" / "xstest_v2_completions_gpt4.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["id", "type", "prompt", "completion", "final_label"])
        out.writerows(
            [kind[:1] + str(i), kind, f"p{i}", f"c{i}\nsecond line", label] for i, (kind, _, label) in enumerate(rows)
        )
    return load_set("xstest", Place(id="./own"), True, tmp_path)


def test_xstest_pairs_opposite_completions_of_a_family(tmp_path: Path) -> None:
    answered, refused, partly = "1_full_compliance", "2_full_refusal", "3_partial_refusal"
    kinds = [("homonyms", answered), ("homonyms", partly), ("homonyms", answered), ("contrast_homonyms", answered),
             ("contrast_homonyms", refused), ("contrast_homonyms", refused), ("privacy_public", answered),
             ("privacy_fictional", refused), ("contrast_privacy", refused)]  # fmt: skip
    loaded = xstest(tmp_path, [(kind, "", label) for kind, label in kinds])
    found = {
        (item.subset, *(text.split("\n")[0] for pair in preferred(item) for text in pair)) for item in loaded.items
    }
    assert found == {
        ("should-respond", "c0", "c4"),  # the opposite of rank 0 did not refuse, so the next one
        ("should-respond", "c2", "c5"),
        ("should-refuse", "c4", "c2"),   # rank 1: the opposite of that rank answered in part only
        ("should-refuse", "c5", "c2"),
        ("should-respond", "c6", "c8"),  # two kinds of safe prompts about privacy against one unsafe
        ("should-refuse", "c8", "c6"),
    }  # fmt: skip
    assert loaded.excluded == {"partly refused": 1, "should-refuse and did not": 1, "should-respond and did not": 1}
    with pytest.raises(JudgefreeError, match=r"completions_gpt4\.csv: row 0 .*no completion of the opposite kind"):
        xstest(tmp_path, [("homonyms", "", answered), ("contrast_homonyms", "", partly)])
    with pytest.raises(JudgefreeError, match="row 1 .*final_label 'maybe' is unknown"):
        xstest(tmp_path, [("homonyms", "", answered), ("contrast_homonyms", "", "maybe")])
