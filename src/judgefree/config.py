"""The sections of params.yaml as strict pydantic models, which params.py puts together; bases and data: config_data.py.

No field has a default but None ("this feature is off") or an empty list: a value that matters stands in params.yaml,
where a reader and DVC can see it. What is None is dropped when settings are resolved, so that a feature added later
leaves the resolved settings of runs that do not use it, and with them their results, untouched.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from judgefree.errors import JudgefreeError

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """No unknown key, no text or truth value for a number (an integer stands for a float), no infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


# -------------------------------------------------------------------------------------------------------- prompts


class PromptFormat(Strict):
    """How a question of a data set is put to the policy and where the answer is read from.

    answer: last closed \\boxed{}, last closed <answer> tag, or the text after the last `####`; of data whose answers are
    texts, all after the first line that begins with `Answer:`, or the whole completion.
    measure: what an answer is compared with the data set's by: absent, exact mathematics; rouge, the words of a reference.
    stop: a completion ends before the first of these strings.
    """

    template: str
    system: str | None = None
    chat: bool
    answer: Literal["boxed", "tag", "marker", "line", "whole"]
    measure: Literal["rouge"] | None = None
    stop: list[Annotated[str, Field(min_length=1)]] = []

    @model_validator(mode="after")
    def _slot(self) -> "PromptFormat":
        if "{question}" not in self.template:
            raise ValueError("the template has no {question}; add it where the question goes")
        if self.system and not self.chat:
            raise ValueError("a system text needs the chat template; set chat: true or put it into the template")
        return self


# ------------------------------------------------------------------------------------------------------- training


class Sampling(Strict):
    """max_completion_tokens bounds a completion; top_p and top_k are off where absent."""

    temperature: Positive
    max_completion_tokens: Count
    top_p: Share | None = None
    top_k: Count | None = None


class KlCov(Strict):
    """Penalty `weight * |log rho|` on the `share` of tokens with the highest covariance."""

    share: Share
    weight: Positive


class ClipCov(Strict):
    """Drops the loss of a random `share` of the tokens whose covariance lies between low and high."""

    share: Share
    low: float
    high: float


class Loss(Strict):
    """The closed list of parts of the one loss (training/loss.py)."""

    aggregation: Literal["grpo", "bnpo", "dapo", "dr_grpo"]
    ratio: Literal["token", "sequence"]
    clip_low: Positive
    clip_high: Positive
    kl_weight: Annotated[float, Field(ge=0)]
    kl_bias_correction: Literal[True] | None = None
    kl_cov: KlCov | None = None
    clip_cov: ClipCov | None = None

    @model_validator(mode="after")
    def _one_cov(self) -> "Loss":
        if self.kl_cov and self.clip_cov:
            raise ValueError("kl_cov and clip_cov exclude each other; remove one")
        return self


class Lora(Strict):
    rank: Count
    alpha: Count
    dropout: Share
    target_modules: list[str]


class Vllm(Strict):
    """vLLM settings; correction_cap truncates the importance ratio between trainer and sampler."""

    mode: Literal["colocate", "server"]
    memory_share: Share
    correction_cap: Positive | None = None
    allow_truncated_sampling_with_correction: Literal[True] | None = None


class Monitor(Strict):
    """Limits of the collapse monitor (training/monitor.py), over means of `window` rollouts.

    As multiples of the run's first `window` rollouts: entropy, length, distinct pairs of tokens, entropy of all answers,
    gradient norm. Fixed: entropy of the answers within a group (nats); shares of repeated four-token sequences, of
    completions that are cut off and that have no readable answer; KL divergence from the reference (nats per token).
    validation_low: share of the best validation so far. alarms_of_collapse: so many new ones are a collapse.
    unreadable_votes_high: share of votes that are missing, invalid or nobody's (SpyRL); absent, no such alarm.
    stop: a run that collapsed ends there and hands on its best checkpoint; without it it goes on, and is marked.
    """

    window: Count
    entropy_low: Share
    length_low: Share
    length_high: Annotated[float, Field(gt=1)]
    distinct_low: Share
    answers_low: Share
    cluster_entropy_high: Positive
    repetition_high: Share
    clipped_high: Share
    unparsed_high: Share
    kl_high: Positive
    grad_norm_high: Annotated[float, Field(gt=1)]
    validation_low: Share
    alarms_of_collapse: Count
    unreadable_votes_high: Share | None = None
    stop: Literal[True] | None = None


