"""The section `data` of params.yaml for data sets whose answers are texts: sources to write about, with a reference where
somebody wrote one."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from judgefree.config import Count, Seed, Share, Strict
from judgefree.pinned import require_commit

Measure = Literal["rouge"]  # what answers are compared by; None: exact mathematics


class Texts(Strict):
    """What the kinds have in common whose answers are texts: `question` is a source, `answer` a reference or none."""

    measure: ClassVar[Measure | None] = "rouge"
    referenced: ClassVar[bool] = True  # whether every row has a reference


class TextQuality(Strict):
    """Limits that a prepared data set of texts must keep. A word is a whitespace token."""

    max_quarantined_share: Share
    min_question_words: Count
    max_question_chars: Count
    max_answer_chars: Count


Fact = Literal["agency", "programme", "amount", "year", "region", "verdict"]


class MemoLessons(Strict):
    """What the rows of the training split are where warm-up is to teach the spy game: shares of the spy's and of the
    detectors' rows; the rest are civilians'.

    mask: share of the words that a spy does not see. invent: how often a spy makes up a fact that it does not see, and
    does not leave it out. check: how often a detector votes for the output with the most faults by its own view (N/A where
    none has any); abstain: how often it votes N/A anyway; the rest are votes for anyone. players: numbers of players.
    """

    spy: Share
    detect: Share
    mask: Share
    invent: Share
    check: Share
    abstain: Share
    players: Annotated[list[Annotated[int, Field(ge=2, le=9)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _sums(self) -> "MemoLessons":
        for names in (("spy", "detect"), ("check", "abstain")):
            if sum(getattr(self, name) for name in names) > 1:
                raise ValueError(f"{' + '.join(names)} is more than 1; lower one of them")
        return self


class MemoData(Texts):
    """Generated memos of `min_facts` to `max_facts` facts, a sentence each, among `fillers` sentences that say nothing; the
    reference names the facts in a fixed order.

    omit: how often a demonstration leaves a fact out that it could name, by kind of fact (absent: never); slip: how often
    it names a wrong value.
    """

    kind: Literal["memo"]
    seed: Seed
    train: Count
    validation: Count
    test: Count
    min_facts: Annotated[int, Field(ge=2)]
    max_facts: Annotated[int, Field(le=6)]
    fillers: Annotated[int, Field(ge=0, le=6)]
    max_value: Annotated[int, Field(ge=30)]
    omit: dict[Fact, Share]
    slip: Share
    lessons: MemoLessons | None = None
    quality: TextQuality

    @model_validator(mode="after")
    def _facts(self) -> "MemoData":
        if self.min_facts > self.max_facts:
            raise ValueError("min_facts is above max_facts; lower min_facts")
        if self.lessons and 100 * self.lessons.mask > self.max_value:
            raise ValueError(
                "max_value: the percentage lessons.mask must be a number that the vocabulary has; raise it"
            )
        return self


class GovReportData(Texts):
    """GovReport: reports and their summaries. layout: the three splits as published on the hub (columns report and summary),
    or L-Eval's one file of 14 test documents (input and outputs), of which `validation` and `test` are held out.

    A report is cut to its first `max_source_words` words. train_rows: only so many training rows are read.
    """

    kind: Literal["govreport"]
    id: str
    revision: str | None = None
    layout: Literal["published", "leval"]
    seed: Seed
    max_source_words: Count
    train_rows: Count | None = None
    validation: Count | None = None
    test: Count | None = None
    quality: TextQuality

    @model_validator(mode="after")
    def _splits(self) -> "GovReportData":
        require_commit("revision", self.id, self.revision)
        for key in ("validation", "test"):
            if (getattr(self, key) is None) != (self.layout == "published"):
                raise ValueError(f"{key}: is given exactly when layout is leval; add or remove it")
        return self


class WritingData(Texts):
    """WritingPrompts: prompts to write a story about, with a human's story as reference where there is one."""

    kind: Literal["writing"]
    referenced: ClassVar[bool] = False
    id: str
    revision: str | None = None
    max_source_words: Count
    train_rows: Count | None = None
    quality: TextQuality

    @model_validator(mode="after")
    def _pinned(self) -> "WritingData":
        require_commit("revision", self.id, self.revision)
        return self


class MathsTextData(Texts):
    """Mathematical web pages (Nemotron-CC-Math) to invent problems about: no references. files: the pattern, below the
    repository, of the few files to read, since the whole is far too large; `validation` rows are held out."""

    kind: Literal["maths_text"]
    measure: ClassVar[Measure | None] = None
    referenced: ClassVar[bool] = False
    id: str
    revision: str | None = None
    files: str
    seed: Seed
    validation: Count
    max_source_words: Count
    train_rows: Count | None = None
    quality: TextQuality

    @model_validator(mode="after")
    def _pinned(self) -> "MathsTextData":
        require_commit("revision", self.id, self.revision)
        return self


TextKinds = MemoData | GovReportData | WritingData | MathsTextData
