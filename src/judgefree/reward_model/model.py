"""The value-anchored reward model: one backbone, a reward head, a value head (SAVE, papers.md section 3.1).

    R(x, y) = h(f(x, y))     at the last token of the conversation
    V(x)    = v(sg f(x))     at the last token of the prompt in the template, without an invitation to answer

Backbone and reward head are a sequence classifier of Transformers with one label, saved as such: its folder loads with
`AutoModelForSequenceClassification.from_pretrained` and gives the same scores. The value head, a linear layer (the paper
says "lightweight"), stands beside it in `value_head.safetensors`. Weights that are trained are float32, heads always are.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as hf_logging

from judgefree.config import PromptFormat
from judgefree.errors import JudgefreeError
from judgefree.files import pretty_json, read_json, write_atomic
from judgefree.reward_model.scoring import Conversation, encode, token_batches

VALUE_HEAD, SETTINGS = "value_head.safetensors", "reward_model.json"
_SAFE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class ValueAnchoredRewardModel(nn.Module):
    """classifier: a sequence classifier of Transformers with one label whose linear head is called `score`, as in all
    decoder models; value_head: hidden size to 1; max_tokens: longer conversations are cut inside a message.
    half_precision: the backbone computes in bfloat16; weights and heads stay as they are.
    """

    def __init__(
        self, classifier: Any, value_head: nn.Linear, tokenizer: Any, max_tokens: int, half_precision: bool = False
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self.value_head = value_head.float()
        self.reward_head.float()
        self.tokenizer, self.max_tokens, self.half_precision = tokenizer, max_tokens, half_precision

    @property
    def backbone(self) -> nn.Module:
        backbone: nn.Module = self.classifier.base_model
        return backbone

    @property
    def reward_head(self) -> nn.Linear:
        head: nn.Linear = self.classifier.score
        return head

    @property
    def device(self) -> torch.device:
        return self.value_head.weight.device

    def encode(self, conversation: Conversation) -> tuple[list[int], bool]:
        """Token ids and whether they are cut; of a prompt with its response to be scored, of a prompt alone to be valued."""
        return encode(self.tokenizer, conversation, self.max_tokens)

    def hidden(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """(rows, hidden size), float32: the state at the last token of each row of ids."""
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(self.device)
        mask = (torch.arange(ids.shape[1], device=self.device) < lengths[:, None]).long()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half_precision):
            states = self.backbone(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        last: Tensor = states[torch.arange(len(rows), device=self.device), lengths - 1]
        return last.float()

    def rewards(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """R of conversations' ids, (rows,), float32, with a gradient for backbone and reward head."""
        values: Tensor = self.reward_head(self.hidden(rows))[:, 0]
        return values

    def values(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """V of prompts' ids, (rows,), float32, with a gradient for the value head alone."""
        with torch.no_grad():
            hidden = self.hidden(rows)
        values: Tensor = self.value_head(hidden)[:, 0]
        return values

    def read(
        self, head: Callable[[Sequence[Sequence[int]]], Tensor], rows: Sequence[list[int]], tokens: int
    ) -> list[float]:
        """What `rewards` or `values` says of rows, in their order, without gradient and in eval mode; in batches of at most
        this many tokens, padding included.

        Equal rows are read once: in batches of different shapes they would differ by rounding, and of a group of equal
        responses some would be better than others."""
        scores: dict[tuple[int, ...], float] = {}
        several = list(dict.fromkeys(map(tuple, rows)))
        with reading(self):
            for batch in token_batches([len(row) for row in several], tokens):
                members = [several[i] for i in batch]
                scores |= zip(members, head(members).tolist(), strict=True)
        return [scores[tuple(row)] for row in rows]


@contextmanager
def reading(model: nn.Module) -> Iterator[None]:
    """Without gradient and dropout; afterwards the model is in the mode it was in."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def messages(prompt: PromptFormat, question: str) -> list[dict[str, str]]:
    """A question as the reward model reads it: what the policy is asked, as messages."""
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return [*system, {"role": "user", "content": prompt.template.replace("{question}", question)}]


def answered(head: Conversation, response: str) -> list[dict[str, str]]:
    return [*map(dict, head), {"role": "assistant", "content": response}]


def load_classifier(folder: Path, seed: int) -> Any:
    """The sequence classifier in a folder, or one on the backbone of the causal language model there, whose reward head is
    drawn from the seed; float32, from safetensors only.

    Raises JudgefreeError for another number of labels, or a head that is not one linear layer called `score`.
    """
    if not list(folder.glob("*.safetensors")):
        raise JudgefreeError(
            f"{folder} holds no .safetensors file", "only safetensors weights are loaded; convert them"
        )
    trained = any("SequenceClassification" in name for name in read_json(folder / "config.json")["architectures"] or [])
    labels = {} if trained else {"num_labels": 1}
    with torch.random.fork_rng(devices=[]), nullcontext() if trained else _quiet():
        torch.manual_seed(seed)
        model: Any = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, **labels, **_SAFE
        )
        if not isinstance(getattr(model, "score", None), nn.Linear) or model.config.num_labels != 1:
            raise JudgefreeError(
                f"{folder} holds no reward model: {type(model).__name__} with {model.config.num_labels} labels",
                "use a decoder model, or a sequence classifier with one label",
            )
        if not trained:
            nn.init.normal_(model.score.weight, std=model.score.in_features**-0.5)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Transformers' report of an absent head, which is drawn here."""
    loud = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(loud)


def load_tokenizer(folder: Path) -> Any:
    """Raises JudgefreeError where conversations end in the padding token: plain Transformers reads a score at the last
    token that is none, and would read it elsewhere than we do."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right", **_SAFE)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    ids, _ = encode(tokenizer, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], 1 << 20)
    if ids[-1] == tokenizer.pad_token_id:
        raise JudgefreeError(
            f"conversations of {folder} end in the padding token {tokenizer.pad_token!r}, where no score would be read",
            "give the tokenizer a pad_token of its own",
        )
    return tokenizer


def load_reward_model(folder: Path, half_precision: bool = False) -> ValueAnchoredRewardModel:
    """What `save_reward_model` wrote. Raises JudgefreeError when the folder holds no value-anchored reward model."""
    if not (folder / VALUE_HEAD).is_file():
        raise JudgefreeError(f"{folder} holds no {VALUE_HEAD}: it is no value-anchored reward model",
                             "make one: an entry of reward_models in params.yaml")  # fmt: skip
    classifier = load_classifier(folder, 0)
    head = fresh_value_head(classifier)
    head.load_state_dict(load_file(folder / VALUE_HEAD))
    tokens = read_json(folder / SETTINGS)["max_tokens"]
    return ValueAnchoredRewardModel(classifier, head, load_tokenizer(folder), tokens, half_precision)


def fresh_value_head(classifier: Any) -> nn.Linear:
    """V = 0 for all prompts, before it is fitted."""
    head = nn.Linear(classifier.score.in_features, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def save_reward_model(model: ValueAnchoredRewardModel, folder: Path) -> None:
    """Classifier, tokenizer, value head and the settings by which conversations are read."""
    model.classifier.config.pad_token_id = model.tokenizer.pad_token_id
    model.classifier.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    head = {name: value.detach().cpu().contiguous() for name, value in model.value_head.state_dict().items()}
    save_file(head, folder / VALUE_HEAD)
    write_atomic(folder / SETTINGS, pretty_json({"max_tokens": model.max_tokens}))
