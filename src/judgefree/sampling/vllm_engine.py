"""Sampling with vLLM on GPU machines, behind the same call as ours on Transformers.

TRL makes the vLLM engine (in this process, or as a client of a server) and copies the trainer's weights into it. What
is added here: a seed per sample, so that a request's tokens can be drawn again; one request per sample, so that stop
strings and limits are each row's own; and a check after every copy. Weights that silently did not arrive and a prefix
cache that outlived them are the two faults that spoil a run for days before anyone sees it, so the engine's answer to a
fixed prompt must have the probabilities that the trainer computes for it.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from accelerate.utils import broadcast_object_list, gather_object

from judgefree.config import Sampling
from judgefree.episodes import Completion, Prompt, Turn, stream_seed
from judgefree.errors import JudgefreeError
from judgefree.sampling.rules import check_keys, completion, end_ids, token_limits

PROBE_PROMPT, PROBE_COMPLETION = 64, 32
# Mean |difference of log-probability| over the probe's tokens, in nats. Equal weights differ by 0.01 to 0.02 between
# two 16-bit implementations; weights that stay behind drift past 0.1 within a few steps.
PROBE_TOLERANCE = 0.1
SERVER_REQUESTS = 64

Request = tuple[list[int], dict[str, Any]]  # prompt ids and vLLM's sampling parameters
Answer = tuple[list[int], list[float] | None]  # completion ids and their log-probabilities


def require_vllm() -> None:
    """Raises JudgefreeError when this interpreter has no vLLM; to be called before TRL looks for it."""
    if find_spec("vllm") is None:
        raise JudgefreeError(
            "training.engine is vllm, but this interpreter has no vLLM",
            "set `python` in params.yaml to the interpreter of the vLLM environment (README, GPU machines), or "
            "training.engine to transformers and remove training.vllm",
        )


class VllmEngine:
    """A sampler of the trainer's current weights; they are copied at the first call after every optimizer step.

    trainer: a GRPOTrainer with `use_vllm`; its `logprobs(turns)` gives log pi under the sampling temperature.
    probe_difference: the last probe's mean |log-prob difference| in nats, None before the first copy.
    """

    def __init__(self, trainer: Any, *, stop: Sequence[str], keep_logprobs: bool) -> None:
        self.trainer, self.generation = trainer, trainer.vllm_generation
        self.tokenizer = trainer.processing_class
        self.eos_ids = end_ids(trainer.accelerator.unwrap_model(trainer.model), self.tokenizer)
        self.stop, self.keep_logprobs = list(stop), keep_logprobs
        self.probe_difference: float | None = None
        self._copied_step: int | None = None
        self._probe: list[int] | None = None

    def __call__(
        self, prompts: Sequence[Prompt], n: int, seed: int, step: int, settings: Sampling, greedy: bool
    ) -> list[list[Completion]]:
        """`n` completions of every prompt, in their order; ids, text and reason as `rules.completion` says.

        Log-probabilities are those of the distribution drawn from (vLLM's processed_logprobs). Raises JudgefreeError
        for a prompt that is empty or too long, and when the engine's weights are not the trainer's.
        """
        if self._copied_step != self.trainer.state.global_step:
            self._copy_weights(prompts[0].ids if prompts else sorted(self.eos_ids)[:1], settings.temperature)
        check_keys(prompts)
        limits = token_limits(prompts, settings.max_completion_tokens, self.generation.max_model_length)
        rows = [(prompt, limit, i) for prompt, limit in zip(prompts, limits, strict=True) for i in range(n)]
        shared = {
            "temperature": 0.0 if greedy else settings.temperature,
            "top_p": 1.0 if settings.top_p is None else settings.top_p,
            "top_k": settings.top_k or 0,
            "logprobs": 0 if self.keep_logprobs else None,
            "stop": self.stop,
            "stop_token_ids": sorted(self.eos_ids),
        }
        requests: list[Request] = [
            (prompt.ids, {**shared, "max_tokens": limit, "seed": stream_seed(seed, step, *prompt.key, i)})
            for prompt, limit, i in rows
        ]
        ends: dict[str, Any] = {"tokenizer": self.tokenizer, "eos_ids": self.eos_ids, "stop": self.stop}
        done = [
            completion(ids, logprobs, limit=limit, **ends)
            for (ids, logprobs), (_, limit, _) in zip(self._answers(requests), rows, strict=True)
        ]
        return [done[start : start + n] for start in range(0, len(done), n)]

    # ------------------------------------------------------------------------------------------------------- weights

    def _copy_weights(self, prompt: list[int], temperature: float) -> None:
        self.generation.sync_weights()
        if self.generation.mode == "colocate" and not self.generation.llm.reset_prefix_cache():
            raise JudgefreeError(
                "vLLM did not empty its prefix cache after the weights were copied (it refuses while requests run), so "
                "prompts would be read with old weights",
                "start the run again; it goes on from its last checkpoint",
            )
        self.probe_difference = self._probe_difference(prompt, temperature)
        if not self.probe_difference <= PROBE_TOLERANCE:  # written so that NaN is refused too
            raise JudgefreeError(
                f"vLLM does not sample from the trainer's weights: its log-probabilities of a fixed prompt differ by "
                f"{self.probe_difference:.3f} nats on average (at most {PROBE_TOLERANCE} is rounding)",
                "use a vLLM version that TRL supports and its default settings, or training.engine: transformers",
            )
        self._copied_step = self.trainer.state.global_step

    def _probe_difference(self, prompt: list[int], temperature: float) -> float:
        """Mean |log-prob by the engine - by the trainer| over tokens that the engine samples after a fixed prompt.

        The prompt is the run's first, repeated to fill several blocks of the prefix cache: a block that was kept would
        be used, and show.
        """
        room = (self.generation.max_model_length or PROBE_PROMPT + PROBE_COMPLETION) - PROBE_COMPLETION
        if self._probe is None:
            self._probe = (prompt * PROBE_PROMPT)[: max(1, min(PROBE_PROMPT, room))]
        options = {"temperature": temperature, "max_tokens": PROBE_COMPLETION, "seed": 0, "logprobs": 0}
        [(ids, logprobs)] = self._answers([(self._probe, {**options, "ignore_eos": True})])
        turn = Turn(prompt_ids=self._probe, completion_ids=ids, role="probe", group="probe")
        [expected] = self.trainer.logprobs([turn])
        assert logprobs is not None
        return sum(abs(a - b) for a, b in zip(logprobs, expected, strict=True)) / len(ids)

    # ------------------------------------------------------------------------------------------------------ requests

    def _answers(self, requests: list[Request]) -> list[Answer]:
        """Every process asks at the same moments, if for nothing: the server's answers are shared out among them."""
        return self._colocated(requests) if self.generation.mode == "colocate" else self._served(requests)

    def _colocated(self, requests: list[Request]) -> list[Answer]:
        from vllm import SamplingParams

        if not requests:
            return []
        outputs = self.generation.llm.generate(
            [{"prompt_token_ids": ids} for ids, _ in requests],
            sampling_params=[SamplingParams(**options) for _, options in requests],
            use_tqdm=False,
        )
        answers: list[Answer] = []
        for [output] in (request.outputs for request in outputs):
            if output.finish_reason not in ("stop", "length"):
                raise JudgefreeError(f"vLLM gave a request up ({output.finish_reason})", "look into vLLM's log above")
            ids = list(output.token_ids)
            chosen = output.logprobs and [
                by_id[token].logprob for by_id, token in zip(output.logprobs, ids, strict=True)
            ]
            answers.append((ids, chosen))
        return answers

    def _served(self, requests: list[Request]) -> list[Answer]:
        """The main process asks the server for all processes: TRL gives only that one a client."""
        counts = gather_object([len(requests)])
        everyones = gather_object(requests)
        box: list[Any] = [None]
        if self.trainer.accelerator.is_main_process:
            with ThreadPoolExecutor(SERVER_REQUESTS) as pool:
                box = [list(pool.map(self._ask, everyones))]
        broadcast_object_list(box, from_process=0)
        start = sum(counts[: self.trainer.accelerator.process_index])
        return box[0][start : start + len(requests)]

    def _ask(self, request: Request) -> Answer:
        ids, options = request
        named = {
            key: options[key] for key in ("temperature", "top_p", "top_k", "max_tokens", "logprobs") if key in options
        }
        rest = {key: value for key, value in options.items() if key not in named}
        reply = self.generation.vllm_client.generate([ids], n=1, **named, generation_kwargs=rest)
        logprobs = reply["logprobs"]
        return reply["completion_ids"][0], logprobs and [values[0] for values in logprobs[0]]
