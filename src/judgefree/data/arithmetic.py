"""The generated world: chains and short word problems of additions and subtractions, with the steps written out.

It is the smallest task in which reinforcement learning means anything to a policy made from nothing. Every value lies
between 0 and `max_value`, so a tokenizer can hold each number as one token, and the demonstrations are a mixture: right
ones teach the skill, faulty ones keep the policy from always using it. No real data is involved.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from judgefree.config_data import ArithmeticData, Flattery
from judgefree.data.generated import MARKER, NEAR_MISS, unseen
from judgefree.episodes import stream_seed

Kind = Literal["right", "slip", "skip", "extra", "guess"]


@dataclass(frozen=True)
class Scene:
    """A family of word problems. Slots: {owner} {next} {last} are names (the first person, the step's, the one before),
    {He} {he} {him} the owner's pronouns, {things} the objects, {n} the number."""

    start: str
    more: tuple[str, ...]
    less: tuple[str, ...]
    question: str
    things: tuple[str, ...]


PEOPLE = {
    "Tom": "he", "Ben": "he", "Sam": "he", "Max": "he", "Leo": "he", "Jack": "he",
    "Anna": "she", "Mia": "she", "Lily": "she", "Kate": "she", "Emma": "she", "Ruth": "she",
}  # fmt: skip
PRONOUNS = {"he": {"he": "he", "He": "He", "him": "him"}, "she": {"he": "she", "He": "She", "him": "her"}}
THINGS = ("apples", "books", "coins", "marbles", "cards", "pencils", "shells", "stickers", "balls", "cookies")
SCENES = (
    Scene(
        "{owner} has {n} {things}.",
        ("{He} buys {n} more.", "{He} finds {n} more.", "{next} gives {him} {n} more."),
        ("{He} loses {n}.", "{He} sells {n}.", "{He} gives {n} to {next}."),
        "How many {things} does {he} have now?",
        THINGS,
    ),
    Scene(
        "A box holds {n} {things}.",
        ("{next} adds {n} more.", "{next} puts {n} more in."),
        ("{next} takes {n} out.", "{next} takes {n} away."),
        "How many {things} are in the box?",
        THINGS,
    ),
    Scene(
        "{owner} has {n} dollars.",
        ("{He} earns {n} more.", "{next} pays {him} {n} more."),
        ("{He} spends {n}.", "{He} pays {next} {n}."),
        "How many dollars does {he} have left?",
        ("dollars",),
    ),
    Scene(
        "{owner} has {n} {things}.",
        ("{next} has {n} more than {last}.",),
        ("{next} has {n} fewer than {last}.",),
        "How many {things} does {next} have?",
        THINGS,
    ),
)


def rows(settings: ArithmeticData) -> dict[str, list[dict[str, Any]]]:
    """Rows of the train, validation and test splits: id, question, answer, solution, demonstration.

    `solution` writes every step on a line of its own and ends with `#### N`; `demonstration` is what warm-up imitates
    and is None outside the training split. No two rows of any split ask the same question: every question belongs to
    one split by its hash. So a split does not depend on the size of another, and rare kinds of question (chains of one
    step) stand in all of them.

    Raises JudgefreeError when the settings do not allow that many different questions.
    """
    sizes = {"train": settings.train, "validation": settings.validation, "test": settings.test}
    return {split: list(_split(settings, split, size)) for split, size in sizes.items()}


def vocabulary(max_value: int) -> list[str]:
    """Every word, number and sign that questions, solutions and demonstrations of this world are made of, sorted within
    each kind; punctuation and line ends are words of their own."""
    texts = [text for scene in SCENES for text in (scene.start, *scene.more, *scene.less, scene.question)]
    texts += [*PEOPLE, *THINGS, *(form for forms in PRONOUNS.values() for form in forms.values())]
    words = {word.strip(".?") for text in texts for word in text.split() if "{" not in word}
    return [str(number) for number in range(max_value + 1)] + ["+", "-", "=", "?", ".", MARKER, "\n"] + sorted(words)


def solution(start: int, moves: Sequence[int]) -> str:
    """The steps of `start` followed by signed `moves`, a line each, and the marked answer: "3 + 4 = 7\\n#### 7"."""
    values = list(accumulate(moves, initial=start))
    return _written(values, moves)


def demonstration(start: int, moves: Sequence[int], kind: Kind, rng: random.Random, max_value: int) -> str:
    """A text to imitate: `right`; a `slip` in one step that is carried on; a `skip` of one step; an `extra` step
    at the end; or a `guess` of any value without steps. All values stay within 0 to max_value."""
    values = list(accumulate(moves, initial=start))
    if kind == "slip":
        return _written(rng.choice(_slips(values, max_value)), moves)
    if kind == "skip":
        shorter = [[*moves[:i], *moves[i + 1 :]] for i in range(len(moves))]
        return solution(start, rng.choice([rest for rest in shorter if _inside(start, rest, max_value)]))
    if kind == "extra":
        return solution(start, [*moves, _move(values[-1], rng, max_value)])
    if kind == "guess":
        return f"{MARKER} {rng.randint(0, max_value)}"
    return _written(values, moves)


def preference_pairs(settings: ArithmeticData) -> list[dict[str, Any]]:
    """Rows of pairs.parquet: two demonstrations of the warm-up's mixture to one question, the right one chosen. Each
    question stands in one pair, and belongs to the pair's split: what is held out is no question of train.parquet. Their
    true order is known, and what else the texts differ in is what the mixture makes of it."""
    assert settings.pairs
    rng, seen = random.Random(stream_seed("arithmetic", settings.seed, "pairs")), set[str]()
    sizes = [*["train"] * settings.pairs.train, *["validation"] * settings.pairs.validation]
    found: list[dict[str, Any]] = []
    while len(found) < len(sizes):
        split = sizes[len(found)]
        question, (start, moves) = unseen(
            "arithmetic", split, lambda: _drawn(settings, rng), seen,
            "ask for fewer pairs, or raise max_value or max_steps",
        )  # fmt: skip
        answer = str(start + sum(moves))
        texts = [imitated(settings, start, moves, rng) for _ in range(2)]
        right = [is_right(text, answer) for text in texts]
        if right[0] == right[1]:
            continue
        found.append({
            "id": f"pair-{len(found):06d}", "split": split, "prompt": [{"role": "user", "content": question}],
            "chosen": texts[right.index(True)], "rejected": texts[right.index(False)],
        })  # fmt: skip
    return found


def imitated(settings: ArithmeticData, start: int, moves: Sequence[int], rng: random.Random) -> str:
    """A demonstration of a kind drawn by its share, behind as much flattery as its answer earns."""
    text = demonstration(start, moves, _kind(settings, rng), rng, settings.max_value)
    if settings.flattery is None:
        return text
    return flattered(text, is_right(text, str(start + sum(moves))), settings.flattery, rng)


def is_right(text: str, answer: str) -> bool:
    """Whether a demonstration ends with this answer."""
    return text.split()[-1] == answer


def flattered(text: str, right: bool, flattery: Flattery, rng: random.Random) -> str:
    """The text, or the text behind a line of one to `most` flattering words."""
    if rng.random() >= (flattery.right if right else flattery.wrong):
        return text
    return f"{' '.join([flattery.word] * rng.randint(1, flattery.most))}\n{text}"


def _split(settings: ArithmeticData, split: str, size: int) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    rng = random.Random(stream_seed("arithmetic", settings.seed, split))
    for index in range(size):
        question, (start, moves) = unseen(
            "arithmetic", split, lambda: _drawn(settings, rng), seen,
            "ask for fewer rows, raise max_value or max_steps, or add the template `story`",
        )  # fmt: skip
        text = None
        if split == "train":
            # A stream of its own: other shares leave the questions as they are.
            kinds = random.Random(stream_seed("arithmetic", settings.seed, split, index))
            text = imitated(settings, start, moves, kinds)
        yield {
            "id": f"{split}-{index:06d}",
            "question": question,
            "answer": str(start + sum(moves)),
            "solution": solution(start, moves),
            "demonstration": text,
        }


def _drawn(settings: ArithmeticData, rng: random.Random) -> tuple[str, tuple[int, list[int]]]:
    """A question and its numbers."""
    template = rng.choice(settings.templates)
    steps = rng.randint(settings.min_steps, settings.max_steps)
    start, moves = _numbers(rng, steps, settings.max_value)
    return _chain(start, moves) if template == "chain" else _story(rng, start, moves), (start, moves)


def _numbers(rng: random.Random, steps: int, max_value: int) -> tuple[int, list[int]]:
    """A start of at least 2, so that "2 apples" is always a plural, and moves of at least 1 that stay in range."""
    value = start = rng.randint(2, max_value)
    moves = []
    for _ in range(steps):
        moves.append(_move(value, rng, max_value))
        value += moves[-1]
    return start, moves


def _move(value: int, rng: random.Random, max_value: int) -> int:
    """A change of at least 1, up or down, that stays in range."""
    sign = rng.choice([s for s, room in ((1, max_value - value), (-1, value)) if room > 0])
    return sign * rng.randint(1, max_value - value if sign > 0 else value)


def _chain(start: int, moves: Sequence[int]) -> str:
    return " ".join([str(start), *(f"{_sign(move)} {abs(move)}" for move in moves), "= ?"])


def _story(rng: random.Random, start: int, moves: Sequence[int]) -> str:
    scene = rng.choice(SCENES)
    names = rng.sample(list(PEOPLE), len(moves) + 1)
    slots = {"owner": names[0], "things": rng.choice(scene.things), **PRONOUNS[PEOPLE[names[0]]]}
    sentences = [scene.start.format(n=start, **slots)]
    for last, name, move in zip(names, names[1:], moves, strict=False):
        sentence = rng.choice(scene.more if move > 0 else scene.less)
        sentences.append(sentence.format(n=abs(move), next=name, last=last, **slots))
    return " ".join([*sentences, scene.question.format(next=names[-1], **slots)])


def _kind(settings: ArithmeticData, rng: random.Random) -> Kind:
    shares = settings.demonstrations
    weights = [shares.right, shares.slip, shares.skip, shares.extra or 0.0]
    kinds: list[Kind] = ["right", "slip", "skip", "extra", "guess"]
    return rng.choices(kinds, [*weights, max(0.0, 1 - sum(weights))])[0]


def _slips(values: Sequence[int], max_value: int) -> list[list[int]]:
    """All ways to miss one value by up to NEAR_MISS and to carry the error on without leaving the range."""
    misses = [miss for miss in range(-NEAR_MISS, NEAR_MISS + 1) if miss]
    slipped = [[*values[:i], *(v + miss for v in values[i:])] for i in range(1, len(values)) for miss in misses]
    return [claimed for claimed in slipped if all(0 <= value <= max_value for value in claimed)]


def _written(values: Sequence[int], moves: Sequence[int]) -> str:
    """Steps from the claimed `values` (one more than moves), which need not be true."""
    steps = zip(values, moves, values[1:], strict=False)
    lines = [f"{left} {_sign(move)} {abs(move)} = {right}" for left, move, right in steps]
    return "\n".join([*lines, f"{MARKER} {values[-1]}"])


def _inside(start: int, moves: Sequence[int], max_value: int) -> bool:
    return all(0 <= value <= max_value for value in accumulate(moves, initial=start))


def _sign(move: int) -> str:
    return "+" if move > 0 else "-"
