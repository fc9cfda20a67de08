"""Judges that are asked in words and answer in words: what they are told, and how a verdict or a score is read.

The texts are those of a file of prompts/ (texts.JUDGE_TEXTS). A verdict is the last bracket of the reply that holds one,
[[A>B]], as Arena-Hard reads it (doubled brackets before single ones); a score is the last [[number]], from 1 to 10.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from judgefree.judging.judges import Bill, Contest, Judgement, Rating, Verdict, Work
from judgefree.prompting import fill

LOWEST, HIGHEST = 1.0, 10.0  # of a score

_VERDICTS = [re.compile(rf"{left}\s*([AB])\s*(>>|>|=|<<|<)\s*([AB])\s*{right}", re.IGNORECASE)
             for left, right in ((r"\[\[", r"\]\]"), (r"\[", r"\]"))]  # fmt: skip
_SCORE = re.compile(r"\[\[\s*(\d{1,4}(?:\.\d{1,9})?)\s*(?:/\s*10\s*)?\]\]")


@dataclass(frozen=True)
class Reply:
    """text: None where there is none, and `why` says so."""

    text: str | None
    why: str = ""
    bill: Bill = Bill()


# From prompts, and what makes None of a reply that holds no answer, to a reply each.
Ask = Callable[[Sequence[str], Callable[[str], Any]], list[Reply]]


class WordsJudge:
    """Implements `judges.Judge` around a way of asking."""

    def __init__(self, ask: Ask, texts: dict[str, str]) -> None:
        self.ask = ask
        self.texts = texts

    def compare(self, contests: Sequence[Contest]) -> list[Judgement]:
        prompts = [
            self._fill("compare", instruction=one.instruction, first=one.first, second=one.second) for one in contests
        ]
        return [_judgement(reply) for reply in self.ask(prompts, read_verdict)]

    def rate(self, works: Sequence[Work]) -> list[Rating]:
        prompts = [self._fill("rate", instruction=one.instruction, text=one.text) for one in works]
        return [_rating(reply) for reply in self.ask(prompts, read_score)]

    def _fill(self, name: str, **values: str) -> str:
        return fill(self.texts[name], criteria=self.texts.get("criteria", ""), **values)


def read_verdict(reply: str) -> Verdict | None:
    """The last verdict of a reply; A<B is B>A, and B=A a tie. None where the last bracket compares a text with itself."""
    for pattern in _VERDICTS:
        if found := pattern.findall(reply):
            left, sign, right = (part.upper() for part in found[-1])
            if left == right:
                return None
            if sign == "=":
                return Verdict.TIE
            better, worse = (left, right) if ">" in sign else (right, left)
            return Verdict(f"{better}{'>' * len(sign)}{worse}")
    return None


def read_score(reply: str) -> float | None:
    """The last score of a reply; None where it is outside of 1 to 10."""
    found = _SCORE.findall(reply)
    return score if found and LOWEST <= (score := float(found[-1])) <= HIGHEST else None


def _judgement(reply: Reply) -> Judgement:
    verdict = None if reply.text is None else read_verdict(reply.text)
    if verdict is None:
        return Judgement(None, said=_why(reply, "verdict"), bill=reply.bill)
    return Judgement(verdict, verdict.preference, str(reply.text), reply.bill)


def _rating(reply: Reply) -> Rating:
    score = None if reply.text is None else read_score(reply.text)
    if score is None:
        return Rating(said=_why(reply, "score"), bill=reply.bill)
    return Rating(score, str(reply.text), reply.bill)


def _why(reply: Reply, what: str) -> str:
    return reply.why if reply.text is None else f"no {what} in the reply {reply.text[-80:]!r}"
