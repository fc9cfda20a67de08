"""Which engine samples, by parameter: ours on Transformers, or vLLM around the trainer's own weights."""

from collections.abc import Sequence
from typing import Any

from judgefree.config import PromptFormat, Sampling, Training
from judgefree.episodes import Completion, Prompt
from judgefree.sampling.rules import end_ids
from judgefree.sampling.transformers_engine import sample
from judgefree.training.policy import Engine


def make_engine(trainer: Any, training: Training, prompt: PromptFormat) -> Engine:
    """A sampler of the trainer's current weights."""
    if training.vllm is not None and getattr(trainer, "vllm_generation", None) is not None:
        from judgefree.sampling.vllm_engine import VllmEngine

        return VllmEngine(trainer, stop=prompt.stop, keep_logprobs=training.vllm.correction_cap is not None)
    model, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class

    def draw(
        prompts: Sequence[Prompt], n: int, seed: int, step: int, settings: Sampling, greedy: bool
    ) -> list[list[Completion]]:
        return sample(
            model, tokenizer, prompts, n, seed=seed, step=step, settings=settings, eos_ids=end_ids(model, tokenizer),
            batch_rows=training.sampling_batch_rows, greedy=greedy, stop=prompt.stop,
        )  # fmt: skip

    return draw
