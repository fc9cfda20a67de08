"""Overlap between splits: the same question again, and nearly the same question.

All comparisons are made on tokens (`tokens`), a form without case, spacing and sentence punctuation but with every sign
that mathematics needs: `3 + 4 - 2` and `3 - 4 + 2` are different questions. Equal tokens are an overlap. A near overlap
has two signals, because n-grams alone miss short questions: the share of a question's 13-grams that one training row
holds, and, for a question shorter than that, its whole token sequence inside a training row.

Generated data is compared for equality only. Its questions are made from a handful of templates, so that 13-grams are
shared by construction and say nothing; that questions differ is the generator's promise, and equality checks it.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Tokens = tuple[str, ...]

# Thousands commas are dropped and decimal points kept. A hyphen between two longer words is a space (twenty-five), any
# other is a minus. Any other single character that is neither space nor sentence punctuation is a token of its own.
TOKEN = re.compile(
    r"""\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d) | \d+(?:\.\d+)? | \.\d+ | [^\W\d_]+ | _
      | -(?![^\W\d_]{2}) | (?<![^\W\d_]{2})- | [^-\w\s.,;:?'"`$…‘’“”\u200b\ufeff]""",
    re.VERBOSE,
)
DASHES = str.maketrans("−–—", "---")


@dataclass(frozen=True)
class NearOverlap:
    """Training row `train` (an index) holds the share `share` of what there is of test question `test` (an index)."""

    train: int
    test: int
    share: float


def tokens(text: str) -> Tokens:
    """Case-folded words, numbers and mathematical signs of a text, after Unicode compatibility folding."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(DASHES)
    return tuple(token.replace(",", "") for token in TOKEN.findall(folded))


def overlaps(train: Sequence[Tokens], test: Sequence[Tokens]) -> dict[int, int]:
    """Index of each training question that is equal to a test question -> index of the first such test question."""
    first: dict[Tokens, int] = {}
    for index, question in enumerate(test):
        first.setdefault(question, index)
    return {index: first[question] for index, question in enumerate(train) if question in first}


def near_overlaps(train: Sequence[Tokens], test: Sequence[Tokens], n: int, share: float) -> list[NearOverlap]:
    """Pairs in which a training row holds at least `share` of the distinct n-grams of a test question, or the whole of
    a test question of 1 to n - 1 tokens as neighbours. Ordered by training row, then test question.

    One pass over the training rows against an index of the test questions: linear in the text, not in the pairs.
    """
    sizes: list[int] = []
    index: dict[Tokens, list[int]] = defaultdict(list)
    for place, question in enumerate(test):
        grams = ngrams(question, min(n, len(question))) if question else set()
        sizes.append(len(grams))
        for gram in grams:
            index[gram].append(place)
    lengths = sorted({len(gram) for gram in index})
    found = []
    for place, row in enumerate(train):
        shared = Counter(test_place for length in lengths for test_place in _hits(index, ngrams(row, length)))
        found += [
            NearOverlap(place, other, count / sizes[other])
            for other, count in sorted(shared.items())
            if count >= share * sizes[other]
        ]
    return found


def ngrams(words: Tokens, n: int) -> set[Tokens]:
    """The distinct runs of n neighbouring tokens; none when there are fewer than n."""
    return set(zip(*(words[start:] for start in range(n)), strict=False))


def _hits(index: dict[Tokens, list[int]], grams: Iterable[Tokens]) -> Iterable[int]:
    for gram in grams:
        yield from index.get(gram, ())
