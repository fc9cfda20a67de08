"""The data stage: raw rows in; split files, quarantine, verdict and manifest out.

Order matters and is this: rows that cannot be read or are faulty leave; gold answers that do not parse leave; then,
from the test split downwards, contradictory and repeated questions leave and whatever also stands in a split above;
then training rows that come near a test question; then validation is held out of what is left of training. So the
validation split is always whole, and nothing is ever taken from a test split because training holds it too. Sources with
texts for answers (texts.py) go the same way without gold, contradictions and nearness (problems.py).
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from judgefree.config_data import (
    ArithmeticData,
    Data,
    Generated,
    Gsm8kData,
    MathData,
    MawpsData,
    OrdersData,
    PreferenceData,
    ProblemKinds,
)
from judgefree.config_texts import GovReportData, MathsTextData, MemoData, TextKinds, Texts, WritingData
from judgefree.data import (
    arithmetic,
    checks,
    govreport,
    gsm8k,
    maths_text,
    mawps,
    memo,
    orders,
    problems,
    quarantine,
    texts,
)
from judgefree.data import math as math_data
from judgefree.data import writing as writing_data
from judgefree.data.leakage import overlaps, tokens
from judgefree.data.preferences import prepare_preferences
from judgefree.data.quarantine import Quarantine
from judgefree.data.rows import NO_GOLD, UNPARSED, BadRow, Row, check_texts
from judgefree.data.sources import RawRow, Source
from judgefree.data.tables import COLUMNS, SCHEMA, TEXT_SCHEMA, write_parquet
from judgefree.episodes import stream_seed
from judgefree.errors import JudgefreeError
from judgefree.files import canonical_json, key_of, pretty_json, publish, seal, write_atomic
from judgefree.reward_model.pairs import PAIRS
from judgefree.reward_model.pairs import SCHEMA as PAIR_SCHEMA

Settings = ProblemKinds | TextKinds

SPLITS = ("test", "validation", "train")  # the order in which a question belongs to one split only


def prepare(name: str, resolved: Mapping[str, Any], root: Path) -> None:
    """Make `data/<name>/` below `root` from the resolved settings `{"data": {...}}`.

    Files: one parquet per split, quarantine.parquet (row_id, split, reason, raw), quality.json, manifest.json. They are
    written in `.work/data/<name>` and published in one rename; what failed stays there to be looked at.
    Raises JudgefreeError when a source is missing, too many rows are faulty, or an expectation fails.
    """
    settings: Settings | PreferenceData = TypeAdapter(Data).validate_python(resolved["data"])
    if isinstance(settings, PreferenceData):
        return prepare_preferences(name, settings, root)
    work, shown = root / ".work" / "data" / name, f".work/data/{name}"
    shutil.rmtree(work, ignore_errors=True)
    sources, parse = _sources(settings, root)
    refused = Quarantine()
    rows = [row for source in sources for row in _accept(source, settings, parse, refused)]
    rows = _unique_ids(rows, refused)
    if not isinstance(settings, Texts):
        rows = problems.parsed_gold(rows, refused)
    read = {source.split: len(source.rows) for source in sources}
    splits = _arrange(name, settings, {split: [row for row in rows if row.split == split] for split in read}, refused)

    for split, kept in splits.items():
        records = [{column: getattr(row, column) for column in COLUMNS} for row in kept]
        if isinstance(settings, Texts):
            records = [{**record, **texts.lengths(row)} for record, row in zip(records, kept, strict=True)]
        write_parquet(work / f"{split}.parquet", records, TEXT_SCHEMA if isinstance(settings, Texts) else SCHEMA)
    pairs = arithmetic.preference_pairs(settings) if isinstance(settings, ArithmeticData) and settings.pairs else []
    if pairs:
        write_parquet(work / PAIRS, pairs, PAIR_SCHEMA)
    write_parquet(work / "quarantine.parquet", quarantine.records(refused.entries), quarantine.SCHEMA)
    refused.enforce(name, sum(read.values()), settings.quality.max_quarantined_share, f"{shown}/quarantine.parquet")

    verdict = checks.validate(
        {split: [vars(row) for row in kept] for split, kept in splits.items()},
        {split: _sizes(split, settings, read) for split in splits},
        [_facts(split, settings, splits, read, refused) for split in splits],
        settings.quality,
        referenced=not isinstance(settings, Texts) or settings.referenced,
    )
    if pairs:
        verdict["pairs"] = checks.validate_pairs(pairs)
    write_atomic(work / "quality.json", pretty_json(verdict))
    checks.enforce(name, verdict, f"{shown}/quality.json")
    seal(work, _manifest(settings, sources, splits, refused))
    publish(work, root / "data" / name)


def _sources(settings: Settings, root: Path) -> tuple[list[Source], Callable[[dict[str, Any]], dict[str, Any]]]:
    """The raw rows of every split that is read, and the function that brings one into the common form."""
    match settings:
        case Gsm8kData():
            return gsm8k.load(settings, root), gsm8k.parse
        case MathData():
            return math_data.load(settings, root), math_data.parse
        case MawpsData():
            return mawps.load(settings), mawps.parse
        case GovReportData():
            return govreport.load(settings, root), lambda fields: govreport.parse(fields, settings.max_source_words)
        case WritingData():
            return writing_data.load(settings, root), lambda fields: writing_data.parse(
                fields, settings.max_source_words
            )
        case MathsTextData():
            return maths_text.load(settings, root), lambda fields: maths_text.parse(fields, settings.max_source_words)
        case ArithmeticData():
            return _generated(settings, arithmetic.rows(settings)), dict
        case OrdersData():
            return _generated(settings, orders.rows(settings)), dict
        case MemoData():
            return _generated(settings, memo.rows(settings)), dict


def _generated(settings: Generated, world: Mapping[str, list[dict[str, Any]]]) -> list[Source]:
    return [
        Source(
            split,
            f"{settings.kind}/{split}",
            [RawRow(place, canonical_json(row), row) for place, row in enumerate(rows)],
            {"kind": "generator", "seed": settings.seed},
        )
        for split, rows in world.items()
    ]


def _accept(
    source: Source, settings: Settings, parse: Callable[[dict[str, Any]], dict[str, Any]], refused: Quarantine
) -> list[Row]:
    """The rows of a source that are readable and sound by themselves. The source's own `id` or `unique_id` is kept,
    else the place in the source names the row."""
    rows = []
    for raw in source.rows:
        row_id = f"{settings.kind}-{source.split}-{raw.place:06d}"
        try:
            if raw.fields is None:
                raise BadRow(raw.fault)
            own = raw.fields.get("id", raw.fields.get("unique_id"))
            columns = {"level": None, "subject": None, **parse(raw.fields), "id": row_id if own is None else str(own)}
            check_texts(columns, settings.quality)
            if not (words := tokens(columns["question"])):
                raise BadRow("empty: question has neither word nor sign")
            if isinstance(settings, Texts):
                texts.check_length(columns["question"], settings.quality)
                words = texts.identity(words)
        except BadRow as error:
            refused.add(row_id, source.split, str(error), raw.text)
        else:
            rows.append(Row(**columns, split=source.split, source=source.label, words=words, raw=raw.text))
    return rows


def _unique_ids(rows: Sequence[Row], refused: Quarantine) -> list[Row]:
    """The first row of every id, test rows before validation and training rows."""
    first: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: SPLITS.index(row.split)):
        if (other := first.setdefault(row.id, row)) is not row:
            refused.take(row, f"duplicate id: {row.id} is a {other.split} row already")
    return [row for row in rows if first[row.id] is row]


def _arrange(
    name: str, settings: Settings, sound: Mapping[str, list[Row]], refused: Quarantine
) -> dict[str, list[Row]]:
    """The splits without contradictions, repetitions and overlap; with validation held out where it is asked for."""
    splits: dict[str, list[Row]] = {}
    above: list[Row] = []
    for split in SPLITS:
        if split in sound:
            within = texts.unrepeated if isinstance(settings, Texts) else problems.consistent
            splits[split] = within(_apart(sound[split], above, refused), refused)
            above += splits[split]
    if isinstance(settings, Gsm8kData | MathData):
        splits["train"] = problems.not_near(splits["train"], splits["test"], settings.quality, refused)
    seed, sizes = _held_out(settings)
    for split, size in sizes.items():
        if len(splits["train"]) <= size:
            raise JudgefreeError(
                f"data.{name}.{split}: {size} rows cannot be held out of {len(splits['train'])} training rows",
                "lower it, or look for missing rows in the source",
            )
        splits["train"], splits[split] = hold_out(splits["train"], size, seed, split)
    return {split: splits[split] for split in reversed(SPLITS) if split in splits}


def _apart(rows: list[Row], above: list[Row], refused: Quarantine) -> list[Row]:
    """Rows whose question does not stand in a split above."""
    met = overlaps([row.words for row in rows], [row.words for row in above])
    for index, other in met.items():
        same = "same text as" if rows[index].question == above[other].question else "same tokens as"
        refused.take(rows[index], f"{quarantine.OVERLAP}: {same} {above[other].split} row {above[other].id}")
    return [row for index, row in enumerate(rows) if index not in met]


def _held_out(settings: Settings) -> tuple[int, dict[str, int]]:
    """The seed, and rows by split, of what is held out of the training rows: splits that the source does not have."""
    if isinstance(settings, Gsm8kData | MathData | MathsTextData):
        return settings.seed, {"validation": settings.validation}
    if isinstance(settings, GovReportData) and settings.test and settings.validation:
        return settings.seed, {"test": settings.test, "validation": settings.validation}
    return 0, {}


def hold_out(rows: Sequence[Row], count: int, seed: int, split: str = "validation") -> tuple[list[Row], list[Row]]:
    """What is left of `rows` in its order, and `count` held-out rows: those whose id hashes lowest with the seed, in
    that order, so that any first part of them is a fair sample and no library's shuffle decides."""
    ranked = sorted(rows, key=lambda row: (stream_seed(split, seed, row.id), row.id))
    held = {row.id for row in ranked[:count]}
    return [row for row in rows if row.id not in held], ranked[:count]


