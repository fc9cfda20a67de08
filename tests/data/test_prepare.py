"""The data stage end to end: small data sets in the layouts of the real ones, and the real ones themselves."""

import json
import re
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgefree.data.leakage import tokens
from judgefree.data.prepare import hold_out, prepare
from judgefree.data.rows import Row
from judgefree.data.splits import load_split
from judgefree.errors import JudgefreeError
from judgefree.files import listing, read_json, sha256_file, verify

REVISION = "0123456789" * 4
QUALITY = {
    "max_quarantined_share": 0.01,
    "min_gold_parse_share": 0.995,
    "max_question_chars": 300,
    "max_answer_chars": 30,
    "near_overlap_ngram": 13,
    "near_overlap_share": 0.5,
}
LENIENT = {"max_quarantined_share": 0.9, "min_gold_parse_share": 0.1}


def word_problem(number: int) -> dict[str, str]:
    """A GSM8K row that shares no 13 neighbouring words with that of another number."""
    total = number + 2
    return {
        "question": f"Ann{number} has {number} red marbles. Bob gives her 2 more. How many marbles has she?",
        "answer": f"She has {number}+2=<<{number}+2={total}>>{total}.\n#### {total}",
    }


def write_lines(path: Path, rows: Sequence[dict[str, Any] | bytes]) -> None:
    """JSON lines; bytes stand for a line as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def settings(quality: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    data = {"kind": "gsm8k", "id": "openai/gsm8k", "revision": REVISION, "seed": 0, "validation": 3}
    return {"data": {**data, **changes, "quality": {**QUALITY, **(quality or {})}}}


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    return pq.read_table(folder / f"{table}.parquet").to_pylist()


def reasons(folder: Path) -> dict[str, str]:
    return {row["row_id"]: row["reason"] for row in rows_of(folder, "quarantine")}


def counts(folder: Path) -> dict[str, int]:
    return read_json(folder / "manifest.json")["rows"]


def hashes(folder: Path) -> dict[str, str]:
    return {name: facts["sha256"] for name, facts in listing(folder).items()} | {
        "manifest.json": sha256_file(folder / "manifest.json")
    }


@pytest.fixture
def gsm8k(mirror: Path) -> Callable[..., Path]:
    """Writes a mirror with 20 sound training rows (places 0 to 19) and 5 sound test rows before the given ones."""

    def write(train: Sequence[Any] = (), test: Sequence[Any] = ()) -> Path:
        write_lines(mirror / "gsm8k/train.jsonl", [*(word_problem(n) for n in range(100, 120)), *train])
        write_lines(mirror / "gsm8k/test.jsonl", [*(word_problem(n) for n in range(200, 205)), *test])
        return mirror

    return write


def test_a_sound_data_set(gsm8k, tmp_path: Path) -> None:
    source = gsm8k()
    prepare("mine", settings(), tmp_path)
    folder = tmp_path / "data/mine"
    manifest = verify(folder)
    assert manifest["rows"] == {"train": 17, "validation": 3, "test": 5}
    assert manifest["rows_read"] == {"train": 20, "test": 5} and manifest["quarantined"] == {}
    assert manifest["sources"]["test"]["files"] == {"gsm8k/test.jsonl": sha256_file(source / "gsm8k/test.jsonl")}
    assert rows_of(folder, "test")[1] == {
        "id": "gsm8k-test-000001",
        "question": "Ann201 has 201 red marbles. Bob gives her 2 more. How many marbles has she?",
        "answer": "203",
        "solution": "She has 201+2=<<201+2=203>>203.",
        "demonstration": "She has 201+2=203.\n#### 203",
        "source": "gsm8k/test",
        "level": None,
        "subject": None,
    }
    ids = [row["id"] for split in ("train", "validation") for row in rows_of(folder, split)]
    assert sorted(ids) == [f"gsm8k-train-{place:06d}" for place in range(20)]
    assert load_split(folder, "validation", 1)[0].id == ids[17]
    verdict = read_json(folder / "quality.json")
    assert set(verdict) == {"train", "validation", "test", "data set"}
    assert all(check["success"] for part in verdict.values() for check in part)
    assert not (tmp_path / ".work/data/mine").exists()


def test_two_runs_in_two_places_give_the_same_bytes(gsm8k, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = gsm8k(train=[b"{", word_problem(100)])
    prepare("mine", settings(LENIENT), tmp_path / "one")
    moved = tmp_path / "elsewhere"
    source.rename(moved)
    monkeypatch.setenv("JUDGEFREE_MIRROR", str(moved))
    prepare("mine", settings(LENIENT), tmp_path / "two")
    assert hashes(tmp_path / "one/data/mine") == hashes(tmp_path / "two/data/mine")


def test_one_edited_row_changes_key_and_split(gsm8k, tmp_path: Path) -> None:
    gsm8k()
    prepare("mine", settings(), tmp_path)
    before = read_json(tmp_path / "data/mine/manifest.json")
    gsm8k(train=[word_problem(300)])
    prepare("mine", settings(), tmp_path)
    after = read_json(tmp_path / "data/mine/manifest.json")
    assert after["key"] != before["key"] and after["rows"]["train"] == 18
    assert after["files"]["test.parquet"] == before["files"]["test.parquet"]


def test_every_kind_of_bad_row_is_kept_aside_and_the_rest_goes_on(gsm8k, tmp_path: Path) -> None:
    long = {"question": "why " * 100, "answer": "#### 1"}
    bad = {
        "malformed line": b'{"question": "cut',
        "not UTF-8": b'{"question": "\xff", "answer": "#### 1"}',
        "missing field": {"question": "Where is the answer?"},
        "wrong type": {"question": ["a"], "answer": "#### 1"},
        "empty": {"question": " ", "answer": "#### 1"},
        "no gold answer": {"question": "Which?", "answer": "It is 1."},
        "gold does not parse": {"question": "Who?", "answer": "#### Ann"},
        "control character": {"question": "NUL \x00 inside", "answer": "#### 1"},
        "lone surrogate": {"question": "half \ud83d of it", "answer": "#### 1"},
        "mojibake": {"question": "It costs Â£5 today", "answer": "#### 5"},
        "too long": long,
        "duplicate id": {**word_problem(301), "id": "gsm8k-train-000000"},
        "repeated question": {**word_problem(105), "question": word_problem(105)["question"].upper()},
    }
    empty_mark = {"question": "?!?...", "answer": "#### 1"}
    gsm8k(train=[*bad.values(), {**empty_mark, "question": "...?"}])
    prepare("mine", settings(LENIENT), tmp_path)
    folder = tmp_path / "data/mine"
    found = reasons(folder)
    for place, reason in enumerate(bad, 20):
        row_id = "gsm8k-train-000000" if reason == "duplicate id" else f"gsm8k-train-{place:06d}"
        assert found[row_id].split(":")[0] == reason, found[row_id]
    assert found["gsm8k-train-000033"] == "empty: question has neither word nor sign"
    assert len(found) == 14 and counts(folder) == {"train": 17, "validation": 3, "test": 5}
    raw = {row["row_id"]: row["raw"] for row in rows_of(folder, "quarantine")}
    assert json.loads(raw["gsm8k-train-000030"]) == long
    assert raw["gsm8k-train-000020"] == '{"question": "cut'
    assert json.loads(raw["gsm8k-train-000028"])["question"] == "half \ud83d of it"


def test_answers_that_contradict_each_other_all_leave_and_equal_ones_do_not(gsm8k, tmp_path: Path) -> None:
    again = word_problem(200)["question"].replace("?", " ?")
    other = "Ann has one. How many?"
    gsm8k(
        train=[{"question": other, "answer": "#### 1"}, {"question": other, "answer": "#### 2"}],
        test=[{"question": again, "answer": "#### 202.0"}],
    )
    prepare("mine", settings(LENIENT), tmp_path)
    assert reasons(tmp_path / "data/mine") == {
        "gsm8k-train-000020": "contradictory answers: '1' here, '2' in row gsm8k-train-000021",
        "gsm8k-train-000021": "contradictory answers: '2' here, '1' in row gsm8k-train-000020",
    }
    assert counts(tmp_path / "data/mine")["test"] == 6  # a repeated test question stays


def test_leaked_test_questions_leave_training_and_the_test_split_stays(gsm8k, tmp_path: Path) -> None:
    exact = word_problem(200)
    cosmetic = {**word_problem(201), "question": "  " + word_problem(201)["question"].lower().replace(".", " ,")}
    filler = "Then they went home and had tea with bread and jam. "
    story = "Lea sells 12 pots on Monday and twice as many on Tuesday to 3 shops. How many did she sell?"
    near = {"question": filler + story.replace("12", "14"), "answer": "#### 42"}
    short = {"question": f"{filler} Why is {7} odd? {filler}", "answer": "#### 1"}
    gsm8k(
        train=[exact, cosmetic, near, short],
        test=[{"question": story, "answer": "#### 36"}, {"question": "Why is 7 odd?", "answer": "#### 1"}],
    )
    prepare("mine", settings(), tmp_path)  # no fault of a row: more than 1 % of the rows, and the stage passes
    found = reasons(tmp_path / "data/mine")
    assert found["gsm8k-train-000020"] == "overlap: same text as test row gsm8k-test-000000"
    assert found["gsm8k-train-000021"] == "overlap: same tokens as test row gsm8k-test-000001"
    # 20 words have 8 13-grams; "12" is the third word, so the first 3 grams differ: 5 of 8.
    assert len(tokens(story)) == 20
    assert found["gsm8k-train-000022"] == "near overlap: holds 62% of test row gsm8k-test-000005"
    assert found["gsm8k-train-000023"] == "near overlap: holds 100% of test row gsm8k-test-000006"
    manifest = read_json(tmp_path / "data/mine/manifest.json")
    assert manifest["quarantined"] == {"near overlap": 2, "overlap": 2} and manifest["rows"]["test"] == 7

    allow = ["gsm8k-train-000022", "gsm8k-test-000006"]
    prepare("mine", settings({"near_overlap_allow": allow}), tmp_path)
    assert set(reasons(tmp_path / "data/mine")) == {"gsm8k-train-000020", "gsm8k-train-000021"}


def test_too_many_faulty_rows_fail_with_a_report_and_leave_the_old_data_alone(gsm8k, tmp_path: Path) -> None:
    gsm8k()
    prepare("mine", settings(), tmp_path)
    before = hashes(tmp_path / "data/mine")
    gsm8k(train=[b"{"] * 2)
    with pytest.raises(JudgefreeError, match=r"mine: 2 of 27 rows are faulty \(7\.41%, allowed 1\.00%\)") as caught:
        prepare("mine", settings(), tmp_path)
    assert "2  malformed line" in str(caught.value)
    kept = re.search(r"all of them are in (\S+);", str(caught.value))[1]
    assert len(rows_of((tmp_path / kept).parent, "quarantine")) == 2
    assert hashes(tmp_path / "data/mine") == before


def test_a_test_split_may_not_lose_more_than_the_share_of_its_own(gsm8k, tmp_path: Path) -> None:
    gsm8k(test=[b"{"])  # 1 of 26 rows in all, but 1 of 6 test rows
    with pytest.raises(JudgefreeError, match=r"test table_row_count_to_be_between: observed 5, allowed .*6"):
        prepare("mine", settings({"max_quarantined_share": 0.1}), tmp_path)


def test_too_few_gold_answers_that_parse_fail(gsm8k, tmp_path: Path) -> None:
    gsm8k(train=[{"question": "Who?", "answer": "#### Ann"}])  # 20 of 21 training rows: 95.2 %
    with pytest.raises(JudgefreeError, match="gold_parse_share column_min_to_be_between: observed 0.952"):
        prepare("mine", settings({"max_quarantined_share": 0.5}), tmp_path)
    prepare("mine", settings({"max_quarantined_share": 0.5, "min_gold_parse_share": 0.95}), tmp_path)


def test_validation_larger_than_training_is_refused(gsm8k, tmp_path: Path) -> None:
    gsm8k()
    with pytest.raises(JudgefreeError, match=r"data\.mine\.validation: 20 rows cannot be held out of 20"):
        prepare("mine", settings(validation=20), tmp_path)


def test_a_folder_that_cannot_be_written_is_named(gsm8k, tmp_path: Path) -> None:
    gsm8k()
    (tmp_path / "data").write_text("a file where a folder should be")
    with pytest.raises(JudgefreeError, match=r"cannot move .*mine to .*data/mine"):
        prepare("mine", settings(), tmp_path)


def test_a_write_that_fails_is_named_and_leaves_no_data_set(gsm8k, tmp_path: Path) -> None:
    gsm8k()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))  # as if the disk were full
    try:
        with pytest.raises(
            JudgefreeError, match=r"cannot write .*train\.parquet: File too large(.|\n)*free disk space"
        ):
            prepare("mine", settings(), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "data").exists()


def test_a_source_without_rows_fails_on_its_row_count(gsm8k, tmp_path: Path) -> None:
    (gsm8k() / "gsm8k/test.jsonl").write_bytes(b"")
    with pytest.raises(JudgefreeError, match="test table_row_count_to_be_between: observed 0"):
        prepare("mine", settings(), tmp_path)


def test_hub_layout_and_mirror_give_the_same_splits(gsm8k, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = gsm8k(train=[word_problem(200)])
    prepare("mine", settings(), tmp_path)
    for split in ("train", "test"):
        lines = (source / f"gsm8k/{split}.jsonl").read_text().splitlines()
        path = tmp_path / "hub" / "main" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([json.loads(line) for line in lines]), path)
    monkeypatch.delenv("JUDGEFREE_MIRROR")
    prepare("folder", settings(id="./hub"), tmp_path)
    one, two = (hashes(tmp_path / "data" / name) for name in ("mine", "folder"))
    for table in ("train.parquet", "validation.parquet", "test.parquet", "quality.json"):
        assert one[table] == two[table], table
    assert read_json(tmp_path / "data/folder/manifest.json")["sources"]["train"]["kind"] == "folder"


@given(st.sets(st.integers(0, 500), min_size=2, max_size=60), st.integers(0, 3), st.data())
def test_held_out_rows_depend_on_ids_and_seed_alone(numbers: set[int], seed: int, data) -> None:
    rows = [Row(f"r{n}", "train", "q", "1", None, None, "s", None, None, ("q",), "{}") for n in sorted(numbers)]
    count = data.draw(st.integers(1, len(rows) - 1))
    train, held = hold_out(rows, count, seed)
    assert len(held) == count and sorted(row.id for row in train + held) == sorted(row.id for row in rows)
    assert train == [row for row in rows if row in train]
    assert hold_out(rows[::-1], count, seed)[1] == held
    assert hold_out(rows, count - 1, seed)[1] == held[:-1]


def test_generated_data_is_compared_for_equality_only(tmp_path: Path) -> None:
    generated = {
        "kind": "arithmetic", "seed": 1, "train": 60, "validation": 10, "test": 20, "min_steps": 1, "max_steps": 3,
        "max_value": 20, "templates": ["chain", "story"], "quality": QUALITY,
        "demonstrations": {"right": 0.5, "slip": 0.2, "skip": 0.2},
    }  # fmt: skip
    prepare("made", {"data": generated}, tmp_path)
    folder = tmp_path / "data/made"
    assert counts(folder) == {"train": 60, "validation": 10, "test": 20} and reasons(folder) == {}
    questions = [tokens(row["question"]) for split in ("train", "validation", "test") for row in rows_of(folder, split)]
    assert len(set(questions)) == 90
    assert all(row["demonstration"] for row in rows_of(folder, "train"))


# -------------------------------------------------------------------------------------------------------- real data


def test_real_gsm8k_from_the_mirror(real_mirror: Path, tmp_path: Path) -> None:
    prepare("gsm8k", settings({"max_question_chars": 8000}, validation=473), tmp_path)
    folder = tmp_path / "data/gsm8k"
    assert read_json(folder / "manifest.json")["rows_read"] == {"train": 7473, "test": 1319}
    # Two training questions differ from one test question in vehicle and figures.
    assert reasons(folder) == {
        f"gsm8k-train-{place}": "near overlap: holds 54% of test row gsm8k-test-000602"
        for place in ("001314", "005162")
    }
    assert counts(folder) == {"train": 6998, "validation": 473, "test": 1319}
    for row in rows_of(folder, "train"):
        assert re.fullmatch(r"-?\d+(\.\d+)?", row["answer"]) and "<<" not in row["demonstration"]
        assert row["demonstration"].endswith(f"\n#### {row['answer']}")


def test_real_math_500_is_taken_out_of_a_made_up_training_folder(real_mirror: Path, tmp_path: Path) -> None:
    with (real_mirror / "math500/test.jsonl").open(encoding="utf-8") as file:
        test = [json.loads(line) for line in file]
    own = tmp_path / "hub"
    write_lines(own / "test" / "test.jsonl", test)
    leaked = [
        {"problem": test[n]["problem"], "solution": test[n]["solution"], "level": "Level 1", "type": "x"}
        for n in range(5)
    ]
    for subject, first in (("algebra", 10), ("geometry", 20)):
        rows = [
            {"problem": f"Find $x_{{{n}}}$ when $x_{{{n}}} = {n} + 1$.", "solution": rf"It is $\boxed{{{n + 1}}}$.",
             "level": "Level 2", "type": subject.title()}
            for n in range(first, first + 8)
        ]  # fmt: skip
        path = own / "train" / subject / "train-00000-of-00001.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows + (leaked if subject == "algebra" else [])), path)
    data = {
        "kind": "math", "train_id": "./hub/train", "train_revision": REVISION, "test_id": "./hub/test",
        "test_revision": REVISION, "seed": 0, "validation": 4,
        "quality": {**QUALITY, "max_question_chars": 8000, "max_answer_chars": 400},
    }  # fmt: skip
    prepare("math", {"data": data}, tmp_path)
    folder = tmp_path / "data/math"
    assert counts(folder) == {"train": 12, "validation": 4, "test": 500}
    found = reasons(folder)
    assert len(found) == 5 and all(
        reason.startswith("overlap: same text as test row test/") for reason in found.values()
    )
    first = rows_of(folder, "test")[0]
    assert (first["id"], first["level"], first["subject"]) == ("test/precalculus/807.json", 2, "Precalculus")
    assert first["answer"] == r"\left( 3, \frac{\pi}{2} \right)"
    train = {row["question"]: row for row in rows_of(folder, "train") + rows_of(folder, "validation")}
    assert train["Find $x_{21}$ when $x_{21} = 21 + 1$."]["answer"] == "22"


def test_real_mawps_from_the_mirror(real_mirror: Path, tmp_path: Path) -> None:
    prepare(
        "mawps",
        {"data": {"kind": "mawps", "subset": "test", "quality": QUALITY | {"max_question_chars": 400}}},
        tmp_path,
    )
    folder = tmp_path / "data/mawps"
    assert counts(folder) == {"test": 2061}
    # Two questions stand twice in the published file, each time with another answer.
    assert {row_id: reason.split(":")[0] for row_id, reason in reasons(folder).items()} == dict.fromkeys(
        ("mawps-test-000244", "mawps-test-000479", "mawps-test-001005", "mawps-test-001215"), "contradictory answers"
    )
    with pytest.raises(JudgefreeError, match="has no train split"):
        load_split(folder, "train")
