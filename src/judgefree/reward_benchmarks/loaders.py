"""The benchmarks' files as items: LOADERS[set](place, root) -> Loaded, from the hub, a folder of its layout, or a mirror.

Missing and malformed rows, unknown subsets and repeated rows are errors that name file and row.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judgefree.config_rewards import HELD_OUT, Place
from judgefree.errors import JudgefreeError
from judgefree.reward_benchmarks.items import Item, Message, versus
from judgefree.reward_benchmarks.published import JUDGE_BENCH, REWARD_BENCH_2, RM_BENCH, ROWS, TOTAL_ROWS
from judgefree.reward_benchmarks.records import Record, read_records
from judgefree.reward_benchmarks.xstest import xstest_items
from judgefree.reward_model.pairs import PAIRS

# Patterns of a set's files below its hub repository, and below a mirror; of each the first that matches is read.
FILES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    HELD_OUT: ((PAIRS,), ()),  # below data/<dataset>
    "reward_bench": (("**/filtered-*.parquet",), ("reward-bench/**/filtered-*.parquet", "reward-bench/filtered.jsonl")),
    "reward_bench_2": (("**/test-*.parquet",), ("reward-bench-2/**/test-*.parquet", "reward-bench-2/test.jsonl")),
    "rm_bench": (
        ("**/total_dataset.json", "**/train-*.parquet"),
        ("rm-bench/total_dataset.json", "rm-bench/**/train-*.parquet", "rm-bench/*_filtered.json"),
    ),
    "ppe_preference": (("**/test-*.parquet",), ("ppe/preference/**/test-*.parquet", "ppe/preference.jsonl")),
    "judge_bench": (("**/gpt-*.parquet", "**/*response_model=gpt-4o*.jsonl"), ("judgebench/*response_model=gpt-4o*.jsonl",)),
    "judge_bench_claude": (
        ("**/claude-*.parquet", "**/*response_model=claude*.jsonl"), ("judgebench/*response_model=claude*.jsonl",),
    ),
    "llmbar": (("**/dataset.json",), ("llmbar/**/dataset.json",)),
    "xstest": (("**/xstest_v2_completions_gpt4.csv",), ("xstest/xstest_v2_completions_gpt4.csv",)),
    **{
        f"ppe_{name}": (
            ("**/train-*.parquet",), (f"ppe/{name}/**/train-*.parquet", f"ppe/{name}.jsonl"),
        )
        for name in ("mmlu_pro", "math", "gpqa", "ifeval", "mbpp_plus")
    },
}  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """items: what is scored; excluded: rows that the benchmark's rule leaves out, by reason; published: rows that the
    authors count, None where unknown; facts: where the rows come from, for a manifest."""

    items: list[Item]
    facts: dict[str, Any]
    excluded: dict[str, int] = field(default_factory=dict)
    published: int | None = None


def load_set(name: str, place: Place, partial: bool, root: Path) -> Loaded:
    """Items of one set (a key of `FILES`).

    partial: whether fewer rows than were published are allowed. Raises JudgefreeError naming file and row, or the subset
    that lacks rows.
    """
    records, facts = read_records(name, place, *FILES[name], root)
    excluded: Counter[str] = Counter()
    if name == "xstest":
        items, left_out = xstest_items(records)
        excluded.update(left_out)
    else:
        parse = _PARSERS[name]
        parsed = [(record, parse(record)) for record in records]
        excluded.update(item for _, item in parsed if isinstance(item, str))
        items = _distinct([(record, item) for record, item in parsed if isinstance(item, Item)])
    if not items:
        raise JudgefreeError(f"{name}: no row to score in {', '.join(facts['files'])}", "get the files again")
    published = _check_counts(name, items, sum(excluded.values()), partial)
    return Loaded(items, facts, dict(sorted(excluded.items())), published)


def _distinct(parsed: Sequence[tuple[Record, Item]]) -> list[Item]:
    seen: dict[tuple[str, str], Record] = {}
    for record, item in parsed:
        first = seen.setdefault((item.subset, item.id), record)
        if first is not record:
            raise record.fault(f"repeats id {item.id} of {first.file}, row {first.place}")
    return [item for _, item in parsed]


def _check_counts(name: str, items: Sequence[Item], excluded: int, partial: bool) -> int | None:
    """The number of published rows. Raises JudgefreeError for more than that, and for less unless `partial`."""
    for subset, published in ROWS.get(name, {}).items():
        own = [item for item in items if item.subset == subset]
        _check_count(f"{name}: {len(own)} rows of {subset}", len(own), published, own, partial)
    total = TOTAL_ROWS.get(name, sum(ROWS.get(name, {}).values()) or None)
    if total is not None:
        _check_count(f"{name}: {len(items) + excluded} rows", len(items) + excluded, total, items, partial)
    return total


def _check_count(found: str, count: int, published: int, items: Sequence[Item], partial: bool) -> None:
    if count > published:
        fix = "remove those that are too many, or get the files again"
        raise JudgefreeError(f"{found}, published are {published}{_repeated(items)}", fix)
    if count < published and not partial:
        fix = "get all of its files; to score what is there, set reward_benchmarks.partial: true"
        raise JudgefreeError(f"{found}, published are {published}", fix)


def _repeated(items: Sequence[Item]) -> str:
    """The first item that says what another did, where there is one; of equal id it would have been refused."""
    first: dict[tuple[Any, ...], Item] = {}
    for item in items:
        if (other := first.setdefault((item.subset, item.group, item.responses, item.right), item)) is not item:
            return f"; {item.id} of {item.subset} repeats {other.id}"
    return ""


Parser = Callable[[Record], Item | str]  # a text is the reason why the rule leaves the row out


def _pair(
    record: Record, key: str, subset: str, messages: tuple[Message, ...], better: str, worse: str
) -> Item:  # fmt: skip
    right, pairs = versus(1, 1)
    return Item(record.identity(key), subset, messages, (better, worse), right, pairs, _group(messages))


def _group(messages: Sequence[Message]) -> str:
    return "\n".join(message["content"] for message in messages)


def _held_out_pair(record: Record) -> Item | str:
    if record.text("split") != "validation":
        return "pair to train on"
    return _pair(record, "id", "all", record.messages("prompt"), record.text("chosen"), record.text("rejected"))


def _reward_bench(record: Record) -> Item:
    subset = record.text("subset")
    if subset not in ROWS["reward_bench"]:
        raise record.fault(f"subset {subset!r} is none of RewardBench's")
    return _pair(record, "id", subset, record.messages("prompt"), record.text("chosen"), record.text("rejected"))


def _reward_bench_2(record: Record) -> Item:
    subset, identity = record.text("subset"), record.identity("id")
    if subset not in REWARD_BENCH_2:
        raise record.fault(f"subset {subset!r} is none of RewardBench 2's")
    chosen, rejected = record.texts("chosen"), record.texts("rejected")
    for name, texts in (("num_correct", chosen), ("num_incorrect", rejected)):
        if record.fields.get(name) is not None and record.fields[name] != len(texts):
            raise record.fault(f"{name} is {record.fields[name]} beside {len(texts)} texts")
    messages = record.messages("prompt")
    if subset == "Ties":
        found = re.fullmatch(r"(?:ref|tied):(\w+)", identity)
        if not found:
            raise record.fault(f"id {identity!r} of Ties is neither ref:k nor tied:k")
        group = f"Ties:{found[1]}"  # both prompts of a k are scored together
    elif len(chosen) != 1:
        raise record.fault(f"chosen has {len(chosen)} texts, not 1")
    else:
        group = _group(messages)
    right, pairs = versus(len(chosen), len(rejected))
    return Item(identity, subset, messages, chosen + rejected, right, pairs, group)


def _rm_bench(record: Record) -> Item:
    """The domain stands in the row, or, in the authors' files by domain, in the file's name; safety has two halves."""
    named = record.fields.get("domain") or re.split(r"_filtered", Path(record.file).name)[0]
    domain = str(named).split("-")[0]
    if domain not in RM_BENCH:
        raise record.fault(f"domain {named!r} is none of RM-Bench's")
    messages = record.messages("prompt")
    right, pairs = versus(3, 3)
    responses = record.texts("chosen", 3) + record.texts("rejected", 3)
    return Item(f"{named}/{record.identity('id')}", domain, messages, responses, right, pairs, _group(messages))


def _ppe_preference(record: Record) -> Item | str:
    winner = record.text("winner")
    if winner.startswith("tie"):
        return "tie"
    if winner not in ("model_a", "model_b"):
        raise record.fault(f"winner {winner!r} is neither model_a, model_b nor a tie")
    first, second = record.text("response_1"), record.text("response_2")
    better, worse = (first, second) if winner == "model_a" else (second, first)
    return _pair(record, "question_id", "all", record.messages("prompt"), better, worse)


def _ppe_correctness(name: str) -> Parser:
    def parse(record: Record) -> Item | str:
        """Of the responses only those that a sampled pair compares."""
        scores, sampled = record.fields.get("scores"), record.fields.get("sampled_conflict_pairs")
        if not isinstance(scores, list) or not all(isinstance(score, bool | int | float) for score in scores):
            raise record.fault("scores is no list of numbers or truth values")
        if not isinstance(sampled, list):
            raise record.fault("sampled_conflict_pairs is no list")
        if not sampled:
            return "no pair"
        pairs = [_conflict(record, pair, scores) for pair in sampled]
        used = sorted({place for pair in pairs for place in pair})
        place_of = {old: new for new, old in enumerate(used)}
        messages = record.messages("prompt")
        return Item(
            id=f"{record.identity('question_id')}/{record.identity('model_name')}",
            subset=name,
            messages=messages,
            responses=tuple(record.text(f"response_{place + 1}") for place in used),
            right=tuple(bool(scores[place]) for place in used),
            pairs=tuple((place_of[right], place_of[wrong]) for right, wrong in pairs),
            group=_group(messages),
        )

    return parse


def _conflict(record: Record, pair: Any, scores: Sequence[float]) -> tuple[int, int]:
    """Places of the right and the wrong response of a sampled pair."""
    if not isinstance(pair, list) or len(pair) != 2 or not all(type(place) is int for place in pair):
        raise record.fault(f"sampled pair {pair!r} is no pair of places")
    first, second = pair
    if not all(0 <= place < len(scores) for place in pair):
        raise record.fault(f"sampled pair {pair} lies outside the {len(scores)} scores")
    if scores[first] == scores[second]:
        raise record.fault(f"sampled pair {pair} is no conflict: both are {scores[first]}")
    return (first, second) if scores[first] > scores[second] else (second, first)


def _judge_bench(record: Record) -> Item:
    source, label = record.text("source"), record.text("label")
    category = next((name for name in JUDGE_BENCH if source.startswith(name)), None)
    if category is None:
        raise record.fault(f"source {source!r} belongs to none of JudgeBench's categories")
    if label not in ("A>B", "B>A"):
        raise record.fault(f"label {label!r} is neither A>B nor B>A")
    a, b = record.text("response_A"), record.text("response_B")
    better, worse = (a, b) if label == "A>B" else (b, a)
    return _pair(record, "pair_id", category, record.messages("question"), better, worse)


def _llmbar(record: Record) -> Item:
    """Natural/dataset.json and Adversarial/<kind>/dataset.json; rows have no ids, so their place is one."""
    kind = Path(record.file).parent.name
    subset = {"Natural": "llmbar-natural", "Neighbor": "llmbar-adver-neighbor", "Manual": "llmbar-adver-manual"}.get(
        kind, f"llmbar-adver-{kind}"
    )
    if subset not in ROWS["llmbar"]:
        raise record.fault(f"folder {kind!r} is none of LLMBar's")
    label = record.fields.get("label")
    if label not in (1, 2):
        raise record.fault(f"label is {label!r}, neither 1 nor 2")
    texts = (record.text("output_1"), record.text("output_2"))
    messages, (right, pairs) = record.messages("input"), versus(1, 1)
    better, worse = texts if label == 1 else texts[::-1]
    return Item(str(record.place), subset, messages, (better, worse), right, pairs, _group(messages))


_PARSERS: Mapping[str, Parser] = {
    HELD_OUT: _held_out_pair,
    "reward_bench": _reward_bench,
    "reward_bench_2": _reward_bench_2,
    "rm_bench": _rm_bench,
    "ppe_preference": _ppe_preference,
    "judge_bench": _judge_bench,
    "judge_bench_claude": _judge_bench,
    "llmbar": _llmbar,
    **{name: _ppe_correctness(name) for name in FILES if name.startswith("ppe_") and name != "ppe_preference"},
}
