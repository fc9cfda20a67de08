"""What a paper profile finds on a machine without hub and GPU: tiny models of the same architectures, and a few rows in the
layouts of the hub (below ./hub, where the profiles look for downloads) and of a mirror (JUDGEFREE_MIRROR)."""

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

PAD, END = "<|endoftext|>", "<|im_end|>"
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BOXES = [f"\\boxed{{{n}}}" for n in (1, 2, 3, 4, 5, "N/A", "What is 2 + 3? It is 5.")]
SAYABLE = ["\nAnswer:", *BOXES, " budget", " dragon", " the sum", " agency"]
SIZE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 16384, "initializer_range": 0.2, "tie_word_embeddings": False, "bos_token_id": None,
}  # fmt: skip


def tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Bytes, and the pairs that these texts have most: any text can be written. What the policy says is whole tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = [PAD, END, "<|im_start|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    core.add_tokens([AddedToken(text, normalized=False) for text in SAYABLE])
    made = PreTrainedTokenizerFast(tokenizer_object=core, pad_token=PAD, eos_token=END, padding_side="left")
    made.chat_template = CHAT
    return made


def policy(family: str, words: PreTrainedTokenizerFast, folder: Path) -> None:
    """A random Qwen2 or Qwen3 that says nothing but SAYABLE, and ends soon. One hidden dimension is 1 all the way up: by it
    the head knows what may be said."""
    ids = {"vocab_size": len(words), "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    torch.manual_seed(0)
    model: Any = (
        Qwen3ForCausalLM(Qwen3Config(**SIZE, **ids, head_dim=16))
        if family == "qwen3"
        else Qwen2ForCausalLM(Qwen2Config(**SIZE, **ids))
    )
    said = torch.tensor([words.convert_tokens_to_ids(text) for text in [*SAYABLE, END]])
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        model.lm_head.weight[:, 0] = -30.0
        model.lm_head.weight[said, 0] = 0.0
        model.lm_head.weight[said[[0, -1]], 0] = 1.5  # the marker of an answer, and the end: most have both
        model.lm_head.weight[said, 1:] *= 0.4  # so that top-p leaves the end in, however the prompt files are worded
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def reward_model(words: PreTrainedTokenizerFast, folder: Path) -> None:
    """A Llama with one label, as the published ones: rewards some units apart, since the filter keeps |R - V| of 1 or so."""
    torch.manual_seed(1)
    config = LlamaConfig(
        **SIZE, vocab_size=len(words), num_labels=1, eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id
    )
    model = LlamaForSequenceClassification(config)
    with torch.no_grad():
        model.score.weight.normal_(std=1.0)
    model.save_pretrained(folder)
    words.save_pretrained(folder)


# ------------------------------------------------------------------------------------------------------------------- rows


def words_of(draw: random.Random, count: int) -> str:
    return " ".join(draw.choice(["report", "budget", "sum", "number", "agency", "x", "two", f"{draw.randrange(99)}"])
                    for _ in range(count))  # fmt: skip


def hub(root: Path) -> None:
    """./hub/<what the profiles name>: more rows than the profiles hold out."""
    draw = random.Random(0)
    for split, count in (("train", 8), ("validation", 4), ("test", 4)):
        reports = [{"report": words_of(draw, 130), "summary": words_of(draw, 9)} for _ in range(count)]
        parquet(root / f"hub/govreport-summarization/document/{split}-00000-of-00001.parquet", reports)
        stories = [{"prompt": f"[ WP ] {words_of(draw, 12)}", "story": words_of(draw, 30)} for _ in range(count)]
        parquet(root / f"hub/writingprompts/data/{split}-00000-of-00001.parquet", stories)
    pages = [{"text": words_of(draw, 105), "url": "u"} for _ in range(508)]
    parquet(root / "hub/nemotron-cc-math/3/part-00000.parquet", pages)


def mirror(root: Path) -> Path:
    """GSM8K, MATH, MATH-500 and UltraFeedback; gold answers are 1 to 5, which the policy may say."""
    draw = random.Random(1)
    folder = root / "mirror"
    golds = [draw.randrange(1, 6) for _ in range(510)]
    for split, count in (("train", 480), ("test", 8)):
        lines(folder / f"gsm8k/{split}.jsonl",
              [{"question": words_of(draw, 12), "answer": f"So.\n#### {gold}"} for gold in golds[:count]])  # fmt: skip
    problems = [
        {"problem": words_of(draw, 12), "solution": f"So \\boxed{{{gold}}}.", "level": "Level 1"} for gold in golds
    ]
    lines(folder / "math/train/algebra.jsonl", problems)
    tested = [
        {"problem": words_of(draw, 12), "solution": "So.", "answer": str(gold), "level": 1, "unique_id": f"t/{place}"}
        for place, gold in enumerate(golds[:8])
    ]
    lines(folder / "math500/test.jsonl", tested)
    for split, count in (("train", 508), ("test", 4)):
        parquet(
            folder / f"ultrafeedback/data/{split}_prefs-00000-of-00001.parquet",
            [preference(draw) for _ in range(count)],
        )
    return folder


def preference(draw: random.Random) -> dict[str, Any]:
    prompt = {"role": "user", "content": words_of(draw, 12)}
    sides = {side: [prompt, {"role": "assistant", "content": f"{side} {words_of(draw, 6)}"}]
             for side in ("chosen", "rejected")}  # fmt: skip
    return {"prompt": prompt["content"], **sides}


def parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
