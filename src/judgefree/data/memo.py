r"""The generated world in which a summary can be full or not: short memos about a programme that was audited.

A memo says a few facts, a sentence each, in any order and among sentences that say nothing; its reference names the
values in a fixed order ("energy roads 34 2014 north late"). Demonstrations are able but unreliable: each kind of fact is
left out with a probability of its own, and now and then a value is wrong. On `lessons` a policy also learns to play the
spy game: to summarise a memo of which it does not see all, and to vote `\boxed{ 3 }` on others' summaries by holding their
values against its own view. No real data is involved.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

from judgefree.config_texts import Fact, MemoData, MemoLessons
from judgefree.data.generated import unseen
from judgefree.episodes import stream_seed

# How the roles are asked, as in prompts/spyrl-memo.yaml; a test holds the two together.
CIVILIAN = "{source}\nsummary"
SPY = "{source}\nspy {percent}\nsummary"
DETECTOR = "{source}\n{outputs}\nspy ?"
OUTPUT = "{text} : {number}"  # a small model learns to vote only where the number follows what it counts
PLACEHOLDER = "nothing"
STAR = "*"  # a word that is not seen
OPEN, CLOSE, ABSTAIN = "\\boxed{", "}", "N/A"

FACTS: tuple[Fact, ...] = get_args(Fact)
LEAST_AMOUNT = 10  # players are numbered below it
NAMES: dict[Fact, tuple[str, ...]] = {
    "agency": ("energy", "health", "defense", "labor", "justice", "treasury", "commerce", "transport"),
    "programme": ("roads", "schools", "clinics", "bridges", "radars", "farms", "ports", "parks"),
    "year": tuple(str(year) for year in range(2008, 2020)),
    "region": ("north", "south", "east", "west", "coast", "valley"),
    "verdict": ("late", "sound", "wasteful", "unsafe", "unclear", "effective"),
}
SENTENCES: dict[Fact, tuple[str, ...]] = {
    "agency": ("{value} was audited.", "a memo from {value}.", "{value} asked us."),
    "programme": ("money for {value}.", "it pays {value}.", "{value} were planned."),
    "amount": ("it cost {value} million.", "{value} million was spent.", "the bill was {value} million."),
    "year": ("approved in {value}.", "work began in {value}.", "a plan of {value}."),
    "region": ("sites in the {value}.", "it serves the {value}.", "the {value} was chosen."),
    "verdict": ("we found it {value}.", "it looks {value}.", "the audit says {value}."),
}
FILLERS = (
    "the team met often.", "more data are needed.", "nobody was hurt.", "staff helped us.", "a map follows.",
    "the file is public.",
)  # fmt: skip

Facts = Mapping[Fact, str]


@dataclass(frozen=True)
class Memo:
    """sentences: what each says, None of a filler, and its text. facts: all that are said, in the order of FACTS."""

    sentences: tuple[tuple[Fact | None, str], ...]
    facts: Facts

    @property
    def source(self) -> str:
        return " ".join(text for _, text in self.sentences)

    @property
    def reference(self) -> str:
        return written(self.facts)


def rows(settings: MemoData) -> dict[str, list[dict[str, Any]]]:
    """Rows of the train, validation and test splits: id, question (the memo), answer (its reference), solution (None),
    demonstration, which only training rows have.

    A memo belongs to one split by its hash, whatever the seed, and none comes twice. With `lessons` the question is all
    that the user says in the row's role; held-out rows are civilians'. Raises JudgefreeError when the settings do not
    allow that many different memos.
    """
    sizes = {"train": settings.train, "validation": settings.validation, "test": settings.test}
    return {split: list(_split(settings, split, size)) for split, size in sizes.items()}


def vocabulary(max_value: int) -> list[str]:
    """Every word, number and sign of this world's texts; full stops and line ends are words of their own."""
    texts = [sentence.format(value="") for kind in FACTS for sentence in SENTENCES[kind]]
    texts += [*FILLERS, PLACEHOLDER, "summary spy", *(name for names in NAMES.values() for name in names)]
    words = {word for text in texts for word in text.replace(".", " ").split()}
    numbers = [str(number) for number in range(max_value + 1)]
    return [*numbers, ".", "?", ":", "\n", STAR, OPEN, CLOSE, ABSTAIN, *sorted(words)]


def written(facts: Facts) -> str:
    return " ".join(facts[kind] for kind in FACTS if kind in facts)


def draw(settings: MemoData, rng: random.Random) -> Memo:
    """A memo: which facts, their values, a sentence for each and the fillers, in any order."""
    chosen = rng.sample(FACTS, rng.randint(settings.min_facts, settings.max_facts))
    facts = {kind: rng.choice(_values(kind, settings.max_value)) for kind in FACTS if kind in chosen}
    sentences: list[tuple[Fact | None, str]] = [
        (kind, rng.choice(SENTENCES[kind]).format(value=value)) for kind, value in facts.items()
    ]
    sentences += [(None, text) for text in rng.sample(FILLERS, settings.fillers)]
    rng.shuffle(sentences)
    return Memo(tuple(sentences), facts)


