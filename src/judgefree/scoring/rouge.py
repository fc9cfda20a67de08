"""ROUGE-L of a text against reference texts, in three definitions that must not be mixed; F-measures from 0 to 1.

- `rouge_l`: LongBench's, the `rouge-l` of the package `rouge`. Words stand between blanks as they are written (case, marks
  and all; no stemming), sentences between full stops; what counts is which *different* words lie on a longest common
  subsequence of any two sentences, over the different words of each text. A score of equal texts is 1 - 5e-9, by the
  package's 1e-8 in the denominator. LongBench prints it times 100.
- `rouge_score/rougeL`: google's package `rouge-score`, use_stemmer=True: both texts as one sequence of lower-case words.
- `rouge_score/rougeLsum`: the same by sentences: those of the reference meet the union of what each has in common with every
  sentence of the text. A sentence is a line, and nothing else is (split_summaries=False), so a text without newlines is one
  sentence, and of two such texts this is `rouge_score/rougeL`.

A text without words scores 0, and so does an empty reference, as in LongBench; of several references the best counts. Where
ours differ from the packages: `rouge` is recursive and gives up on sentences of about a thousand words; they are scored here
by its definition. `rouge-score` knows the letters a-z alone, so that an accent ends a word and Korean is nothing; here words
are letters, marks and digits of any script (NFC), and each sign of Chinese and Japanese is a word of its own. English words
are stemmed by the same stemmer, so that texts in ASCII have the package's values. tests/scoring/test_rouge.py holds all of
this against the packages.
"""

import os
import signal
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from typing import Any

import regex

from judgefree.errors import JudgefreeError
from judgefree.processes import Spawn, die_with

MEASURES = ("rouge_l", "rouge_score/rougeL", "rouge_score/rougeLsum")

Row = tuple[str | None, Sequence[str]]  # a text, None where there is none, and its references

_WORTH_A_POOL = 4_000_000  # characters to be scored, about the second that processes take to start
_SIGNS = r"[\p{Han}\p{Hiragana}\p{Katakana}]"  # written without blanks
_WORD = regex.compile(rf"(?V1){_SIGNS}|[[\p{{L}}\p{{Nd}}]--{_SIGNS}][[\p{{L}}\p{{M}}\p{{Nd}}]--{_SIGNS}]*")
_STEMMED_FROM = 4  # characters, as the package has it


def rouge(text: str | None, references: Sequence[str]) -> dict[str, float]:
    """Each of MEASURES, the best over the references (of which there may be one).

    Raises ValueError for no references.
    """
    if not references:
        raise ValueError("a text is compared with at least one reference")
    scores = [_scores(text or "", reference) for reference in references]
    return {measure: max(one[measure] for one in scores) for measure in MEASURES}


def rouge_of(rows: Sequence[Row], workers: int) -> list[dict[str, float]]:
    """`rouge` of every row, in order. With `workers` above 1 that many processes share the work where there is enough of it
    for seconds; the values are the same.

    Raises JudgefreeError where the processes cannot run.
    """
    work = sum(len(text or "") + sum(map(len, references)) for text, references in rows)
    if workers < 2 or work < _WORTH_A_POOL:
        return [rouge(*row) for row in rows]
    return in_processes(rows, workers)


