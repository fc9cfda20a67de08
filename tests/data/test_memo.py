"""The world of memos against a reader who knows its names, and counts by hand."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgefree.bases.scratch import build_tokenizer
from judgefree.config_texts import MemoData, TextQuality
from judgefree.data import memo
from judgefree.data.memo import FACTS, Memo, faults, masked, summarised, written
from judgefree.errors import JudgefreeError
from judgefree.prompting import fill
from judgefree.rlsvr.game import TEXTS
from judgefree.scoring.votes import read_vote
from judgefree.texts import check_texts, read_texts

QUALITY = TextQuality(max_quarantined_share=0.0, min_question_words=5, max_question_chars=2000, max_answer_chars=200)
OMIT = {"agency": 0.1, "year": 0.5, "verdict": 0.4}
LESSONS = {"spy": 0.25, "detect": 0.4, "mask": 0.3, "invent": 0.25, "check": 0.7, "abstain": 0.1, "players": [3, 5]}
TOP = 40


def setting(**changes):
    given = {"kind": "memo", "seed": 0, "train": 400, "validation": 30, "test": 60, "min_facts": 4, "max_facts": 6,
             "fillers": 2, "max_value": TOP, "omit": OMIT, "slip": 0.2, "quality": QUALITY}  # fmt: skip
    return MemoData.model_validate({**given, **changes})


@pytest.fixture(scope="module")
def bare():
    return memo.rows(setting())


@pytest.fixture(scope="module")
def lessons():
    return memo.rows(setting(seed=1, train=1200, validation=5, test=5, lessons=LESSONS))


def kind_of(word):
    """By the word alone: no value is of two kinds."""
    if word.isdigit():
        return "amount" if int(word) <= TOP else "year"
    return next((kind for kind, names in memo.NAMES.items() if word in names), None)


def read(text):
    """What a reader finds in a memo or in a summary."""
    words = re.findall(r"[^\s.]+", text)
    return {kind: word for word in words if (kind := kind_of(word))}


def all_rows(rows):
    return [row for split in rows.values() for row in split]


def test_the_reference_is_what_the_memo_says_in_one_order(bare):
    lengths = Counter()
    for row in all_rows(bare):
        found = read(row["question"])
        assert row["answer"] == " ".join(found[kind] for kind in FACTS if kind in found)
        assert len(re.findall(r"\.", row["question"])) == len(found) + 2
        lengths[len(found)] += 1
    assert set(lengths) == {4, 5, 6} and min(lengths.values()) > 0.25 * lengths.total()


def test_no_value_is_said_by_any_other_sentence():
    names = [name for names in memo.NAMES.values() for name in names]
    assert len(set(names)) == len(names)
    texts = [sentence.replace("{value}", "") for several in memo.SENTENCES.values() for sentence in several]
    assert not any(read(text) for text in [*texts, *memo.FILLERS, memo.PLACEHOLDER, "summary spy"])
    sentences = [sentence for several in memo.SENTENCES.values() for sentence in several] + list(memo.FILLERS)
    assert len(set(sentences)) == len(sentences)


def test_no_memo_stands_in_two_splits_whatever_the_seed(bare, lessons):
    rows = all_rows(bare)
    assert len({row["question"] for row in rows}) == len({row["id"] for row in rows}) == 490
    held = {row["question"] for split in ("validation", "test") for row in bare[split]}
    taught = {row["question"].split("\n")[0] for row in lessons["train"]}
    assert len(taught) == 1200 and not taught & held


def test_the_same_settings_give_the_same_rows_and_a_split_depends_on_its_own_alone(bare):
    assert json.dumps(memo.rows(setting())) == json.dumps(bare)
    other = memo.rows(setting(train=50, validation=5, omit={}, slip=0.0))
    assert other["test"] == bare["test"] and other["validation"] == bare["validation"][:5]
    for new, old in zip(other["train"], bare["train"], strict=False):
        assert new == {**old, "demonstration": old["answer"]}


def test_demonstrations_leave_facts_out_and_slip_as_often_as_they_should(bare):
    left_out, slipped = Counter(), Counter()
    said = Counter()
    for row in bare["train"]:
        facts, named = read(row["question"]), read(row["demonstration"])
        assert named and named.keys() <= facts.keys()
        assert row["demonstration"] == written(named)
        for kind, value in facts.items():
            said[kind] += 1
            left_out[kind] += kind not in named
            slipped[kind in named and named[kind] != value] += kind in named
    for kind in FACTS:
        assert left_out[kind] / said[kind] == pytest.approx(OMIT.get(kind, 0.0), abs=0.08)
    assert slipped[True] / slipped.total() == pytest.approx(0.2, abs=0.04)
    assert all(row["demonstration"] is None for split in ("validation", "test") for row in bare[split])


MEMO = Memo((("year", "work began in 2009."), (None, "a map is attached."), ("agency", "we looked at health.")),
            {"agency": "health", "year": "2009"})  # fmt: skip


def test_a_masked_memo_worked_out_by_hand():
    """12 words, of which a quarter, 3, are hidden."""
    seen = {}
    for seed in range(200):
        text, visible = masked(MEMO, 0.25, random.Random(seed))
        seen[text] = dict(visible)
    assert len(seen) == 10  # starts
    assert seen["* * * 2009. a map is attached. we looked at health."] == MEMO.facts
    assert seen["work * * * a map is attached. we looked at health."] == {"agency": "health"}
    assert seen["work began in 2009. a map is attached. we * * *"] == {"year": "2009"}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.05, 1.0))
def test_a_view_hides_its_share_and_shows_what_a_reader_finds(seed, share):
    rng = random.Random(seed)
    one = memo.draw(setting(), rng)
    text, visible = masked(one, share, rng)
    words, whole = text.split(), one.source.split()
    hidden = [place for place, word in enumerate(words) if word == "*"]
    assert len(hidden) == max(1, round(share * len(whole))) == hidden[-1] - hidden[0] + 1
    assert [word for word in words if word != "*"] == [w for place, w in enumerate(whole) if place not in hidden]
    assert visible == read(text) and written(one.facts) == one.reference


def test_a_spy_names_what_it_sees_and_invents_now_and_then():
    rng = random.Random(0)
    whole = setting(omit={}, slip=0.0)
    named = [summarised(whole, {"agency": "health"}, ["year"], 0.25, rng) for _ in range(400)]
    assert all(one["agency"] == "health" and one.keys() <= {"agency", "year"} for one in named)
    assert sum("year" in one for one in named) / 400 == pytest.approx(0.25, abs=0.07)
    silent = setting(omit=dict.fromkeys(FACTS, 1.0), slip=0.0)
    assert summarised(silent, {"agency": "health"}, [], 0.0, rng) == {"agency": "health"}
    assert summarised(silent, {}, ["year"], 0.0, rng).keys() == {"year"}


@pytest.mark.parametrize(
    ("output", "whole", "count"),
    [
        ({"agency": "health", "year": "2009"}, True, 0),
        ({"agency": "health"}, True, 1),
        ({"agency": "labor", "year": "2009"}, True, 1),
        ({"region": "east"}, True, 3),
        ({"agency": "health", "year": "2009", "region": "east"}, True, 1),
        ({"agency": "health", "year": "2009", "region": "east"}, False, 0),
    ],
)
def test_faults_counted_by_hand(output, whole, count):
    """In a view with holes what is not there may have been in the hole."""
    assert faults(output, MEMO.facts, whole) == count


def roles(rows):
    """(role, source, percentage or listed outputs, row) of every lesson."""
    for row in rows:
        if found := re.fullmatch(r"([^\n]+)\n((?:[^\n]+ : \d\n)+)spy [?]", row["question"]):
            yield "detector", found[1], re.findall(r"([^\n]+) : \d\n", found[2]), row
        elif found := re.fullmatch(r"([^\n]+)\nspy (\d+)\nsummary", row["question"]):
            yield "spy", found[1], found[2], row
        else:
            yield "civilian", row["question"].removesuffix("\nsummary"), None, row


def test_lessons_have_their_roles_and_do_what_is_asked(lessons):
    counts, players = Counter(), Counter()
    fair = Counter()
    for role, source, detail, row in roles(lessons["train"]):
        counts[role] += 1
        named = read(row["demonstration"])
        if role == "civilian":
            assert "*" not in source and read(source).keys() >= named.keys()
        elif role == "spy":
            assert "* *" in source and detail == "30"
        else:
            players[len(detail)] += 1
            vote = read_vote(row["demonstration"], len(detail))
            assert vote.kind in ("vote", "na")
            view, whole = read(source), "*" not in source
            found = [faults(read(one), view, whole) for one in detail]
            fair["na" if vote.number is None else found[vote.number - 1] == max(found)] += 1
    shares = {role: count / 1200 for role, count in counts.items()}
    assert shares == pytest.approx({"civilian": 0.35, "spy": 0.25, "detector": 0.4}, abs=0.05)
    assert set(players) == {3, 5}
    assert fair["na"] / fair.total() == pytest.approx(0.1, abs=0.05)
    # 0.7 by checking; of the 0.2 that are for anyone, at least a fifth to a third are for the worst too.
    assert 0.7 < fair[True] / fair.total() < 0.85


def test_lessons_are_asked_as_the_spy_game_asks(lessons):
    """The words stand in the prompt file, which a user may edit, and in the generator, which DVC watches."""
    texts = read_texts(Path(__file__).parents[2], "prompts/spyrl-memo.yaml", "prompts")
    check_texts(texts, TEXTS, "prompts/spyrl-memo.yaml")
    assert texts["placeholder"] == memo.PLACEHOLDER
    for role, source, detail, row in roles(lessons["train"]):
        if role == "civilian":
            asked = fill(texts["civilian"], source=source)
        elif role == "spy":
            asked = fill(texts["spy"], source=source, percent=detail)
        else:
            listed = [fill(texts["output"], number=str(n), text=text) for n, text in enumerate(detail, 1)]
            asked = fill(texts["detector"], source=source, outputs="\n".join(listed))
        assert row["question"] == asked
    for row in lessons["validation"] + lessons["test"]:
        assert row["question"].endswith("\nsummary") and row["demonstration"] is None


def test_the_vocabulary_is_what_the_texts_use_and_reads_them_back(lessons):
    words = memo.vocabulary(TOP)
    tokenizer = build_tokenizer(words, 256)
    used = {"\n", "?", ":", memo.PLACEHOLDER, *map(str, range(TOP + 1))}
    for row in lessons["train"]:
        for text in (row["question"], row["answer"], row["demonstration"]):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            used |= set(tokenizer.convert_ids_to_tokens(ids))
        assert tokenizer.decode(tokenizer(row["demonstration"])["input_ids"]) == row["demonstration"]
    assert set(words) == used and len(words) == len(set(words))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_facts": 6, "max_facts": 5}, "min_facts is above max_facts"),
        ({"lessons": {**LESSONS, "spy": 0.7}}, "spy [+] detect is more than 1; lower one"),
        ({"lessons": {**LESSONS, "check": 0.95}}, "check [+] abstain is more than 1; lower one"),
        ({"lessons": {**LESSONS, "mask": 0.5}}, "max_value: the percentage lessons.mask must be a number"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        setting(**changes)


def test_a_world_too_small_for_the_rows_is_refused_with_the_fix(monkeypatch):
    monkeypatch.setattr(
        "judgefree.data.generated.DRAWS_PER_ROW", 1
    )  # the first memo of another split is then one too many
    with pytest.raises(JudgefreeError, match="kind memo: no new train question in 1 draws") as caught:
        memo.rows(setting())
    assert "raise max_facts" in caught.value.fix