def masked(memo: Memo, share: float, rng: random.Random) -> tuple[str, Facts]:
    """The memo with that share of its words, neighbours, shown as stars, and the facts whose values are still seen."""
    words = memo.source.split()
    hidden = max(1, round(share * len(words)))
    start = rng.randrange(len(words) - hidden + 1)
    words[start : start + hidden] = [STAR] * hidden
    seen = iter(words)
    visible = {}
    for kind, text in memo.sentences:
        left = [word.rstrip(".") for word in islice(seen, len(text.split()))]
        if kind is not None and memo.facts[kind] in left:
            visible[kind] = memo.facts[kind]
    return " ".join(words), visible


def summarised(settings: MemoData, visible: Facts, hidden: Sequence[Fact], invent: float, rng: random.Random) -> Facts:
    """What an able but unreliable writer names of the facts it sees, and of those it does not; never nothing."""
    named: dict[Fact, str] = {}
    for kind in FACTS:
        values = _values(kind, settings.max_value)
        if kind in visible and rng.random() >= settings.omit.get(kind, 0.0):
            wrong = [value for value in values if value != visible[kind]]
            named[kind] = rng.choice(wrong) if rng.random() < settings.slip else visible[kind]
        elif kind in hidden and rng.random() < invent:
            named[kind] = rng.choice(values)
    if not named:
        kind = rng.choice(list(visible or hidden))
        named[kind] = visible.get(kind) or rng.choice(_values(kind, settings.max_value))
    return named


def faults(output: Facts, view: Facts, whole: bool) -> int:
    """How many facts of a view an output lacks or names otherwise; in a whole memo also what it names that is not there."""
    wrong = sum(output.get(kind) != value for kind, value in view.items())
    return wrong + whole * sum(kind not in view for kind in output)


def _values(kind: Fact, max_value: int) -> Sequence[str]:
    return NAMES[kind] if kind in NAMES else [str(amount) for amount in range(LEAST_AMOUNT, max_value + 1)]


def _split(settings: MemoData, split: str, size: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(stream_seed("memo", settings.seed, split))
    seen: set[str] = set()

    def drawn() -> tuple[str, Memo]:
        memo = draw(settings, rng)
        return memo.source, memo

    for index in range(size):
        _, memo = unseen("memo", split, drawn, seen, "ask for fewer rows, or raise max_facts, fillers or max_value")
        # A stream of its own: what is demonstrated leaves the other rows' memos as they are.
        lesson = random.Random(stream_seed("memo", settings.seed, split, index))
        question, demonstration = memo.source, None
        if settings.lessons:
            question = CIVILIAN.format(source=memo.source)
        if split == "train" and settings.lessons:
            question, demonstration = _lesson(settings, settings.lessons, memo, lesson)
        elif split == "train":
            demonstration = written(summarised(settings, memo.facts, (), 0.0, lesson))
        yield {
            "id": f"{split}-{index:06d}",
            "question": question,
            "answer": memo.reference,
            "solution": None,
            "demonstration": demonstration,
        }


def _lesson(settings: MemoData, lessons: MemoLessons, memo: Memo, rng: random.Random) -> tuple[str, str]:
    """What the user says in a role, and what the policy is to say."""
    shares = {"spy": lessons.spy, "detect": lessons.detect}
    (role,) = rng.choices([*shares, "civilian"], [*shares.values(), max(0.0, 1 - sum(shares.values()))])
    view, visible = masked(memo, lessons.mask, rng)
    hidden = [kind for kind in memo.facts if kind not in visible]

    def output(spy: bool) -> Facts:
        return summarised(settings, visible if spy else memo.facts, hidden if spy else (), lessons.invent, rng)

    if role == "civilian":
        return CIVILIAN.format(source=memo.source), written(output(spy=False))
    if role == "spy":
        return SPY.format(source=view, percent=f"{100 * lessons.mask:g}"), written(output(spy=True))
    players = rng.choice(lessons.players)
    spy, detector = rng.randrange(players), rng.randrange(players)
    outputs = [output(spy=seat == spy) for seat in range(players)]
    whole = detector != spy
    question = DETECTOR.format(
        source=memo.source if whole else view,
        outputs="\n".join(OUTPUT.format(number=number, text=written(one)) for number, one in enumerate(outputs, 1)),
    )
    return question, _vote(lessons, [faults(one, memo.facts if whole else visible, whole) for one in outputs], rng)


def _vote(lessons: MemoLessons, counts: Sequence[int], rng: random.Random) -> str:
    """By the number of faults of each output, for one with the most; or not."""
    way = rng.random()
    worst = [number for number, count in enumerate(counts, 1) if count == max(counts) > 0]
    if way < lessons.check and worst:
        vote = str(rng.choice(worst))
    elif way < lessons.check + lessons.abstain:
        vote = ABSTAIN
    else:
        vote = str(rng.randint(1, len(counts)))
    return f"{OPEN} {vote} {CLOSE}"
