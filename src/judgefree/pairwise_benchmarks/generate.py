"""A model's answers to a benchmark's prompts."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from judgefree.config import PromptFormat, Sampling
from judgefree.config_benchmarks import Generation
from judgefree.episodes import Prompt
from judgefree.prompting import encode_question
from judgefree.sampling.rules import end_ids
from judgefree.sampling.transformers_engine import sample


def generate(
    model: Any, tokenizer: Any, ids: Sequence[str], prompts: Sequence[str], settings: Generation
) -> pd.DataFrame:
    """One answer a prompt: id, text (as it is, nothing cut or stripped), tokens, finish_reason.

    ids: name the prompts' random streams. Raises JudgefreeError for a prompt that leaves the model no room.
    """
    frame = PromptFormat(template="{question}", chat=settings.chat, system=settings.system, answer="whole")
    asked = [
        Prompt(encode_question(tokenizer, frame, text), (name, "benchmark", 0))
        for name, text in zip(ids, prompts, strict=True)
    ]
    sampling = Sampling(
        temperature=settings.temperature or 1.0, max_completion_tokens=settings.max_completion_tokens,
        top_p=settings.top_p, top_k=settings.top_k,
    )  # fmt: skip
    completions = sample(
        model, tokenizer, asked, 1, seed=settings.seed, step=0, settings=sampling, eos_ids=end_ids(model, tokenizer),
        batch_rows=settings.batch_rows, greedy=settings.temperature is None,
    )  # fmt: skip
    return pd.DataFrame(
        {"id": name, "text": one.text, "tokens": len(one.ids), "finish_reason": one.finish_reason}
        for name, (one,) in zip(ids, completions, strict=True)
    )
