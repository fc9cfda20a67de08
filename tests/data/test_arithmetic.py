"""The generated world against an oracle that reads the texts as a pupil would: line by line, number by number."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from judgefree.config_data import ArithmeticData, Quality
from judgefree.data import arithmetic
from judgefree.data.generated import home
from judgefree.errors import JudgefreeError

QUALITY = Quality(
    max_quarantined_share=0.01,
    min_gold_parse_share=0.995,
    max_question_chars=8000,
    max_answer_chars=400,
    near_overlap_ngram=13,
    near_overlap_share=0.5,
)


def settings(**changes):
    given = {
        "kind": "arithmetic", "seed": 0, "train": 1500, "validation": 100, "test": 300, "min_steps": 1, "max_steps": 3,
        "max_value": 15, "templates": ["chain", "story"], "quality": QUALITY,
        "demonstrations": {"right": 0.4, "slip": 0.2, "skip": 0.25},
    }  # fmt: skip
    return ArithmeticData.model_validate({**given, **changes})


@pytest.fixture(scope="module")
def world():
    return arithmetic.rows(settings())


def read(text):
    """[(left, sign, right, claimed)] of the lines before the marker, and the marked number."""
    *lines, last = text.split("\n")
    steps = [re.fullmatch(r"(\d+) ([+-]) (\d+) = (\d+)", line).groups() for line in lines]
    return [(int(a), sign, int(b), int(c)) for a, sign, b, c in steps], int(re.fullmatch(r"#### (\d+)", last)[1])


def true(step):
    left, sign, right, claimed = step
    return claimed == (left + right if sign == "+" else left - right)


def all_rows(world):
    return [row for split in world.values() for row in split]


def test_every_solution_is_right_step_by_step_and_within_range(world):
    for row in all_rows(world):
        steps, answer = read(row["solution"])
        assert 1 <= len(steps) <= 3
        assert all(true(step) for step in steps)
        assert all(after[0] == before[3] for before, after in zip(steps, steps[1:], strict=False))
        assert answer == steps[-1][3] == int(row["answer"])
        assert all(0 <= number <= 15 for left, _, right, claimed in steps for number in (left, right, claimed))


def test_a_solution_belongs_to_its_question(world):
    forms = Counter()
    for row in all_rows(world):
        steps, answer = read(row["solution"])
        asked = [int(number) for number in re.findall(r"\d+", row["question"])]
        assert asked == [steps[0][0], *(right for _, _, right, _ in steps)]
        if chain := re.fullmatch(r"([\d +-]+) = \?", row["question"]):
            assert eval(chain[1]) == answer
        forms["chain" if chain else "story", len(steps)] += 1
    assert forms.keys() == {(kind, steps) for kind in ("chain", "story") for steps in (1, 2, 3)}


def test_a_story_adds_and_takes_away_as_its_words_say(world):
    more, less = (
        re.compile(r"\d+ more\b"),
        re.compile(r"\b(loses|sells|gives \d+ to|takes|spends|pays \w+ \d+\.|fewer than)"),
    )
    for row in all_rows(world):
        if row["question"].endswith("= ?"):
            continue
        sentences = re.findall(r"[^.?]+[.?]", row["question"])
        signs = [sign for _, sign, _, _ in read(row["solution"])[0]]
        assert len(sentences) == len(signs) + 2
        for sentence, sign in zip(sentences[1:-1], signs, strict=True):
            assert bool(more.search(sentence)) == (sign == "+"), sentence
            assert bool(less.search(sentence)) == (sign == "-"), sentence
        assert not re.search(rf"\b[01] ({'|'.join(arithmetic.THINGS)}|dollars)", row["question"]), (
            "a plural after 0 or 1"
        )


def test_questions_and_ids_are_unique_over_all_splits(world):
    rows = all_rows(world)
    assert {split: len(rows) for split, rows in world.items()} == {"train": 1500, "validation": 100, "test": 300}
    assert len({" ".join(row["question"].casefold().split()) for row in rows}) == 1900
    assert len({row["id"] for row in rows}) == 1900


def test_rows_depend_on_the_seed_alone(world):
    assert arithmetic.rows(settings()) == world
    other = arithmetic.rows(settings(seed=1))
    shared = {row["question"] for row in other["train"]} & {row["question"] for row in world["train"]}
    assert len(shared) < 700  # short chains are few and come back; the rest is new


def test_a_split_does_not_depend_on_the_size_of_another_or_on_the_demonstrations(world):
    small = arithmetic.rows(settings(train=100, validation=7, demonstrations={"right": 1.0, "slip": 0.0, "skip": 0.0}))
    assert small["test"] == world["test"]
    assert small["validation"] == world["validation"][:7]
    for new, old in zip(small["train"], world["train"], strict=False):
        assert new == {**old, "demonstration": old["solution"]}


def test_only_training_rows_have_demonstrations_of_the_wanted_kinds(world):
    assert all(row["demonstration"] is None for split in ("validation", "test") for row in world[split])
    kinds = Counter()
    for row in world["train"]:
        steps, answer = read(row["demonstration"])
        wrong = sum(not true(step) for step in steps)
        whole, gold = read(row["solution"])
        if row["demonstration"] == row["solution"]:
            kinds["right"] += 1
        elif wrong == 1 and len(steps) == len(whole):
            kinds["slip"] += 1
        elif not wrong and len(steps) == len(whole) - 1 and (steps or answer == whole[0][0]):
            kinds["skip"] += 1
        else:
            assert not steps, row
            kinds["guess"] += 1
    # A guess that happens to be the start of a one-step problem counts as a skip here: at most 0.15 / 3 / 16.
    shares = {kind: count / 1500 for kind, count in kinds.items()}
    assert shares == pytest.approx({"right": 0.4, "slip": 0.2, "skip": 0.25, "guess": 0.15}, abs=0.05)


@st.composite
def problems(draw):
    top = draw(st.integers(2, 30))
    value = start = draw(st.integers(0, top))
    moves = []
    for _ in range(draw(st.integers(1, 5))):
        moves.append(draw(st.integers(-value, top - value).filter(bool)))
        value += moves[-1]
    return start, moves, top


@given(problems(), st.integers(0, 2**32))
def test_faulty_demonstrations_have_exactly_their_fault(problem, seed):
    start, moves, top = problem
    made = {
        kind: read(arithmetic.demonstration(start, moves, kind, random.Random(seed), top))
        for kind in ("right", "slip", "skip", "extra", "guess")
    }
    assert made["right"] == read(arithmetic.solution(start, moves))
    for steps, answer in made.values():
        assert all(0 <= number <= top for left, _, _, claimed in steps for number in (left, claimed)) and answer <= top
        assert all(after[0] == before[3] for before, after in zip(steps, steps[1:], strict=False))
        assert answer == (steps[-1][3] if steps else answer)

    steps, answer = made["slip"]
    assert len(steps) == len(moves) and sum(not true(step) for step in steps) == 1
    assert 1 <= abs(answer - start - sum(moves)) <= 3
    steps, answer = made["skip"]
    assert all(true(step) for step in steps)
    left_out = Counter(moves) - Counter(right if sign == "+" else -right for _, sign, right, _ in steps)
    assert left_out.total() == 1 and answer == start + sum(moves) - next(left_out.elements())
    steps, answer = made["extra"]
    assert steps[:-1] == made["right"][0] and true(steps[-1]) and answer != start + sum(moves)
    assert made["guess"][0] == []


def test_an_extra_step_worked_out_by_hand():
    # 0 .. 3, from 1 + 2 = 3 there is only down.
    texts = {arithmetic.demonstration(1, [2], "extra", random.Random(seed), 3) for seed in range(50)}
    assert texts == {f"1 + 2 = 3\n3 - {down} = {3 - down}\n#### {3 - down}" for down in (1, 2, 3)}


def test_extra_steps_take_their_share_and_leave_the_questions_as_they_are():
    shares = {"right": 0.4, "slip": 0.0, "skip": 0.1}
    without, some = (
        arithmetic.rows(settings(train=1500, validation=1, test=1, demonstrations={**shares, **more}))["train"]
        for more in ({}, {"extra": 0.3})
    )
    assert [row["question"] for row in without] == [row["question"] for row in some]
    longer = sum(row["demonstration"].count("\n") > row["solution"].count("\n") for row in some)
    assert longer / 1500 == pytest.approx(0.3, abs=0.05)
    assert not any(row["demonstration"].count("\n") > row["solution"].count("\n") for row in without)


def test_shares_beyond_one_are_refused():
    with pytest.raises(ValidationError, match=r"right \+ slip \+ skip \+ extra is more than 1"):
        settings(demonstrations={"right": 0.5, "slip": 0.1, "skip": 0.2, "extra": 0.3})


def test_a_slip_and_its_way_worked_out_by_hand():
    # 0 .. 3 and 1 + 2: the only other ends within reach are 0, 1 and 2.
    texts = {arithmetic.demonstration(1, [2], "slip", random.Random(seed), 3) for seed in range(50)}
    assert texts == {f"1 + 2 = {end}\n#### {end}" for end in (0, 1, 2)}
    # 5 - 5 + 2 in 0 .. 5: without the first step the value would leave the range, so the second is left out.
    texts = {arithmetic.demonstration(5, [-5, 2], "skip", random.Random(seed), 5) for seed in range(20)}
    assert texts == {"5 - 5 = 0\n#### 0"}


def test_the_vocabulary_is_what_the_texts_use():
    rows = arithmetic.rows(settings(train=6000, validation=1, test=1))["train"]
    texts = [row[column] for row in rows for column in ("question", "solution", "demonstration")]
    used = {word for text in texts for word in re.findall(r"\n|[.?]|[^\s.?]+", text)}
    words = arithmetic.vocabulary(15)
    assert set(words) == used
    assert len(words) == len(set(words))


def test_one_step_stories_only():
    rows = arithmetic.rows(settings(max_steps=1, templates=["story"], train=1000))["train"]
    assert all(row["solution"].count("\n") == 1 and row["question"].count(".") == 2 for row in rows)


def test_a_world_too_small_for_the_rows_is_refused_with_the_fix():
    with pytest.raises(JudgefreeError, match=r"no new train question .* after \d+ different ones") as caught:
        arithmetic.rows(settings(templates=["chain"], max_steps=1, max_value=5, test=2, validation=1))
    assert "fewer rows" in caught.value.fix


def test_held_out_pairs_ask_what_no_training_row_asks():
    world = settings(templates=["chain"], max_steps=2, pairs={"train": 100, "validation": 30})
    pairs = arithmetic.preference_pairs(world)
    by_split = {split: [pair["prompt"][0]["content"] for pair in pairs if pair["split"] == split]
                for split in ("train", "validation")}  # fmt: skip
    assert [len(questions) for questions in by_split.values()] == [100, 30]
    for split, questions in by_split.items():
        assert {home("arithmetic", question) for question in questions} == {split}
    fewer = settings(templates=["chain"], max_steps=2, pairs={"train": 100, "validation": 1})
    assert arithmetic.preference_pairs(fewer)[:100] == pairs[:100]
