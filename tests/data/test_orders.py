"""The world of orders against Python's own precedence, and against a reader who takes a text sign by sign."""

import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgefree.config_data import OrdersData, Quality
from judgefree.data import expressions, orders
from judgefree.data.expressions import ALL_RULES, FAMILIES, Step, work_out
from judgefree.errors import JudgefreeError
from judgefree.methods import srrl
from judgefree.prompting import fill
from judgefree.texts import check_texts, read_texts

QUALITY = Quality(
    max_quarantined_share=0.01,
    min_gold_parse_share=0.995,
    max_question_chars=8000,
    max_answer_chars=400,
    near_overlap_ngram=13,
    near_overlap_share=0.5,
)
LESSONS = {
    "guided": 0.3,
    "review": 0.2,
    "memory": 0.2,
    "fitting": 0.6,
    "follow": 0.8,
    "insight": 0.4,
    "copy_memory": 0.5,
}
SHARES = {"plain": 0.4, "times": 0.15, "over": 0.15, "brackets": 0.15, "nested": 0.15}
TOP = 20


def world(**changes):
    given = {"kind": "orders", "seed": 0, "train": 500, "validation": 30, "test": 60, "max_value": TOP,
             "families": SHARES, "ordered": 0.1, "slip": 0.2, "quality": QUALITY}  # fmt: skip
    return orders.rows(OrdersData.model_validate({**given, **changes}))


@pytest.fixture(scope="module")
def bare():
    return world()


@pytest.fixture(scope="module")
def lessons():
    return world(seed=1, train=1200, validation=1, test=1, lessons=LESSONS)


def by_python(question):
    """The value of "2 + 3 * 4 = ?", or of one without brackets from left to right, exactly."""
    return eval(re.sub(r"(\d+)", r"Fraction(\1)", question.removesuffix(" = ?")), {"Fraction": Fraction})


def by_habit(question):
    tokens = [token for token in question.removesuffix(" = ?").split() if token not in ("(", ")")]
    value = Fraction(tokens[0])
    for sign, number in zip(tokens[1::2], tokens[2::2], strict=True):
        value = {"+": value + int(number), "-": value - int(number), "*": value * int(number)}.get(
            sign, value / int(number)
        )
    return value


def family_of(question):
    """By the signs alone, as a reader would sort them."""
    if by_python(question) == by_habit(question):
        return "plain"
    if "(" in question:
        later = question.replace(" ", "")
        return "nested" if re.search(r"[+-]\d+\*\(|[+-]\(\d+[+-]\d+\)\*", later) else "brackets"
    return "times" if "*" in question else "over"


def read(text):
    """Steps of a text, and the marked number."""
    *lines, last = text.split("\n")
    steps = [re.fullmatch(r"(\d+) ([-+*/]) (\d+) = (\d+)", line).groups() for line in lines]
    return [Step(int(a), sign, int(b), int(c)) for a, sign, b, c in steps], int(re.fullmatch(r"#### (\d+)", last)[1])


def true(step):
    exact = {"+": step.left + step.right, "-": step.left - step.right, "*": step.left * step.right}
    return step.result == (exact[step.sign] if step.sign in exact else Fraction(step.left, step.right))


def all_rows(rows):
    return [row for split in rows.values() for row in split]


def test_answers_are_pythons_and_solutions_right_step_by_step(bare):
    for row in all_rows(bare):
        steps, answer = read(row["solution"])
        assert answer == steps[-1].result == int(row["answer"]) == by_python(row["question"])
        assert all(true(step) for step in steps)
        assert len(steps) == sum(row["question"].count(sign) for sign in "+-*/")


def test_every_family_has_its_share_and_habit_is_wrong_in_all_but_one(bare):
    found = Counter(family_of(row["question"]) for row in bare["train"])
    assert {name: count / 500 for name, count in found.items()} == pytest.approx(SHARES, abs=0.05)


def test_every_shape_is_drawn():
    rng = random.Random(0)
    for family in FAMILIES.values():
        drawn = {" ".join("n" if isinstance(token, int) else token for token in expressions.draw(family, TOP, rng))
                 for _ in range(200)}  # fmt: skip
        assert drawn == set(family.shapes)


def test_no_number_leaves_the_range_and_no_habit_is_out_of_reach(bare, lessons):
    for row in all_rows(bare) + all_rows(lessons):
        texts = (row["question"], row["solution"], row["demonstration"] or "")
        assert all(int(number) <= TOP for text in texts for number in re.findall(r"\d+", text))
        assert not any(re.search(r"-\d", text) for text in texts)
    for row in all_rows(bare):
        value = by_habit(row["question"])
        assert value.denominator == 1 and 0 <= value <= TOP