class Training(Strict):
    """Settings of the trainer. `steps` counts optimizer steps; one rollout feeds `updates_per_rollout` of them."""

    engine: Literal["transformers", "vllm"]
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["fp32", "bf16"]
    processes: Count
    accelerate_config: str | None = None
    steps: Count
    save_every: Count
    rollout_size: Count
    group_size: Count
    updates_per_rollout: Count
    micro_batches: Count
    sampling_batch_rows: Count
    advantage: Literal["grpo", "dr_grpo", "rloo", "batch"]
    truncated: Literal["keep", "mask"]
    max_prompt_tokens: Count
    sampling: Sampling
    loss: Loss
    learning_rate: Positive
    schedule: Literal["constant", "cosine", "linear"]
    warmup_share: Share
    weight_decay: Annotated[float, Field(ge=0)]
    max_grad_norm: Positive
    max_bad_steps: Count
    validation_items: Count
    gradient_checkpointing: Literal[True] | None = None
    lora: Lora | None = None
    vllm: Vllm | None = None
    monitor: Monitor | None = None

    @property
    def examples_per_rollout(self) -> int:
        return self.rollout_size // self.group_size

    def micro_batch_of(self, batch_size: int) -> int:
        """Rows that one process takes at once when all take `batch_size` an optimizer step. Raises JudgefreeError."""
        parts = self.processes * self.micro_batches
        if batch_size % parts:
            raise JudgefreeError(
                f"options.batch_size: {batch_size} rows cannot be split into {self.processes} (training.processes) x "
                f"{self.micro_batches} (training.micro_batches) equal parts",
                f"use a multiple of {parts}, such as {parts * max(1, round(batch_size / parts))}",
            )
        return batch_size // parts

    @model_validator(mode="after")
    def _fits(self) -> "Training":
        if self.group_size == 1:
            raise ValueError("group_size: a group of one has no baseline; use 2 or more")
        if self.rollout_size % self.group_size:
            raise ValueError(
                f"rollout_size: {self.rollout_size} completions cannot be split into groups of {self.group_size}; "
                f"use a multiple such as {self.group_size * max(1, self.rollout_size // self.group_size)}"
            )
        if self.examples_per_rollout % self.processes:
            raise ValueError(
                f"processes: {self.examples_per_rollout} groups a rollout cannot be shared by {self.processes} "
                "processes (a group never crosses processes); change rollout_size or processes"
            )
        for key, value in (("save_every", self.save_every), ("steps", self.steps)):
            if value % self.updates_per_rollout:
                raise ValueError(
                    f"{key}: {value} is off the rollout boundary; use a multiple of "
                    f"updates_per_rollout ({self.updates_per_rollout})"
                )
        covariance = self.loss.kl_cov or self.loss.clip_cov
        if covariance and self.updates_per_rollout < 2:
            raise ValueError(
                "updates_per_rollout: KL-Cov and Clip-Cov do nothing with one update per rollout (the ratio is 1, its "
                "gradient 0); use 2 or more"
            )
        if (self.engine == "vllm") != (self.vllm is not None):
            raise ValueError("vllm: settings are given exactly when engine is vllm; add or remove the vllm section")
        truncating = self.sampling.top_p is not None or self.sampling.top_k is not None
        if (
            self.vllm
            and self.vllm.correction_cap
            and truncating
            and not (self.vllm.allow_truncated_sampling_with_correction)
        ):
            raise ValueError(
                "sampling.top_p: with truncated sampling the importance correction is biased (the sampler's log-probs "
                "are renormalised); remove top_p and top_k, remove vllm.correction_cap, or set "
                "vllm.allow_truncated_sampling_with_correction: true"
            )
        return self


class Run(Strict):
    """One trained model. `training` overrides keys of the shared section; `options` belong to the method's own file.

    Runs of the same `arm` differ by seed only, as do the runs they start from, and are pooled by `compare`; without it a
    run is an arm of its own.
    """

    method: str
    dataset: str
    start_from: str
    seed: Seed
    select: Literal["validation", "own_signal", "last"]
    suites: list[str]
    arm: str | None = None
    training: dict[str, Any] = {}
    options: dict[str, Any] = {}

    def path(self, name: str) -> str:
        """Where it stands in params.yaml: runs with a reward model have a section, and a stage, of their own."""
        return f"{'runs' if self.options.get('reward_model') is None else 'save_runs'}.{name}"


# ----------------------------------------------------------------------------------------------------- evaluation


class Retry(Strict):
    """Further greedy attempts at inference time (evaluation/retry.py), at most `rounds` an item.

    reflexion asks the gold answer which attempts failed and keeps the last `buffer` reflections; self_refine knows no
    gold. prompts: the prompt file. max_prompt_tokens: a prompt longer than this, or than what the model's window leaves
    beside the suite's max_completion_tokens, is not put; the item keeps its last attempt.
    """

    procedure: Literal["reflexion", "self_refine"]
    rounds: Count
    prompts: str
    buffer: Count | None = None
    max_prompt_tokens: Count | None = None

    @model_validator(mode="after")
    def _buffer(self) -> "Retry":
        if (self.procedure == "reflexion") != (self.buffer is not None):
            raise ValueError("buffer is given exactly when procedure is reflexion; add or remove it")
        return self


