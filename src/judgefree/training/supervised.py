"""Method `sft`: TRL's SFTTrainer on tokenised demonstrations, with the same checkpoints and resume as all methods."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import SFTTrainer

from judgefree.config import PromptFormat, Training
from judgefree.episodes import Example
from judgefree.errors import JudgefreeError
from judgefree.methods import sft
from judgefree.training.arguments import lora_config, sft_arguments


def sft_trainer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    training: Training,
    prompt: PromptFormat,
    options: sft.Options,
    seed: int,
    work: Path,
    callbacks: Sequence[Any],
) -> SFTTrainer:
    """Ready to train. Raises JudgefreeError when a demonstration does not fit the length limits: none is cut."""
    rows = sft.tokenised(examples, tokenizer, prompt)
    limit = training.max_prompt_tokens + training.sampling.max_completion_tokens
    for example, ids in zip(examples, rows["input_ids"], strict=True):
        if len(ids) > limit:
            raise JudgefreeError(
                f"row {example.id}: prompt and demonstration have {len(ids)} tokens, above {limit}",
                "raise training.max_prompt_tokens or sampling.max_completion_tokens, or remove the row",
            )
    return SFTTrainer(
        model=model,
        args=sft_arguments(training, work, seed, options.batch_size),
        train_dataset=Dataset.from_dict(rows),
        processing_class=tokenizer,
        callbacks=list(callbacks),
        peft_config=lora_config(training),
    )
