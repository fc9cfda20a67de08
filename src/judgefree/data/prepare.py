"""The data stage: raw rows in; split files, quarantine, verdict and manifest out.

Order matters and is this: rows that cannot be read or are faulty leave; gold answers that do not parse leave; then,
from the test split downwards, contradictory and repeated questions leave and whatever also stands in a split above;
then training rows that come near a test question; then validation is held out of what is left of training. So the
validation split is always whole, and nothing is ever taken from a test split because training holds it too.
"""

import math
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from judgefree.config_data import (
    ArithmeticData,
    Data,
    Gsm8kData,
    MathData,
    MawpsData,
    OrdersData,
    PreferenceData,
    Quality,
)
from judgefree.data import arithmetic, checks, gsm8k, mawps, orders, quarantine
from judgefree.data import math as math_data
from judgefree.data.leakage import Tokens, near_overlaps, overlaps, tokens
from judgefree.data.preferences import prepare_preferences
from judgefree.data.quarantine import Quarantine
from judgefree.data.rows import NO_GOLD, UNPARSED, BadRow, Row, check_texts
from judgefree.data.sources import RawRow, Source
from judgefree.data.tables import COLUMNS, SCHEMA, write_parquet
from judgefree.episodes import stream_seed
from judgefree.errors import JudgefreeError
from judgefree.files import canonical_json, key_of, pretty_json, publish, seal, write_atomic
from judgefree.reward_model.pairs import PAIRS
from judgefree.reward_model.pairs import SCHEMA as PAIR_SCHEMA
from judgefree.scoring.answers import canonical_key
from judgefree.scoring.grader import Grader

Settings = ArithmeticData | OrdersData | Gsm8kData | MathData | MawpsData

SPLITS = ("test", "validation", "train")  # the order in which a question belongs to one split only
GRADER_WORKERS, GRADER_TIMEOUT_S = 2, 20.0  # far above any sound answer: a slow machine must not change the data


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
    rows = _parsed_gold(rows, refused)
    read = {source.split: len(source.rows) for source in sources}
    splits = _arrange(name, settings, {split: [row for row in rows if row.split == split] for split in read}, refused)

    for split, kept in splits.items():
        records = [{column: getattr(row, column) for column in COLUMNS} for row in kept]
        write_parquet(work / f"{split}.parquet", records, SCHEMA)
    if isinstance(settings, ArithmeticData) and settings.pairs:
        write_parquet(work / PAIRS, arithmetic.preference_pairs(settings), PAIR_SCHEMA)
    write_parquet(work / "quarantine.parquet", quarantine.records(refused.entries), quarantine.SCHEMA)
    refused.enforce(name, sum(read.values()), settings.quality.max_quarantined_share, f"{shown}/quarantine.parquet")

    verdict = checks.validate(
        {split: [vars(row) for row in kept] for split, kept in splits.items()},
        {split: _sizes(split, settings, read) for split in splits},
        [_facts(split, splits, read, refused) for split in splits],
        settings.quality,
    )
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
        case ArithmeticData() | OrdersData():
            world = arithmetic.rows(settings) if isinstance(settings, ArithmeticData) else orders.rows(settings)
            return [
                Source(
                    split,
                    f"{settings.kind}/{split}",
                    [RawRow(place, canonical_json(row), row) for place, row in enumerate(rows)],
                    {"kind": "generator", "seed": settings.seed},
                )
                for split, rows in world.items()
            ], dict


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


def _parsed_gold(rows: Sequence[Row], refused: Quarantine) -> list[Row]:
    golds = sorted({row.answer for row in rows})
    with Grader(GRADER_WORKERS, GRADER_TIMEOUT_S) as grader:
        parses = dict(zip(golds, grader.parses(golds), strict=True))
    for row in rows:
        if not parses[row.answer]:
            refused.take(row, f"{UNPARSED}: {row.answer!r}")
    return [row for row in rows if parses[row.answer]]


def _arrange(
    name: str, settings: Settings, sound: Mapping[str, list[Row]], refused: Quarantine
) -> dict[str, list[Row]]:
    """The splits without contradictions, repetitions and overlap; with validation held out where it is asked for."""
    splits: dict[str, list[Row]] = {}
    above: list[Row] = []
    for split in SPLITS:
        if split in sound:
            splits[split] = _consistent(_apart(sound[split], above, refused), refused)
            above += splits[split]
    if isinstance(settings, Gsm8kData | MathData):
        train = _not_near(splits["train"], splits["test"], settings.quality, refused)
        if len(train) <= settings.validation:
            raise JudgefreeError(
                f"data.{name}.validation: {settings.validation} rows cannot be held out of {len(train)} training rows",
                "lower it, or look for missing rows in the source",
            )
        splits["train"], splits["validation"] = hold_out(train, settings.validation, settings.seed)
    return {split: splits[split] for split in reversed(SPLITS) if split in splits}


