"""What is done to data whose answers are values: gold that does not parse leaves, so do questions with two answers, and
training questions that come near a test question."""

from collections import defaultdict
from collections.abc import Sequence

from judgefree.config_data import Quality
from judgefree.data import quarantine
from judgefree.data.leakage import Tokens, near_overlaps
from judgefree.data.quarantine import Quarantine
from judgefree.data.rows import UNPARSED, Row
from judgefree.scoring.answers import canonical_key
from judgefree.scoring.grader import Grader

GRADER_WORKERS, GRADER_TIMEOUT_S = 2, 20.0  # far above any sound answer: a slow machine must not change the data


def gold(row: Row) -> str:
    assert row.answer is not None, "a problem without gold is refused when it is parsed"
    return row.answer


def parsed_gold(rows: Sequence[Row], refused: Quarantine) -> list[Row]:
    """The rows whose gold answer the grader can read."""
    golds = sorted({gold(row) for row in rows})
    with Grader(GRADER_WORKERS, GRADER_TIMEOUT_S) as grader:
        parses = dict(zip(golds, grader.parses(golds), strict=True))
    for row in rows:
        if not parses[gold(row)]:
            refused.take(row, f"{UNPARSED}: {row.answer!r}")
    return [row for row in rows if parses[gold(row)]]


def consistent(rows: list[Row], refused: Quarantine) -> list[Row]:
    """Questions with one answer, once each. A repeated question with the same answer stays in a test split: it is part
    of the published benchmark. No row with a contradicted answer stays anywhere, for nobody knows which is right."""
    groups: dict[Tokens, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.words].append(row)
    key = {row.id: canonical_key(gold(row)) or gold(row) for row in rows}
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


def not_near(train: list[Row], test: list[Row], limits: Quality, refused: Quarantine) -> list[Row]:
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
