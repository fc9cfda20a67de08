"""The section `reward_models` of params.yaml: how a value-anchored reward model is made (SAVE, stages 1 and 2)."""

from typing import Annotated, Literal

from pydantic import Field

from judgefree.config import Count, Positive, Sampling, Seed, Share, Strict


class PairTraining(Strict):
    """Stage 1, Bradley-Terry on preference pairs. steps counts optimizer steps of `batch_size` pairs each."""

    steps: Count
    batch_size: Count
    micro_batches: Count
    learning_rate: Positive
    schedule: Literal["constant", "cosine", "linear"]
    warmup_share: Share
    weight_decay: Annotated[float, Field(ge=0)]
    max_grad_norm: Positive
    gradient_checkpointing: Literal[True] | None = None


class ValueFit(Strict):
    """Stage 2: the value head learns the mean reward of `samples` responses that `policy`, a name in models/, gives to each
    of the first `prompts` training questions of the data set."""

    policy: str
    prompts: Count
    samples: Annotated[int, Field(ge=2)]
    sampling: Sampling
    sampling_batch_rows: Count
    max_prompt_tokens: Count
    batch_size: Count
    epochs: Count
    learning_rate: Positive


class RewardModelSettings(Strict):
    """start_from: a name in models/, a causal language model or a sequence classifier with one label. dataset: one with
    preference pairs, whose questions the values are fitted on. max_tokens: a longer conversation is cut inside a message.
    batch_tokens: of one scoring pass, padding included. training: absent, the start is a trained reward model already.
    """

    start_from: str
    dataset: str
    seed: Seed
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["fp32", "bf16"]
    max_tokens: Count
    batch_tokens: Count
    training: PairTraining | None = None
    value_fit: ValueFit
