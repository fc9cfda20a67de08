"""Preference data: UltraFeedback binarized and hh-rlhf, as pairs of conversations and as instructions to train a policy on.

    pairs.parquet      id, split, prompt (messages up to the user's last), chosen, rejected
    train, validation, test .parquet     the single-turn instructions, each once, without an answer

Pairs of held-out instructions have split `validation`. No instruction of one split stands in another.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgefree.config_data import PreferenceData
from judgefree.data import checks
from judgefree.data.quarantine import SCHEMA as QUARANTINE
from judgefree.data.quarantine import Quarantine, records
from judgefree.data.rows import BadRow, check_texts, text_of
from judgefree.data.sources import Source, read
from judgefree.data.tables import COLUMNS, SCHEMA, write_parquet
from judgefree.episodes import stream_seed
from judgefree.errors import JudgefreeError
from judgefree.files import key_of, pretty_json, publish, seal, write_atomic
from judgefree.reward_model.pairs import PAIRS
from judgefree.reward_model.pairs import SCHEMA as PAIR_SCHEMA

Messages = list[dict[str, str]]
# By kind: the split, patterns in the hub's repository or a folder of its layout, patterns in the mirror.
PLACES = {
    "ultrafeedback": (
        ("train", ("data/train_prefs-*.parquet",), ("ultrafeedback/data/train_prefs-*.parquet",)),
        ("test", ("data/test_prefs-*.parquet",), ("ultrafeedback/data/test_prefs-*.parquet",)),
    ),
    "hh_rlhf": (
        ("train", ("*/train.jsonl.gz",), ("hh-rlhf/*_test.jsonl.gz",)),
    ),
}  # fmt: skip
_SPEAKER = re.compile(r"\n\n(Human|Assistant): ?")
_ROLES = {"Human": "user", "Assistant": "assistant"}


@dataclass(frozen=True)
class Preference:
    id: str
    split: str
    prompt: Messages
    chosen: str
    rejected: str
    source: str

    @property
    def question(self) -> str:
        """The whole prompt as one text, by which instructions are told apart."""
        return self.prompt[0]["content"] if len(self.prompt) == 1 else "\n\n".join(m["content"] for m in self.prompt)


def prepare_preferences(name: str, settings: PreferenceData, root: Path) -> None:
    """Make data/<name>, as data/prepare.py does for tasks with answers.

    Raises JudgefreeError when a source is missing or too many rows are faulty.
    """
    work = root / ".work" / "data" / name
    shutil.rmtree(work, ignore_errors=True)
    sources = load(settings, root)
    refused = Quarantine()
    rows = [row for source in sources for row in _accept(source, settings, refused)]
    rows = _apart(rows, refused)
    held = _held_out(rows, settings, name)
    rows = [Preference(**{**vars(row), "split": "validation"}) if row.question in held else row for row in rows]
    pairs = [_pair(row) for row in rows if row.split != "test"]
    write_parquet(work / PAIRS, pairs, PAIR_SCHEMA)
    splits = {
        split: _instructions([row for row in rows if row.split == split]) for split in ("train", "validation", "test")
    }
    for split, instructions in splits.items():
        if instructions:
            write_parquet(work / f"{split}.parquet", instructions, SCHEMA)
    write_parquet(work / "quarantine.parquet", records(refused.entries), QUARANTINE)
    rows_read = {source.split: len(source.rows) for source in sources}
    refused.enforce(
        name, sum(rows_read.values()), settings.quality.max_quarantined_share, f".work/data/{name}/quarantine.parquet"
    )
    verdict = _validate(splits, rows_read, settings) | {checks.PAIRS_PART: checks.validate_pairs(pairs)}
    write_atomic(work / "quality.json", pretty_json(verdict))
    checks.enforce(name, verdict, f".work/data/{name}/quality.json")
    origin = {source.split: source.facts for source in sources}
    plain = settings.model_dump(mode="json", exclude_none=True)
    seal(work, {
        "kind": settings.kind, "key": key_of(plain, {split: facts["files"] for split, facts in origin.items()}),
        "rows": {split: len(instructions) for split, instructions in splits.items() if instructions},
        "rows_read": rows_read, "quarantined": refused.counts(),
        "pairs": {split: sum(row.split == split for row in rows) for split in ("train", "validation")}, "sources": origin,
    })  # fmt: skip
    publish(work, root / "data" / name)


def _validate(
    splits: Mapping[str, list[dict[str, Any]]], rows_read: Mapping[str, int], settings: PreferenceData
) -> checks.Verdict:
    """The verdict on the instructions, which have no answer; none of a split stands in another, as many are held out as
    were asked for, and of each split that was read some are left. rows_read: by split of the source."""
    sizes = {split: (1, rows) for split, rows in rows_read.items()}
    sizes["validation"] = (settings.validation, settings.validation)
    there = {split: splits[split] for split in sizes}
    questions = {split: {row["question"] for row in rows} for split, rows in there.items()}
    facts = [
        {
            "split": split,
            "overlap": len(own & set().union(*(questions[other] for other in questions if other != split))),
        }
        for split, own in questions.items()
    ]
    return checks.validate(there, sizes, facts, settings.quality, referenced=False)


def load(settings: PreferenceData, root: Path) -> list[Source]:
    place = (settings.id, settings.revision)
    return [read(split, f"{settings.kind}/{split}", place, layouts, mirror, root)
            for split, layouts, mirror in PLACES[settings.kind]]  # fmt: skip


def parse(kind: str, fields: dict[str, Any]) -> tuple[Messages, str, str]:
    """Prompt, chosen and rejected response of a row. Raises BadRow for one that is no preference."""
    if kind == "hh_rlhf":
        sides = [dialogue(text_of(fields, side)) for side in ("chosen", "rejected")]
    else:
        sides = [_conversation(fields, side) for side in ("chosen", "rejected")]
    (prompt, chosen), (other, rejected) = sides
    if prompt != other:
        raise BadRow("different prompts: chosen and rejected answer different conversations")
    if chosen == rejected:
        raise BadRow("no preference: chosen and rejected are equal")
    return prompt, chosen, rejected


def dialogue(text: str) -> tuple[Messages, str]:
    """The messages of hh-rlhf's "\\n\\nHuman: ...\\n\\nAssistant: ..." and the last response."""
    parts = _SPEAKER.split(text)
    if parts[0].strip() or len(parts) < 5:
        raise BadRow("malformed dialogue: does not alternate between Human and Assistant")
    messages = [{"role": _ROLES[speaker], "content": said.strip()}
                for speaker, said in zip(parts[1::2], parts[2::2], strict=True)]  # fmt: skip
    return _split(messages)


