"""Conversations as numbers: a reward model's scores, the same whatever stands beside a row in its batch.

Rows are sorted by length and batched under a budget of tokens, padding included, so that little is spent on padding and
the largest batch comes first. The score is read at the last token that is attended to, found by the row's length and not
by the id of the padding token, which many chat templates end with. The head works in float32 whatever the backbone does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from judgefree.devices import device_of
from judgefree.errors import JudgefreeError
from judgefree.prompting import inert_messages

Conversation = Sequence[Mapping[str, str]]


def load_reward_model(folder: Path, device: str, precision: str) -> tuple[Any, Any]:
    """Model in evaluation mode and tokenizer of a folder in Transformers' layout for sequence classification with one
    label, from safetensors and nowhere else.

    device: cpu, cuda or auto (cuda where there is one); precision: fp32 or bf16, of the backbone; the head is float32.

    Raises JudgefreeError naming the folder when it cannot be loaded, has no trained head of one label on a decoder's last
    hidden state, or the device is not there.
    """
    place = device_of(device, "reward_benchmarks.device")
    safe = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **safe)
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **safe
        )
    except (OSError, ValueError) as error:
        raise JudgefreeError(
            f"{folder} cannot be loaded as a reward model with tokenizer: {error}",
            "give a folder that AutoModelForSequenceClassification loads",
        ) from error
    if loading["missing_keys"]:
        missing = ", ".join(sorted(loading["missing_keys"]))
        raise JudgefreeError(f"{folder} lacks weights: {missing}", "a policy is no reward model; train its head first")
    if not isinstance(getattr(model, "score", None), torch.nn.Linear) or model.config.num_labels != 1:
        raise JudgefreeError(
            f"{folder} has no head `score` with one label (num_labels is {model.config.num_labels})",
            "give a decoder with num_labels 1",
        )
    if precision == "bf16":
        getattr(model, model.base_model_prefix).to(torch.bfloat16)
    return model.eval().to(place), tokenizer


class RewardModelScorer:
    """Calls give the reward of each conversation, in their order. So far, `truncated` counts those that were cut, `tokens`
    what was read, and `unknown` those tokens of it that stand for text the tokenizer has no words for.

    max_tokens: longer conversations are cut inside a message (`encode`). tokens_per_batch: rows times longest row of a
    batch, unless a single row is longer.
    """

    def __init__(self, model: Any, tokenizer: Any, max_tokens: int, tokens_per_batch: int) -> None:
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if limit is not None and max_tokens > limit:
            raise JudgefreeError(
                f"max_tokens is {max_tokens} and the model takes {limit} tokens", f"set max_tokens to {limit} or less"
            )
        self.model, self.tokenizer = model, tokenizer
        self.max_tokens, self.tokens_per_batch = max_tokens, tokens_per_batch
        self.truncated = self.tokens = self.unknown = 0
        ends = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
        self.unknown_ids = {tokenizer.unk_token_id} - ends  # a token that is both stands in every template

    def __call__(self, conversations: Sequence[Conversation]) -> list[float]:
        rows = []
        for conversation in conversations:
            ids, cut = encode(self.tokenizer, conversation, self.max_tokens)
            rows.append(ids)
            self.truncated += cut
            self.tokens += len(ids)
            self.unknown += sum(id in self.unknown_ids for id in ids)
        scores = [0.0] * len(rows)
        for batch in token_batches([len(row) for row in rows], self.tokens_per_batch):
            for place, score in zip(batch, last_token_scores(self.model, [rows[i] for i in batch]), strict=True):
                scores[place] = score
        return scores


def token_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Places of rows by falling length, cut into batches whose rows times longest row stay within `budget`; a row that
    alone exceeds it is a batch of its own."""
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= budget:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches


@torch.inference_mode()
def last_token_scores(model: Any, rows: Sequence[Sequence[int]]) -> list[float]:
    """The head's value at each row's last token, float32; rows are padded on the right and the padding masked."""
    lengths = torch.tensor([len(row) for row in rows], device=model.device)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(model.device)
    mask = (torch.arange(ids.shape[1], device=model.device) < lengths[:, None]).long()
    backbone = getattr(model, model.base_model_prefix)
    hidden = backbone(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    last = hidden[torch.arange(len(rows), device=model.device), lengths - 1]
    values: list[float] = model.score(last.float())[:, 0].tolist()
    return values


def encode(tokenizer: Any, conversation: Conversation, max_tokens: int) -> tuple[list[int], bool]:
    """Token ids of a whole conversation in the tokenizer's template, with one BOS at most, and whether it was cut. What its
    messages say is `inert`.

    Where there are more than `max_tokens`, the end of the last message goes first, until it takes up half of the room;
    then the ends of the longest messages. The template's own text stays whole.

    Raises JudgefreeError when there is no template, or no room even for empty messages.
    """
    messages = inert_messages(tokenizer, conversation)  # before the cut, which measures them
    ids = _render(tokenizer, messages)
    if len(ids) <= max_tokens:
        return ids, False
    half = max_tokens // 2
    while len(ids) > max_tokens:
        spans = [_spans(tokenizer, message["content"]) for message in messages]
        answered = len(spans[-1]) > half
        place = len(messages) - 1 if answered else max(range(len(messages)), key=lambda i: len(spans[i]))
        if not spans[place]:
            raise JudgefreeError(
                f"max_tokens is {max_tokens} and the template alone takes {len(ids)} tokens", "raise max_tokens"
            )
        keep = max(len(spans[place]) - (len(ids) - max_tokens), half if answered else 0)
        end = spans[place][keep - 1][1] if keep else 0
        messages[place]["content"] = messages[place]["content"][:end]
        ids = _render(tokenizer, messages)
    return ids, True


def _spans(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Where each token begins and ends in the text; of tokens that share a character (bytes of an emoji) the first only."""
    spans: list[tuple[int, int]] = []
    for start, end in tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]:
        if end > start and (not spans or start >= spans[-1][1]):
            spans.append((start, end))
    return spans


def _render(tokenizer: Any, conversation: Conversation) -> list[int]:
    """The template adds what special tokens it wants, so the tokenizer adds none, but for the BOS that it would begin any
    other text with and the template leaves out."""
    if not tokenizer.chat_template:
        raise JudgefreeError(
            f"the tokenizer of {tokenizer.name_or_path} has no chat template", "add chat_template.jinja"
        )
    text = tokenizer.apply_chat_template(list(conversation), tokenize=False)
    ids: list[int] = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    bos = tokenizer.bos_token_id
    if bos is None:
        return ids
    while ids[:2] == [bos, bos]:
        ids = ids[1:]
    if ids[:1] != [bos] and list(tokenizer("")["input_ids"])[:1] == [bos]:
        ids = [bos, *ids]
    return ids
