"""Data sets of texts: in the hub's folder layout with a few rows, good and bad, and GovReport's real documents."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.data.prepare import prepare
from judgefree.data.splits import load_split
from judgefree.data.texts import clean, shortened
from judgefree.errors import JudgefreeError
from judgefree.files import listing, read_json, verify

QUALITY = {"max_quarantined_share": 0.6, "min_question_words": 5, "max_question_chars": 4000, "max_answer_chars": 600}


def report(number: int, words: int = 20) -> dict[str, Any]:
    body = " ".join(f"w{number}x{place}" for place in range(words - 3))
    return {"report": f"Report number {number} {body}", "summary": f"It is report {number} ."}


def hub(folder: Path, tables: dict[str, list[list[dict[str, Any]]]]) -> None:
    """Parquet shards as the hub names them: {"document/train": [rows of shard 0, ...]}."""
    for name, shards in tables.items():
        for shard, rows in enumerate(shards):
            path = folder / f"{name}-{shard:05d}-of-{len(shards):05d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows), path)


def made(tmp_path: Path, name: str, quality: dict[str, Any] | None = None, **data: Any) -> Path:
    prepare(name, {"data": {"id": "./hub", **data, "quality": {**QUALITY, **(quality or {})}}}, tmp_path)
    folder = tmp_path / "data" / name
    verify(folder)
    return folder


def govreport(tmp_path: Path, train: list[dict[str, Any]], **changes: Any) -> Path:
    rest = {"document/validation": [[report(801), report(802)]], "document/test": [[report(901), report(902)]]}
    hub(tmp_path / "hub", {"document/train": [train[:2], train[2:]], **rest})
    settings = {"kind": "govreport", "layout": "published", "seed": 0, "max_source_words": 50}
    return made(tmp_path, "gov", **{**settings, **changes})


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    return pq.read_table(folder / f"{table}.parquet").to_pylist()


def reasons(folder: Path) -> dict[str, str]:
    return {row["row_id"]: row["reason"] for row in rows_of(folder, "quarantine")}


def test_every_kind_of_bad_report_is_kept_aside_and_the_rest_goes_on(tmp_path: Path) -> None:
    bad = {
        "empty": {"report": " \n\u200b ", "summary": "Nothing to say here ."},
        "empty ": {**report(2), "summary": "\t"},
        "missing field": {**report(3), "summary": None},
        "control character": {"report": report(4)["report"] + " a \x07 bell", "summary": "It rings ."},
        "control character ": {**report(5), "summary": "page \x0c break"},
        "summary longer than report": {"report": "six words make up this report", "summary": "one two " * 4},
        "too short": {"report": "Too short it is", "summary": "Yes"},
        "too long": {"report": "long " * 10 + "word" * 1200, "summary": "Yes ."},
        "mojibake": {"report": report(6)["report"] + " costs Â£5", "summary": "Money ."},
        "repeated question": {"report": report(100)["report"].upper(), "summary": "Another summary ."},
        "overlap": report(901),
    }
    good = [report(100), report(101, words=60), report(102, words=50)]
    folder = govreport(tmp_path, good + list(bad.values()))
    found = reasons(folder)
    assert len(found) == len(bad)
    for place, reason in enumerate(bad, len(good)):
        assert found[f"govreport-train-{place:06d}"].split(":")[0] == reason.strip()
    assert found["govreport-train-000008"] == "summary longer than report: 8 words of 6"
    assert found["govreport-train-000013"] == "overlap: same text as test row govreport-test-000000"
    assert found["govreport-train-000009"] == "too short: question has 4 words, at least 5 are needed"
    manifest = read_json(folder / "manifest.json")
    assert manifest["rows"] == {"train": 3, "validation": 2, "test": 2}
    assert manifest["rows_read"] == {"train": 14, "validation": 2, "test": 2}
    assert manifest["quarantined"]["empty"] == 2 and manifest["quarantined"]["summary longer than report"] == 1


def test_a_long_report_is_cut_which_row_and_manifest_tell_and_a_summary_is_not(tmp_path: Path) -> None:
    long = {"report": "one two\n\nthree " + "word " * 60, "summary": "sum " * 55}
    folder = govreport(tmp_path, [report(1), long, report(2, words=50)])
    rows = {row["id"]: row for row in rows_of(folder, "train")}
    cut = rows["govreport-train-000001"]
    assert cut["question"] == "one two\n\nthree " + " ".join(["word"] * 47)
    assert (cut["question_tokens"], cut["answer_tokens"], cut["cut_tokens"]) == (50, 55, 13)
    whole = rows["govreport-train-000002"]
    assert (whole["question_tokens"], whole["answer_tokens"], whole["cut_tokens"]) == (50, 5, 0)
    assert whole["question"] == report(2, words=50)["report"]
    manifest = read_json(folder / "manifest.json")
    assert manifest["token_lengths"] == "whitespace tokens"
    assert manifest["truncation"] == {
        "unit": "whitespace tokens",
        "max_source_words": 50,
        "truncated_rows": {"train": 1, "validation": 0, "test": 0},
    }
    example = load_split(folder, "train")[1]
    assert example.question == cut["question"] and example.answer == ("sum " * 55).strip()


def test_great_expectations_judges_lengths(tmp_path: Path) -> None:
    folder = govreport(tmp_path, [report(1), report(2)])
    quality = read_json(folder / "quality.json")
    checks = {(check["expectation"], check["column"]): check for check in quality["train"]}
    assert checks["column_min_to_be_between", "question_tokens"]["observed"] == 20
    assert checks["column_value_lengths_to_be_between", "answer"]["allowed"] == {"min_value": 1, "max_value": 600}
    assert [check["column"] for check in quality["data set"]] == ["overlap"]
    assert all(check["success"] for part in quality.values() for check in part)


def test_only_the_first_training_rows_are_read_and_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    rows = [report(number) for number in range(6)]
    folder = govreport(tmp_path, rows, train_rows=3)
    manifest = read_json(folder / "manifest.json")
    assert manifest["rows_read"] == {"train": 3, "validation": 2, "test": 2}
    assert manifest["sources"]["train"]["first_rows"] == 3 and "first_rows" not in manifest["sources"]["test"]
    assert len(manifest["sources"]["train"]["files"]) == 2
    assert [row["id"] for row in rows_of(folder, "train")] == [f"govreport-train-{place:06d}" for place in range(3)]
    other = govreport(tmp_path / "other", rows, train_rows=3)
    assert listing(folder) == listing(other)
    one_shard = govreport(tmp_path / "one", rows, train_rows=2)
    assert len(read_json(one_shard / "manifest.json")["sources"]["train"]["files"]) == 1


def test_a_test_split_keeps_its_repetitions_and_may_not_lose_faulty_rows(tmp_path: Path) -> None:
    rest = {"document/train": [[report(1)]], "document/validation": [[report(2)]]}
    hub(tmp_path / "hub", {**rest, "document/test": [[report(3), report(3), report(4)]]})
    settings = {"kind": "govreport", "layout": "published", "seed": 0, "max_source_words": 50}
    folder = made(tmp_path, "gov", **settings)
    assert len(rows_of(folder, "test")) == 3 and reasons(folder) == {}
    hub(tmp_path / "hub", {"document/test": [[report(3), {**report(4), "summary": ""}]]})
    with pytest.raises(JudgefreeError, match="test table_row_count_to_be_between: observed 1"):
        made(tmp_path, "gov", {"max_quarantined_share": 0.3}, **settings)


def test_writing_prompts_lose_their_tag_and_need_no_story(tmp_path: Path) -> None:
    train = [
        {"prompt": "[ WP ] A clock runs backwards in this town .", "story": "One day <newline> <newline> it stopped ."},
        {"prompt": "[WP] a clock runs backwards in this town", "story": "Another story ."},
        {"prompt": "You wake up and the sea is gone .", "story": None},
        {"prompt": "[ EU ] The last dragon of the north asks you for a job in its old age .", "story": " "},
        {"prompt": "[ WP ]", "story": "About nothing ."},
    ]
    held = [{"prompt": "[ CW ] Write about a very old bridge .", "story": "It stood ."}]
    hub(tmp_path / "hub", {"data/train": [train], "data/validation": [held], "data/test": [[*train[:1], *train[1:3]]]})
    folder = made(tmp_path, "writing", kind="writing", max_source_words=12)
    assert rows_of(folder, "test")[0]["answer"] == "One day\n\nit stopped ."
    rows = rows_of(folder, "train")
    assert [(row["question"], row["answer"], row["answer_tokens"], row["cut_tokens"]) for row in rows] == [
        ("The last dragon of the north asks you for a job in", None, None, 4)
    ]
    found = {row_id: reason.split(":")[0] for row_id, reason in reasons(folder).items()}
    assert found == {
        **{f"writing-train-00000{place}": "overlap" for place in range(3)}, "writing-train-000004": "empty"
    }  # fmt: skip
    assert rows_of(folder, "validation")[0]["question"] == "Write about a very old bridge ."


def test_mathematical_pages_have_no_reference_and_one_held_out_split(tmp_path: Path) -> None:
    pages = [{"text": f"Let $x_{n}$ be {n} times the sum of two numbers", "url": "u", "score": 3} for n in range(8)]
    hub(tmp_path / "hub", {"3/part": [pages[:5], pages[5:], [{"text": "not read"}]]})
    settings = {"kind": "maths_text", "files": "3/part-0000[01]-*.parquet", "seed": 0, "validation": 3}
    folder = made(tmp_path, "pages", **settings, max_source_words=8)
    manifest = read_json(folder / "manifest.json")
    assert manifest["rows"] == {"train": 5, "validation": 3} and manifest["rows_read"] == {"train": 8}
    rows = rows_of(folder, "train") + rows_of(folder, "validation")
    assert all(row["answer"] is None and row["cut_tokens"] == 2 for row in rows)
    assert load_split(folder, "train")[0].answer is None
    assert read_json(folder / "quality.json")["validation"][0]["allowed"] == {"min_value": 3, "max_value": 3}


def test_l_eval_gives_all_splits_from_one_file(tmp_path: Path) -> None:
    rows = [{"input": report(n)["report"], "outputs": [report(n)["summary"], "another"]} for n in range(7)]
    rows += [rows[0], {"input": "A report of which nobody wrote a summary", "outputs": []}]
    (tmp_path / "hub").mkdir()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "hub" / "leval_gov_report_summ.jsonl").write_text(text)
    settings = {"kind": "govreport", "layout": "leval", "seed": 0, "max_source_words": 100, "validation": 1, "test": 2}
    folder = made(tmp_path, "gov", **settings)
    assert read_json(folder / "manifest.json")["rows"] == {"train": 4, "validation": 1, "test": 2}
    assert reasons(folder) == {
        "govreport-train-000007": "repeated question: as row govreport-train-000000",
        "govreport-train-000008": "missing field: summary",
    }
    kept = [row["question"] for split in ("train", "validation", "test") for row in rows_of(folder, split)]
    assert sorted(kept) == [report(n)["report"] for n in range(7)]
    with pytest.raises(JudgefreeError, match=r"data\.gov\.test: 7 rows cannot be held out of 7"):
        made(tmp_path, "gov", **{**settings, "test": 7})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": "leval"}, "validation: is given exactly when layout is leval"),
        ({"test": 3}, "test: is given exactly when layout is leval"),
        ({"id": "ccdv/govreport-summarization", "revision": "main"}, "main is no full commit id"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        govreport(tmp_path, [report(1), report(2)], **changes)


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("  one\t two  \r\n\r\n\r\n\n three ", "one two\n\nthree"),
        ("soft\u00adhyphen and zero\u200bwidth\ufeff", "softhyphen and zerowidth"),
        ("cafe\u0301 \u00a0 nai\u0308ve", "caf\u00e9 na\u00efve"),
        ("a\u2028b\u2029c\rd", "a\nb\nc\nd"),
        ("a bell \x07 stays", "a bell \x07 stays"),
        ("\u200b \n ", ""),
    ],
)
def test_cleaning_worked_out_by_hand(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@given(st.text())
def test_cleaning_twice_changes_nothing_and_loses_no_word(text: str) -> None:
    once = clean(text)
    assert clean(once) == once


@given(st.lists(st.sampled_from(["a", "bc", "\n", "  ", "한국"])), st.integers(1, 8))
def test_shortening_keeps_the_first_words_as_they_stand(parts: list[str], most: int) -> None:
    text = " ".join(parts)
    kept, cut = shortened(text, most)
    assert text.startswith(kept) and kept.split() == text.split()[:most]
    assert cut == max(0, len(text.split()) - most) and (cut or kept == text)


def test_real_reports_from_the_mirror(real_mirror: Path, tmp_path: Path) -> None:
    settings = {"kind": "govreport", "layout": "leval", "seed": 0, "validation": 2, "test": 3}
    quality = {"max_question_chars": 100_000, "max_answer_chars": 10_000, "max_quarantined_share": 0.0}
    revision = {"id": "L4NLP/LEval", "revision": "0" * 40}
    folder = made(tmp_path, "gov", quality, **settings, **revision, max_source_words=4000)
    assert read_json(folder / "manifest.json")["rows"] == {"train": 8, "validation": 2, "test": 3}
    assert list(reasons(folder)) == ["govreport-train-000013"]  # 14 rows, 13 different ones
    for split in ("train", "validation", "test"):
        for row in rows_of(folder, split):
            assert 2000 < row["question_tokens"] <= 4000 and row["answer_tokens"] > 100
            assert (row["cut_tokens"] > 0) <= (row["question_tokens"] == 4000)
