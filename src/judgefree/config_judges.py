"""The sections `judges` and `pairs` of params.yaml: who judges texts, and which models' texts are put side by side."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from judgefree.config import Count, Positive, Strict

_OURS = ("model", "messages", "stream", "n")  # of a request's body


class Price(Strict):
    """Of a million tokens, in any one currency."""

    prompt: Annotated[float, Field(ge=0)]
    completion: Annotated[float, Field(ge=0)]


class EndpointJudge(Strict):
    """A model behind an OpenAI-compatible `url`/chat/completions.

    key_variable: the environment variable that holds the key; absent, none is sent. request: what else the body says, such
    as temperature and max_tokens. concurrency: requests under way at a time. attempts: how often one is made at most, with
    `backoff_s`, twice that, four times that between them or as long as the server asks. price: absent, tokens alone are
    counted.
    """

    kind: Literal["endpoint"]
    url: str
    model: str
    key_variable: str | None = None
    request: dict[str, Any]
    concurrency: Count
    timeout_s: Positive
    attempts: Count
    backoff_s: Positive
    price: Price | None = None

    @field_validator("url")
    @classmethod
    def _plain(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("no address; write it as https://host/v1, without /chat/completions")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("holds more than an address; a key belongs into the variable that key_variable names")
        return url.rstrip("/")

    @field_validator("key_variable")
    @classmethod
    def _name(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise ValueError("is no name of a variable, such as OPENAI_API_KEY; the key itself is never a setting")
        return name

    @field_validator("request")
    @classmethod
    def _body(cls, request: dict[str, Any]) -> dict[str, Any]:
        if taken := [key for key in _OURS if key in request]:
            raise ValueError(f"{', '.join(taken)} cannot be set here; remove it")
        return request


class RewardModelJudge(Strict):
    """A sequence-classification model with one output, in a local folder; the text with the higher score wins.

    chat: instruction and text are put into the tokenizer's chat template; otherwise they are encoded as its pair of texts.
    max_tokens: a longer input has no score; none is cut. tie_within: scores that differ by no more than this are equal.
    """

    kind: Literal["reward_model"]
    folder: str
    chat: bool
    max_tokens: Count
    batch_rows: Count
    tie_within: Annotated[float, Field(ge=0)]
    device: Literal["auto", "cpu", "cuda"] | None = None
    precision: Literal["fp32", "bf16"] | None = None


class PolicyJudge(Strict):
    """models/`model`, asked in the same words as an endpoint; it answers greedily."""

    kind: Literal["policy"]
    model: str
    chat: bool
    max_completion_tokens: Count
    batch_rows: Count
    device: Literal["auto", "cpu", "cuda"] | None = None
    precision: Literal["fp32", "bf16"] | None = None


AnyJudge = EndpointJudge | RewardModelJudge | PolicyJudge
JudgeSettings = Annotated[AnyJudge, Field(discriminator="kind")]


class Pair(Strict):
    """What `model` wrote to the test items of `suite` against what `against` wrote, by the verdicts of `judge`.

    field: which column of items.parquet is judged: the answer as the data set's prompt reads it, or the whole text.
    prompts: the prompt file with the criteria; absent for a reward model, which reads none.
    """

    model: str
    against: str
    suite: str
    judge: str
    field: Literal["answer", "text"]
    prompts: str | None = None