def in_processes(rows: Sequence[Row], workers: int) -> list[dict[str, float]]:
    """`rouge` of every row, in order, by `workers` processes. They die with the caller and leave its signals to it."""
    pieces = min(len(rows), 8 * workers)
    shares = [
        rows[place::pieces] for place in range(pieces)
    ]  # of neighbours, which may be alike in length, to each one
    with ProcessPoolExecutor(workers, Spawn(), _enter, (os.getpid(),)) as pool:
        try:
            done = list(pool.map(_share, shares))
        except BrokenProcessPool as error:
            raise JudgefreeError(
                f"the scoring processes cannot run: {error}", "free memory or process slots, then repeat"
            ) from error
    return [done[place % pieces][place // pieces] for place in range(len(rows))]


def _enter(parent: int) -> None:
    die_with(parent)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _share(rows: Sequence[Row]) -> list[dict[str, float]]:
    return [rouge(*row) for row in rows]


# --------------------------------------------------------------------------------------------------- one pair of texts


def _scores(text: str, reference: str) -> dict[str, float]:
    lines, golds = ([_words(line) for line in one.split("\n")] for one in (text, reference))
    flat, gold = ([word for line in one for word in line] for one in (lines, golds))
    whole = _f_measure(lcs_length(gold, flat), len(flat), len(gold))
    return dict(zip(MEASURES, (_rouge_l(text, reference), whole, _by_lines(lines, golds)), strict=True))


def _rouge_l(text: str, reference: str) -> float:
    """`rouge.Rouge().get_scores(text, reference)[0]["rouge-l"]["f"]`, and 0 where one of them is blank."""
    if not (text.strip(" .\n") and reference.strip(" .\n")):
        return 0.0
    sentences, golds = _between_stops(text), _between_stops(reference)
    vocabularies = [set(sentence) for sentence in sentences]
    common: set[str] = set()
    for gold in golds:
        missing = set(gold) - common
        for sentence, vocabulary in zip(sentences, vocabularies, strict=True):
            if not missing.isdisjoint(vocabulary):
                shared = {gold[row] for row, _ in lcs(gold, sentence)}
                common |= shared
                missing -= shared
    recall, precision = (len(common) / len(set().union(*part)) for part in (golds, sentences))
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def _between_stops(text: str) -> list[list[str]]:
    """Words of each sentence; one of blanks alone has one empty word, as in the package."""
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


def _by_lines(lines: Sequence[list[str]], golds: Sequence[list[str]]) -> float:
    """As `rouge_score` and ROUGE-1.5.5: no word counts more often than it stands in either text."""
    left, left_gold = (Counter(word for line in part for word in line) for part in (lines, golds))
    sizes = left.total(), left_gold.total()
    vocabularies = [set(line) for line in lines]
    hits = 0
    for gold in golds:
        found: set[int] = set()
        missing = set(gold)  # words with a place that is not found yet
        for line, vocabulary in zip(lines, vocabularies, strict=True):
            if not missing.isdisjoint(vocabulary):
                found.update(column for _, column in lcs(line, gold))
                missing = {word for place, word in enumerate(gold) if place not in found}
        for word in (gold[place] for place in sorted(found)):
            if left[word] and left_gold[word]:
                hits += 1
                left[word] -= 1
                left_gold[word] -= 1
    return _f_measure(hits, *sizes)


def _f_measure(hits: int, size: int, gold_size: int) -> float:
    if not hits:
        return 0.0
    precision, recall = hits / size, hits / gold_size
    return 2 * precision * recall / (precision + recall)


# --------------------------------------------------------------------------------------------------------------- words


def _words(text: str) -> list[str]:
    found = _WORD.findall(unicodedata.normalize("NFC", text.lower()))
    return [_stem(word) if len(word) >= _STEMMED_FROM and word.isascii() else word for word in found]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    return str(_stemmer().stem(word))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer  # half a second, which not every import of this module should cost

    return PorterStemmer()


# -------------------------------------------------------------------------------------------- longest common subsequence


def lcs_length(rows: Sequence[str], columns: Sequence[str]) -> int:
    """Length of a longest common subsequence of two sequences of words."""
    return max((rises.bit_count() for rises in _rises(rows, columns)), default=0)


def lcs(rows: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Places (in rows, in columns) of a longest common subsequence, the last first.

    Of several it is the one that both packages walk: back from the ends, equal words are taken; else the walk leaves the
    row where the table to the left is lower, and the column where it is not.
    """
    table = list(_rises(rows, columns))
    row, column = len(rows) - 1, len(columns) - 1
    while row >= 0 and column >= 0:
        if rows[row] == columns[column]:
            yield row, column
            row, column = row - 1, column - 1
        elif table[row] >> column & 1:
            row -= 1
        else:
            column -= 1


def _rises(rows: Sequence[str], columns: Sequence[str]) -> Iterator[int]:
    """Each row of the table L of lengths as one integer: its bit j is L[i, j + 1] - L[i, j], which is 0 or 1.

    A row follows from the one before by one addition over all columns at once (Crochemore et al. 2001; Hyyrö 2004), so ten
    thousand words against as many take milliseconds and megabytes.
    """
    at: dict[str, int] = {}
    for place, word in enumerate(columns):
        at[word] = at.get(word, 0) | 1 << place
    everywhere = (1 << len(columns)) - 1
    level = everywhere  # the bits where L does not rise
    for word in rows:
        equal = level & at.get(word, 0)
        level = ((level + equal) | (level - equal)) & everywhere
        yield everywhere ^ level
