"""The sections `alpaca_eval` and `arena_hard` of params.yaml: benchmarks in which a judge compares a model's answers with a
baseline's."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from judgefree.config import Count, Positive, Seed, Share, Strict
from judgefree.pinned import require_commit


class Nothing(Strict):
    """Of an entry that is its name alone, such as a model of a benchmark."""


class Generation(Strict):
    """How a model answers a benchmark's prompts: greedily, or at a temperature."""

    chat: bool
    system: str | None = None
    max_completion_tokens: Count
    batch_rows: Count
    seed: Seed
    temperature: Positive | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    device: Literal["auto", "cpu", "cuda"] | None = None
    precision: Literal["fp32", "bf16"] | None = None

    @model_validator(mode="after")
    def _asked(self) -> "Generation":
        if self.temperature is None and (self.top_p is not None or self.top_k is not None):
            raise ValueError("top_p and top_k change nothing of greedy answers; add temperature or remove them")
        if self.system and not self.chat:
            raise ValueError("a system text needs the chat template; set chat: true or remove it")
        return self


class _Benchmark(Strict):
    """models: those that are put to it, each with an empty mapping (DVC lays mappings over its defaults, not lists).
    id, revision: where it comes from, a data set of the hub at a full commit id or a folder (`./...` or `/...`). judge: a
    name of `judges`."""

    models: dict[str, Nothing] = {}
    id: str
    revision: str | None = None
    judge: str
    generation: Generation

    @model_validator(mode="after")
    def _pinned(self) -> "_Benchmark":
        require_commit("revision", self.id, self.revision)
        return self


class AlpacaEval(_Benchmark):
    """prompts: the judge's prompt file; absent for a reward model. orders: every pair is judged once, with a place drawn
    from `seed`, as the official benchmark does, or in both orders."""

    prompts: str | None = None
    orders: Literal["random", "both"]
    seed: Seed


class ArenaHard(_Benchmark):
    """categories: those that are played. prompts: the judge's prompt file of each; absent for a reward model. seed: of the
    bootstrap. style: also the win rate at equal length and markdown."""

    prompts: dict[str, str] = {}
    categories: Annotated[list[Literal["hard_prompt", "creative_writing"]], Field(min_length=1)]
    seed: Seed
    style: Literal[True] | None = None

    @model_validator(mode="after")
    def _prompted(self) -> "ArenaHard":
        if self.prompts and set(self.prompts) != set(self.categories):
            raise ValueError("prompts: name a file for every one of the categories, and for no other")
        return self
