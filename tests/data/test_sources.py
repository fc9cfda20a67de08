import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub.utils import httpx

from judgefree.data.sources import read, read_jsonl, read_mirror, read_parquet
from judgefree.errors import JudgefreeError, MayPass
from judgefree.files import sha256_file

REVISION = "0123456789" * 4


def test_each_unreadable_line_spoils_itself_only(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"a": "first \xe2\x80\xa8 line"}\r',  # byte order mark; U+2028 inside; Windows line end
        b'{"a": "cut off',
        b'{"a": "\xff"}',
        b"[1, 2]",
        b"",
        b'{"a": "raw \x00 NUL"}',
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "last"}',
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    rows = read_jsonl(path, first_place=10)
    assert [row.place for row in rows] == list(range(10, 19))
    assert rows[0].fields == {"a": "first \u2028 line"} and rows[8].fields == {"a": "last"}
    faults = [row.fault for row in rows[1:8]]
    assert all(row.fields is None for row in rows[1:8])
    assert faults[1].startswith("not UTF-8: ") and r"\xff" in rows[2].text
    assert faults[2] == "malformed line: holds no object but list"
    assert all(fault.startswith("malformed line: ") for i, fault in enumerate(faults) if i != 1)
    assert rows[5].text == '{"a": "raw \x00 NUL"}'


def test_a_final_line_feed_makes_no_row(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b'{"a": 1}\n')
    (tmp_path / "none").write_bytes(b"")
    assert [row.fields for row in read_jsonl(tmp_path / "one")] == [{"a": 1}]
    assert read_jsonl(tmp_path / "none") == []


def test_parquet_text_that_is_not_utf8_spoils_its_row_only(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.array([0, 2, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"ok\xffz")]
    )
    pq.write_table(pa.table({"q": broken, "n": [1, 2, 3]}), tmp_path / "x.parquet")
    first, second, third = read_parquet(tmp_path / "x.parquet")
    assert first.fields == {"q": "ok", "n": 1} and third.fields == {"q": "z", "n": 3} and third.place == 2
    assert second.fields is None and second.fault.startswith("not UTF-8") and r"\\xff" in second.text


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(JudgefreeError, match=r"x\.parquet is not readable as parquet"):
        read_parquet(tmp_path / "x.parquet")


def hub_source(root: Path, identity: str = "openai/gsm8k", split: str = "train"):
    layouts, mirror = (f"main/{split}-*.parquet", f"{split}.jsonl"), (f"gsm8k/{split}.jsonl",)
    return read(split, "gsm8k", (identity, REVISION), layouts, mirror, root)


def test_folder_in_hub_layout_reads_all_shards_in_order_and_hashes_them(tmp_path: Path, mirror: Path) -> None:
    main = tmp_path / "own" / "main"
    main.mkdir(parents=True)
    for shard, values in enumerate((["a", "b"], ["c"])):
        pq.write_table(pa.table({"q": values}), main / f"train-0000{shard}-of-00002.parquet")
    pq.write_table(pa.table({"q": ["not read"]}), main / "test-00000-of-00001.parquet")
    source = hub_source(tmp_path, "./own")  # goes before the mirror, which has no such file
    assert [(row.place, row.fields["q"]) for row in source.rows] == [(0, "a"), (1, "b"), (2, "c")]
    names = ["main/train-00000-of-00002.parquet", "main/train-00001-of-00002.parquet"]
    assert source.facts == {
        "kind": "folder",
        "id": "./own",
        "patterns": ["main/train-*.parquet", "train.jsonl"],
        "files": {name: sha256_file(tmp_path / "own" / name) for name in names},
    }


def test_missing_places_are_named_with_a_fix(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JudgefreeError, match=r"holds no file gsm8k/train\.jsonl"):
        hub_source(tmp_path)
    with pytest.raises(JudgefreeError, match=r"nowhere does not exist(.|\n)*params\.yaml"):
        hub_source(tmp_path, "../nowhere")
    monkeypatch.setenv("JUDGEFREE_MIRROR", str(tmp_path / "gone"))
    with pytest.raises(JudgefreeError, match=r"JUDGEFREE_MIRROR=.*gone is not a folder(.|\n)*unset it"):
        hub_source(tmp_path)
    monkeypatch.delenv("JUDGEFREE_MIRROR")
    with pytest.raises(
        JudgefreeError, match=r"mawps is read .* JUDGEFREE_MIRROR is not set(.|\n)*holds mawps/test.jsonl"
    ):
        read_mirror("test", "mawps", ("mawps/test.jsonl",))


HUB = f"""
import sys
from pathlib import Path
from judgefree.data.sources import read
from judgefree.errors import JudgefreeError
try:
    dataset = ("openai/gsm8k", "{REVISION}")
    source = read("train", "gsm8k", dataset, ("main/train-*.parquet",), ("gsm8k/train.jsonl",), Path())
    print([row.fields for row in source.rows], source.facts["kind"], source.facts["revision"])
except JudgefreeError as error:
    print(error)
"""


def hub_process(cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The hub's client reads its environment once, at import: a process of its own."""
    monkeypatch.delenv("JUDGEFREE_MIRROR", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    return subprocess.run([sys.executable, "-c", HUB], capture_output=True, text=True, check=True).stdout


def test_a_hub_out_of_reach_says_how_to_use_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = hub_process(tmp_path, monkeypatch)
    assert f"cannot get the data set openai/gsm8k at revision {REVISION} from the hub" in message
    assert "fix: without the hub, set JUDGEFREE_MIRROR to a folder that holds gsm8k/train.jsonl" in message


@pytest.mark.parametrize("error", [ConnectionError(), httpx.ReadTimeout("")], ids=lambda error: type(error).__name__)
def test_an_error_without_words_is_told_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def silent(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.delenv("JUDGEFREE_MIRROR", raising=False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", silent)
    with pytest.raises(MayPass, match=f"from the hub: {type(error).__name__}"):
        hub_source(tmp_path)


def test_a_pinned_revision_is_read_from_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = tmp_path / "datasets--openai--gsm8k" / "snapshots" / REVISION / "main"
    main.mkdir(parents=True)
    pq.write_table(pa.table({"q": ["kept"]}), main / "train-00000-of-00001.parquet")
    assert hub_process(tmp_path, monkeypatch) == f"[{{'q': 'kept'}}] hub {REVISION}\n"