def _conversation(fields: dict[str, Any], side: str) -> tuple[Messages, str]:
    """The messages of UltraFeedback's list of {role, content}."""
    said = fields.get(side)
    if not isinstance(said, list) or not all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in said):
        raise BadRow(f"wrong type: {side} is no list of messages")
    return _split([{"role": str(m.get("role")), "content": m["content"].strip()} for m in said])


def _split(messages: Messages) -> tuple[Messages, str]:
    roles = [message["role"] for message in messages]
    if len(roles) < 2 or len(roles) % 2 or any(role != ("user", "assistant")[i % 2] for i, role in enumerate(roles)):
        raise BadRow("malformed dialogue: user and assistant do not take turns")
    if empty := next((message["role"] for message in messages if not message["content"]), None):
        raise BadRow(f"empty: a message of the {empty}")
    return messages[:-1], messages[-1]["content"]


def _accept(source: Source, settings: PreferenceData, refused: Quarantine) -> list[Preference]:
    rows = []
    for raw in source.rows:
        row_id = f"{settings.kind}-{source.split}-{raw.place:06d}"
        try:
            if raw.fields is None:
                raise BadRow(raw.fault)
            prompt, chosen, rejected = parse(settings.kind, raw.fields)
            longest = max(len(text.split()) for text in (chosen, rejected))
            if settings.max_response_words and longest > settings.max_response_words:
                continue  # sound, and not asked for
            row = Preference(row_id, source.split, prompt, chosen, rejected, source.label)
            check_texts({"id": row_id, "question": row.question}, settings.quality)
        except BadRow as error:
            refused.add(row_id, source.split, str(error), raw.text)
        else:
            rows.append(row)
    return rows


def _apart(rows: Sequence[Preference], refused: Quarantine) -> list[Preference]:
    """Training rows without those whose instruction is a test instruction as well."""
    tested = {row.question for row in rows if row.split == "test"}
    kept = []
    for row in rows:
        if row.split == "train" and row.question in tested:
            refused.add(row.id, row.split, "overlap: same text as a test instruction", row.question)
        else:
            kept.append(row)
    return kept


def _held_out(rows: Sequence[Preference], settings: PreferenceData, name: str) -> set[str]:
    """The single-turn training instructions whose text hashes lowest with the seed."""
    single = {row.question for row in rows if row.split == "train" and len(row.prompt) == 1}
    if len(single) <= settings.validation:
        raise JudgefreeError(
            f"data.{name}.validation: {settings.validation} instructions cannot be held out of {len(single)}",
            "lower it, or look for missing rows in the source",
        )
    return set(
        sorted(single, key=lambda text: (stream_seed("validation", settings.seed, text), text))[: settings.validation]
    )


def _instructions(rows: Sequence[Preference]) -> list[dict[str, Any]]:
    """One row of the common form for every single-turn instruction."""
    first: dict[str, Preference] = {}
    for row in rows:
        if len(row.prompt) == 1:
            first.setdefault(row.question, row)
    return [{**dict.fromkeys(COLUMNS), "id": row.id, "question": row.question, "source": row.source}
            for row in first.values()]  # fmt: skip


def _pair(row: Preference) -> dict[str, Any]:
    return {"id": row.id, "split": row.split, "prompt": row.prompt, "chosen": row.chosen, "rejected": row.rejected}