class InformationLoss(Strict):
    """What the spy of a spy game does not see: one contiguous span, `share` of the source's words or characters."""

    share: Annotated[float, Field(gt=0, le=1)]
    unit: Literal["characters", "words"]


class PlayedGame(Strict):
    """A spy game on each of the first `items` test rows that have a reference (all where absent), played by the evaluated
    model alone (evaluation/games.py). prompts: the prompt file; temperature: greedy players who see the same would write
    the same."""

    prompts: str
    players: Annotated[int, Field(ge=3)]
    information_loss: InformationLoss
    items: Count | None = None
    temperature: Positive
    seed: Seed


class Suite(Strict):
    """One benchmark over `items` test rows (all where absent). Where answers are values: greedy pass@1 and, with `samples`,
    unbiased pass@k; or, with `retry`, what further attempts make of the greedy ones. Where they are texts (`measure: rouge`
    in the prompt): ROUGE of greedy texts and, with `samples`, of sampled ones, and with `game` spy games on the rows beside
    that; pass_at and retry have no meaning there.

    device and precision are given for models too large for the CPU in fp32, where results are the same on all machines.
    """

    dataset: str
    items: Count | None = None
    max_completion_tokens: Count
    batch_rows: Count
    samples: Count | None = None
    pass_at: list[Count] = []
    temperature: Positive | None = None
    seed: Seed | None = None
    retry: Retry | None = None
    game: PlayedGame | None = None
    device: Literal["auto", "cpu", "cuda"] | None = None
    precision: Literal["fp32", "bf16"] | None = None

    @model_validator(mode="after")
    def _sampling(self) -> "Suite":
        if self.samples and (self.temperature is None or self.seed is None):
            raise ValueError("samples needs temperature and seed; add them or remove samples")
        if any(k > (self.samples or 0) for k in self.pass_at):
            raise ValueError(f"pass_at: k above samples ({self.samples}); raise samples or lower k")
        if self.samples and self.retry:
            raise ValueError("samples and retry exclude each other (retry decodes greedily); use a suite for each")
        if self.game and self.retry:
            raise ValueError("game is for texts and retry for values; use a suite for each")
        return self

    @property
    def prompt_file(self) -> tuple[str, str] | None:
        """The key below the suite that names its prompt file, and the file; None for a suite without one."""
        if self.retry:
            return "retry.prompts", self.retry.prompts
        return ("game.prompts", self.game.prompts) if self.game else None


class Compare(Strict):
    resamples: Count
    seed: Seed
    confidence: Annotated[float, Field(gt=0, lt=1)]


class Gates(Strict):
    """When a candidate becomes champion of its task (registry/gate.py).

    rank_by: the measure, taken at each run's selected step, by which the candidate is chosen among the task's runs;
    measure: the score per test item that candidate and champion are compared by; text_measure: the same for tasks whose
    answers are texts, where a project has both kinds; margin: how far above zero the lower bound of the difference must
    lie; the limits: by how much a share may rise, and the mean length as a multiple. max_unparsed_rise is, of texts, of the
    share without a text where it belongs.
    """

    rank_by: Literal["validation", "own_signal"]
    measure: Literal["pass@1", "sampled/accuracy", "rouge_l", "sampled/rouge_l"]
    text_measure: Literal["rouge_l", "sampled/rouge_l"] | None = None
    margin: Share
    min_items: Count
    max_unparsed_rise: Share
    max_truncated_rise: Share
    max_length_ratio: Annotated[float, Field(ge=1)]

    def measure_of(self, texts: bool) -> str:
        """The measure for a task whose answers are texts, or values."""
        return self.text_measure or self.measure if texts else self.measure


class Grading(Strict):
    """The grader's pool: worker processes and the seconds after which one is killed."""

    workers: Count
    timeout_s: Positive


class StageTimeouts(Strict):
    """Seconds that one stage, or one step at the registry, may take before it is stopped; what it saved is kept."""

    prepare: Positive
    train: Positive
    evaluate: Positive
    registry: Positive


class Pipeline(Strict):
    """How the flows run stages; nothing here changes a result.

    grace_s: seconds from the request to stop (cancel, time-out, end of the flow) until whatever is left is killed; give
    training time to reach its next checkpoint. lock_wait_s: how long a flow waits for another that works in this
    project (for what is left of one that was killed, as long as that may save). retries: of faults that may pass (a busy
    lock, the network), never of refused input.
    """

    timeout_s: StageTimeouts
    grace_s: Positive
    lock_wait_s: Annotated[float, Field(ge=0)]
    retries: Annotated[int, Field(ge=0)]
    retry_delay_s: Annotated[float, Field(ge=0)]
    gpu_slots: Count
