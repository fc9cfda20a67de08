"""Preference data in the layouts of its sources: what is read, what is refused, and which split an instruction is in."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from judgefree.config_data import PreferenceData
from judgefree.data.preferences import _validate, dialogue, parse
from judgefree.data.prepare import prepare
from judgefree.data.rows import BadRow
from judgefree.data.splits import load_split
from judgefree.files import read_json
from judgefree.reward_model.pairs import PAIRS, load_pairs, pairs_at

QUALITY = {"max_quarantined_share": 0.5, "min_gold_parse_share": 0.0, "max_question_chars": 5000, "max_answer_chars": 99,
           "near_overlap_ngram": 13, "near_overlap_share": 0.5}  # fmt: skip


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def ultra(prompt: str, chosen: str, rejected: str) -> dict[str, object]:
    return {"prompt": prompt, "chosen": said(prompt, chosen), "rejected": said(prompt, rejected)}


def test_ultrafeedback(tmp_path: Path) -> None:
    folder = tmp_path / "uf" / "data"
    folder.mkdir(parents=True)
    train = [ultra(f"question {i}", f"good {i}", f"bad {i}") for i in range(6)]
    train += [ultra("tested", "a", "b"), ultra("same", "x", "x"), ultra("long", "w " * 50, "b")]
    for split, rows in (("train", train), ("test", [ultra("tested", "a", "b")])):
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}_prefs-00000-of-00001.parquet")
    settings = {
        "kind": "ultrafeedback",
        "id": "./uf",
        "seed": 0,
        "validation": 2,
        "max_response_words": 20,
        "quality": QUALITY,
    }
    prepare("d", {"data": settings}, tmp_path)
    out = tmp_path / "data" / "d"
    splits = {split: {one.question for one in load_split(out, split)} for split in ("train", "validation")}  # type: ignore[arg-type]
    assert len(splits["validation"]) == 2 and splits["train"] | splits["validation"] == {
        f"question {i}" for i in range(6)
    }
    for split, questions in splits.items():
        pairs = load_pairs(out / PAIRS, split)
        assert {pair.prompt[0]["content"] for pair in pairs} == questions
        assert all(pair.chosen.split()[1] == pair.prompt[0]["content"].split()[1] for pair in pairs)
        assert all(pair.chosen.startswith("good") and pair.rejected.startswith("bad") for pair in pairs)
    reasons = {row["reason"].split(":")[0] for row in pq.read_table(out / "quarantine.parquet").to_pylist()}
    assert reasons == {"overlap", "no preference"}
    verdict = read_json(out / "quality.json")
    assert set(verdict) == {"train", "validation", "test", "data set", "pairs"}
    assert all(check["success"] for part in verdict.values() for check in part)


def test_hh_rlhf_is_unpacked_and_taken_apart(tmp_path: Path) -> None:
    folder = tmp_path / "hh" / "helpful"
    folder.mkdir(parents=True)
    head = "\n\nHuman: one\n\nAssistant: two\n\nHuman: three\n\nAssistant: "
    rows = [
        {"chosen": f"\n\nHuman: q{i}\n\nAssistant: yes", "rejected": f"\n\nHuman: q{i}\n\nAssistant: no"}
        for i in range(3)
    ]
    rows += [{"chosen": head + "four", "rejected": head + "five"}, {"chosen": "no dialogue", "rejected": head}]
    with gzip.open(folder / "train.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    settings = {"kind": "hh_rlhf", "id": "./hh", "seed": 0, "validation": 1, "quality": QUALITY}
    prepare("d", {"data": settings}, tmp_path)
    pairs = load_pairs(tmp_path / "data" / "d" / PAIRS)
    assert len(pairs) == 3 and said("one", "two", "three") in [pair.prompt for pair in pairs]
    assert len(load_split(tmp_path / "data" / "d", "train")) == 2


@pytest.mark.parametrize(
    "text",
    ["", "\n\nHuman: a", "\n\nAssistant: a\n\nHuman: b", "\n\nHuman: a\n\nHuman: b", "\n\nHuman: a\n\nAssistant: "],
)
def test_what_is_no_dialogue_is_refused(text: str) -> None:
    with pytest.raises(BadRow):
        dialogue(text)


def test_both_sides_answer_one_prompt() -> None:
    with pytest.raises(BadRow, match="different prompts"):
        parse("ultrafeedback", {"chosen": said("a", "b"), "rejected": said("c", "d")})


def test_every_pair_comes_once_a_pass() -> None:
    pairs = list(range(5))
    drawn = [one for step in range(5) for one in pairs_at(pairs, step, 2, 0)]  # type: ignore[arg-type]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == pairs and pairs_at(pairs, 1, 2, 0) == drawn[2:4]  # type: ignore[arg-type]


@pytest.mark.skipif("JUDGEFREE_MIRROR" not in os.environ, reason="JUDGEFREE_MIRROR is not set")
def test_real_hh_rlhf(tmp_path: Path) -> None:
    settings = {
        "kind": "hh_rlhf",
        "id": "Anthropic/hh-rlhf",
        "revision": "0" * 40,
        "seed": 0,
        "validation": 50,
        "quality": QUALITY,
    }
    prepare("d", {"data": settings}, tmp_path)
    pairs = load_pairs(tmp_path / "data" / "d" / PAIRS)
    held = load_pairs(tmp_path / "data" / "d" / PAIRS, "validation")
    refused = pq.read_table(tmp_path / "data" / "d" / "quarantine.parquet").num_rows
    assert len(pairs) + len(held) + refused == 2312 and len(held) >= 50 and len(pairs) > 2000


def test_a_split_without_rows_is_found() -> None:
    """Held out are as many as were asked for, and what was read left something."""
    settings = PreferenceData.model_validate(
        {"kind": "ultrafeedback", "id": "./uf", "seed": 0, "validation": 2, "quality": QUALITY}
    )
    rows = [{"id": f"r{i}", "question": f"question {i}", "answer": None} for i in range(5)]
    for splits, failing in (
        ({"train": rows[:2], "validation": rows[2:4], "test": rows[4:]}, []),
        ({"train": rows[:2], "validation": [], "test": rows[4:]}, ["validation"]),
        ({"train": rows[:2], "validation": rows[2:3], "test": rows[4:]}, ["validation"]),
        ({"train": rows[:2], "validation": rows[2:4], "test": []}, ["test"]),
    ):
        verdict = _validate(splits, {"train": 4, "test": 1}, settings)
        assert [part for part, found in verdict.items() if not all(check["success"] for check in found)] == failing
