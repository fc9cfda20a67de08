"""SFT: imitation of demonstrations, the warm-up that other methods start from.

The loss is on the completion alone, its end token included, so that the policy learns to stop. Training is TRL's
SFTTrainer (training/supervised.py); this file says what is imitated.

State between steps: none.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from judgefree.config import PromptFormat, Strict
from judgefree.episodes import Example
from judgefree.errors import JudgefreeError
from judgefree.prompting import encode_question, inert


class Options(Strict):
    """batch_size: demonstrations an optimizer step."""

    batch_size: int = Field(ge=1)


def tokenised(examples: Sequence[Example], tokenizer: Any, prompt: PromptFormat) -> dict[str, list[list[int]]]:
    """`input_ids` and `labels` (-100 on the prompt) of every demonstration, as SFTTrainer takes them.

    The prompt is encoded as at sampling time and the demonstration after it, so that no token merges across the seam
    that the policy will meet when it is asked; of special tokens the demonstration has the end token that is put there.
    Raises JudgefreeError naming the row that has no demonstration.
    """
    rows: dict[str, list[list[int]]] = {"input_ids": [], "labels": []}
    for example in examples:
        if not example.demonstration:
            raise JudgefreeError(
                f"row {example.id} has no demonstration to imitate", "use a data set with demonstrations for method sft"
            )
        before = encode_question(tokenizer, prompt, example.question)
        demonstration = inert(tokenizer, example.demonstration)
        text = demonstration if prompt.chat else " " + demonstration
        after = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        rows["input_ids"].append(before + after)
        rows["labels"].append([-100] * len(before) + after)
    return rows