def _apart(rows: list[Row], above: list[Row], refused: Quarantine) -> list[Row]:
    """Rows whose question does not stand in a split above."""
    met = overlaps([row.words for row in rows], [row.words for row in above])
    for index, other in met.items():
        same = "same text as" if rows[index].question == above[other].question else "same tokens as"
        refused.take(rows[index], f"{quarantine.OVERLAP}: {same} {above[other].split} row {above[other].id}")
    return [row for index, row in enumerate(rows) if index not in met]


def _consistent(rows: list[Row], refused: Quarantine) -> list[Row]:
    """Questions with one answer, once each. A repeated question with the same answer stays in a test split: it is part
    of the published benchmark. No row with a contradicted answer stays anywhere, for nobody knows which is right."""
    groups: dict[Tokens, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.words].append(row)
    key = {row.id: canonical_key(row.answer) or row.answer for row in rows}
    rivals = {
        words: next((row for row in group if key[row.id] != key[group[0].id]), None) for words, group in groups.items()
    }
    kept = []
    for row in rows:
        group = groups[row.words]
        if rival := rivals[row.words]:
            other = rival if key[row.id] == key[group[0].id] else group[0]
            refused.take(row, f"contradictory answers: {row.answer!r} here, {other.answer!r} in row {other.id}")
        elif row is not group[0] and row.split != "test":
            refused.take(row, f"{quarantine.REPEATED}: as row {group[0].id}")
        else:
            kept.append(row)
    return kept


def _not_near(train: list[Row], test: list[Row], limits: Quality, refused: Quarantine) -> list[Row]:
    """Training rows that come near no test question, but for pairs with an id in the allow-list."""
    allowed = set(limits.near_overlap_allow)
    train_words, test_words = ([row.words for row in rows] for rows in (train, test))
    pairs = near_overlaps(train_words, test_words, limits.near_overlap_ngram, limits.near_overlap_share)
    near = {
        pair.train: pair
        for pair in sorted(pairs, key=lambda pair: pair.share)  # the nearest test question is the one that is named
        if not allowed & {train[pair.train].id, test[pair.test].id}
    }
    for index, pair in near.items():
        held = f"{pair.share:.0%} of test row {test[pair.test].id}"
        refused.take(train[index], f"{quarantine.NEAR}: holds {held}")
    return [row for index, row in enumerate(train) if index not in near]


def hold_out(rows: Sequence[Row], count: int, seed: int) -> tuple[list[Row], list[Row]]:
    """What is left of `rows` in its order, and `count` held-out rows: those whose id hashes lowest with the seed, in
    that order, so that any first part of them is a fair sample and no library's shuffle decides."""
    ranked = sorted(rows, key=lambda row: (stream_seed("validation", seed, row.id), row.id))
    held = {row.id for row in ranked[:count]}
    return [row for row in rows if row.id not in held], ranked[:count]


def _sizes(split: str, settings: Settings, read: Mapping[str, int]) -> tuple[int, int]:
    """Least and greatest sound row count. A test split may not lose more than the allowed share of its own rows, which
    the share of all rows would hide."""
    if split == "validation" and isinstance(settings, Gsm8kData | MathData):
        return settings.validation, settings.validation
    share = 1 - settings.quality.max_quarantined_share if split == "test" else 0.0
    return max(1, math.ceil(share * read[split])), max(1, read[split])


def _facts(
    split: str, splits: Mapping[str, Sequence[Row]], read: Mapping[str, int], refused: Quarantine
) -> dict[str, Any]:
    """The share of gold answers that parse among the rows read, and the overlap that is left, counted afresh."""
    source = split if split in read else "train"  # a held-out row was read as a training row
    lost = refused.counts(source)
    without_gold = lost.get(NO_GOLD, 0) + lost.get(UNPARSED, 0)
    above = [row.words for other in SPLITS[: SPLITS.index(split)] for row in splits.get(other, ())]
    return {
        "split": split,
        "gold_parse_share": 1 - without_gold / max(1, read[source]),
        "overlap": len(overlaps([row.words for row in splits[split]], above)),
    }


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
        if isinstance(settings, ArithmeticData | OrdersData)
        else "n-grams",
        "sources": origin,
    }