def test_no_question_stands_in_two_splits_and_lessons_are_of_training_expressions(bare, lessons):
    rows = all_rows(bare)
    assert len({row["question"] for row in rows}) == len({row["id"] for row in rows}) == 590
    held = {row["question"] for split in ("validation", "test") for row in bare[split]}
    asked = {line for row in lessons["train"] for line in row["question"].split("\n") if line.endswith("= ?")}
    assert len(asked) > 400 and not asked & held
    assert len({row["question"] for row in lessons["train"]}) == 1200


def test_a_split_depends_on_its_own_settings_alone(bare):
    small = world(train=60, validation=5, ordered=1.0, slip=0.0)
    assert small["test"] == bare["test"] and small["validation"] == bare["validation"][:5]
    for new, old in zip(small["train"], bare["train"], strict=False):
        assert new == {**old, "demonstration": old["solution"]}


def test_bare_demonstrations_go_by_habit_seldom_by_order_and_slip_now_and_then(bare):
    kinds: Counter[str] = Counter()
    for row in bare["train"]:
        if family_of(row["question"]) == "plain":
            continue
        steps, answer = read(row["demonstration"])
        wrong = sum(not true(step) for step in steps)
        assert wrong <= 1
        expected = {by_python(row["question"]): "right", by_habit(row["question"]): "habit"}
        kinds["slip" if wrong else expected[answer]] += 1
    shares = {kind: count / kinds.total() for kind, count in kinds.items()}
    assert shares == pytest.approx({"right": 0.08, "habit": 0.72, "slip": 0.2}, abs=0.07)
    assert all(row["demonstration"] is None for split in ("validation", "test") for row in bare[split])


def roles(rows):
    """(role, guideline or remembered one, expression, attempt, feedback, row) of every lesson."""
    texts = "|".join(family.guideline for family in FAMILIES.values())
    for row in rows:
        if found := re.fullmatch(rf"review\n(?:({texts})\n)?([^\n]+ = \?)\n(.*)\n(right|wrong)", row["question"], re.S):
            yield "memory" if found[1] else "review", *found.groups(), row
        elif found := re.fullmatch(rf"({texts})\n([^\n]+ = \?)", row["question"]):
            yield "guided", *found.groups(), None, None, row
        else:
            yield "bare", None, row["question"], None, None, row


def test_lessons_have_their_roles_and_are_done_as_often_as_they_should(lessons):
    counts: Counter[str] = Counter()
    tallies = {name: [0, 0] for name in ("fitting", "follow", "insight", "copied")}

    def count(name, hit):
        tallies[name][0] += hit
        tallies[name][1] += 1

    for role, guideline, question, attempt, feedback, row in roles(lessons["train"]):
        counts[role] += 1
        own = FAMILIES[family_of(question)].guideline
        assert int(row["answer"]) == by_python(question)
        if role == "guided":
            count("fitting", guideline == own)
            steps, answer = read(row["demonstration"])
            if guideline == own != "left to right" and all(map(true, steps)):
                count("follow", answer == by_python(question))
        elif role in ("review", "memory"):
            named = re.fullmatch(r"<prompt> (.+) </prompt>", row["demonstration"])[1]
            assert (feedback == "right") == (read(attempt)[1] == by_python(question))
            if role == "review":
                count("insight", named == own)
            elif guideline != own:
                count("copied", named == guideline)
    shares = {role: number / 1200 for role, number in counts.items()}
    assert shares == pytest.approx({"guided": 0.3, "review": 0.2, "memory": 0.2, "bare": 0.3}, abs=0.04)
    # A review that does not copy names another guideline by chance: 0.5 + 0.5 * 0.6 / 4.
    found = {name: hits / of for name, (hits, of) in tallies.items()}
    assert found == pytest.approx({"fitting": 0.6, "follow": 0.8, "insight": 0.4, "copied": 0.575}, abs=0.1)


def test_lessons_are_asked_as_self_review_asks(lessons):
    """The words stand in the prompt file, which a user may edit, and in the generator, which DVC watches."""
    texts = read_texts(Path(__file__).parents[2], "prompts/srrl-tiny.yaml", "prompts")
    check_texts(texts, srrl.TEXTS, "prompts/srrl-tiny.yaml")
    for role, guideline, question, attempt, feedback, row in roles(lessons["train"]):
        if role == "guided":
            asked = fill(texts["second"], guidelines=guideline, question=question)
        elif role == "bare":
            asked = question
        else:
            asked = fill(
                texts["review"],
                question=question,
                attempt=attempt,
                feedback=texts["feedback_solved" if read(attempt)[1] == by_python(question) else "feedback"],
                memory=fill(texts["memory"], review=guideline) if role == "memory" else "",
            )
            assert feedback in (texts["feedback"], texts["feedback_solved"])
            named = srrl.guidelines(row["demonstration"])
            assert named in {family.guideline for family in FAMILIES.values()}
        assert row["question"] == asked