def _sizes(split: str, settings: Settings, read: Mapping[str, int]) -> tuple[int, int]:
    """Least and greatest sound row count. A test split may not lose more than the allowed share of its own rows, which
    the share of all rows would hide."""
    if size := _held_out(settings)[1].get(split):
        return size, size
    share = 1 - settings.quality.max_quarantined_share if split == "test" else 0.0
    return max(1, math.ceil(share * read[split])), max(1, read[split])


def _facts(
    split: str, settings: Settings, splits: Mapping[str, Sequence[Row]], read: Mapping[str, int], refused: Quarantine
) -> dict[str, Any]:
    """The overlap that is left, counted afresh, and of problems the share of gold answers that parse among the rows read."""
    source = split if split in read else "train"  # a held-out row was read as a training row
    lost = refused.counts(source)
    without_gold = lost.get(NO_GOLD, 0) + lost.get(UNPARSED, 0)
    above = [row.words for other in SPLITS[: SPLITS.index(split)] for row in splits.get(other, ())]
    share = {} if isinstance(settings, Texts) else {"gold_parse_share": 1 - without_gold / max(1, read[source])}
    return {"split": split, **share, "overlap": len(overlaps([row.words for row in splits[split]], above))}


def _manifest(
    settings: Settings, sources: Sequence[Source], splits: Mapping[str, Sequence[Row]], refused: Quarantine
) -> dict[str, Any]:
    plain = settings.model_dump(mode="json", exclude_none=True)
    origin = {source.split: source.facts for source in sources}
    return {
        "kind": settings.kind,
        "key": key_of(plain, {split: facts.get("files", {}) for split, facts in origin.items()}),
        "rows": {split: len(rows) for split, rows in splits.items()},
        "rows_read": {source.split: len(source.rows) for source in sources},
        "quarantined": refused.counts(),
        "near_overlap": "equality only (generated text)"
        if isinstance(settings, Generated)
        else "equality only (texts)"
        if isinstance(settings, Texts)
        else "n-grams",
        "sources": origin,
        **(texts.facts(settings, splits) if isinstance(settings, Texts) else {}),
    }