@pytest.mark.parametrize(
    ("text", "rules", "steps"),
    [
        ("2 + 3 * 4", {"multiply"}, ["3 * 4 = 12", "2 + 12 = 14"]),
        ("2 + 3 * 4", set(), ["2 + 3 = 5", "5 * 4 = 20"]),
        ("2 + 3 * 4", {"divide", "brackets"}, ["2 + 3 = 5", "5 * 4 = 20"]),
        ("9 - ( 2 + 3 )", {"brackets"}, ["2 + 3 = 5", "9 - 5 = 4"]),
        ("9 - ( 2 + 3 )", {"multiply"}, ["9 - 2 = 7", "7 + 3 = 10"]),
        ("8 - 6 / 2", {"divide"}, ["6 / 2 = 3", "8 - 3 = 5"]),
        ("1 + 2 * ( 5 - 2 )", {"brackets"}, ["5 - 2 = 3", "1 + 2 = 3", "3 * 3 = 9"]),
        ("1 + 2 * ( 5 - 2 )", {"brackets", "multiply"}, ["5 - 2 = 3", "2 * 3 = 6", "1 + 6 = 7"]),
        ("8 / 2 + 3 * 2", ALL_RULES, ["8 / 2 = 4", "3 * 2 = 6", "4 + 6 = 10"]),
        ("8 - ( 4 - 2 + 1 )", ALL_RULES, ["4 - 2 = 2", "2 + 1 = 3", "8 - 3 = 5"]),
    ],
)
def test_orders_worked_out_by_hand(text, rules, steps):
    tokens = [int(token) if token.isdigit() else token for token in text.split()]
    assert expressions.written(work_out(tokens, rules, TOP)).split("\n")[:-1] == steps


@pytest.mark.parametrize("text", ["9 - 10", "5 * 5", "7 / 2", "4 / ( 3 - 3 )"])
def test_what_leaves_the_range_cannot_be_worked_out(text):
    tokens = [int(token) if token.isdigit() else token for token in text.split()]
    assert work_out(tokens, ALL_RULES, TOP) is None


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 2**32))
def test_a_slip_is_one_wrong_step_that_is_carried_on(name, seed):
    rng = random.Random(seed)
    expression = expressions.draw(FAMILIES[name], TOP, rng)
    right = work_out(expression, ALL_RULES, TOP)
    steps = expressions.slipped(expression, ALL_RULES, TOP, rng)
    assert [step.sign for step in steps] == [step.sign for step in right]
    assert sum(not true(step) for step in steps) == 1 and steps[-1].result != right[-1].result
    assert all(0 <= step.result <= TOP for step in steps)


def test_guidelines_do_what_they_say_and_no_other_family_needs_them():
    rng = random.Random(3)
    for name, family in FAMILIES.items():
        for _ in range(20):
            expression = expressions.draw(family, TOP, rng)
            assert work_out(expression, frozenset(family.rules), TOP) == work_out(expression, ALL_RULES, TOP), name
    assert [family.guideline for family in FAMILIES.values()] == [
        "left to right", "multiply first", "divide first", "brackets first", "brackets then multiply first"
    ]  # fmt: skip


def test_the_vocabulary_is_what_the_texts_use(lessons):
    texts = [row[column] for row in lessons["train"] for column in ("question", "solution", "demonstration")]
    used = {word for text in texts for word in re.findall(r"\n|[?]|[^\s?]+", text)}
    words = orders.vocabulary(TOP)
    assert set(words) == used and len(words) == len(set(words))


def test_a_world_too_small_for_the_rows_is_refused_with_the_fix():
    with pytest.raises(JudgefreeError, match="kind orders: no new train question") as caught:
        world(train=200, validation=1, test=1, max_value=8, families={"times": 1.0})
    assert "lower the share of family times" in caught.value.fix


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"families": {"plain": 0.5, "times": 0.4}}, "the shares add up to 0.9; make it 1"),
        ({"lessons": {**LESSONS, "guided": 0.7}}, "guided [+] review [+] memory is more than 1; lower one"),
    ],
)
def test_shares_that_do_not_add_up_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        world(**changes)
