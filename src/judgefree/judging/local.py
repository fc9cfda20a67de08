"""Judges that are models on this machine: a policy that is asked in words, and a reward model that scores."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from judgefree.config import Sampling
from judgefree.config_judges import PolicyJudge, RewardModelJudge
from judgefree.devices import device_of
from judgefree.episodes import Prompt
from judgefree.errors import JudgefreeError
from judgefree.evaluation.loading import load_model
from judgefree.judging.judges import Bill, Contest, Judgement, Rating, Verdict, Work
from judgefree.judging.words import Reply, WordsJudge
from judgefree.prompting import encode_chat, encode_text, inert, inert_messages
from judgefree.sampling.rules import end_ids
from judgefree.sampling.transformers_engine import max_positions, sample


def policy_judge(settings: PolicyJudge, texts: dict[str, str], root: Path) -> WordsJudge:
    """Raises JudgefreeError for a model that is not there, or that is to chat and has no template."""
    return WordsJudge(AskedPolicy(settings, root / "models" / settings.model), texts)


class AskedPolicy:
    """Implements `words.Ask`: the most likely reply, so that the same question always gets the same one."""

    def __init__(self, settings: PolicyJudge, folder: Path) -> None:
        self.settings = settings
        self.model, self.tokenizer = load_model(
            folder, settings.device or "cpu", settings.precision or "fp32", "the judge's device"
        )

    def __call__(self, prompts: Sequence[str], read: Callable[[str], Any]) -> list[Reply]:
        encoded = [self._encode(prompt) for prompt in prompts]
        room = (max_positions(self.model) or math.inf) - self.settings.max_completion_tokens
        asked = [Prompt(ids, ("judge", row)) for row, ids in enumerate(encoded) if len(ids) <= room]
        completions = sample(
            self.model, self.tokenizer, asked, 1, seed=0, step=0, greedy=True,
            settings=Sampling(temperature=1.0, max_completion_tokens=self.settings.max_completion_tokens),
            eos_ids=end_ids(self.model, self.tokenizer), batch_rows=self.settings.batch_rows,
        )  # fmt: skip
        said = iter(completions)
        return [
            Reply((one := next(said)[0]).text, bill=Bill(len(ids), len(one.ids)))
            if len(ids) <= room
            else Reply(None, f"the prompt has {len(ids)} tokens, and the judge has room for {room}")
            for ids in encoded
        ]

    def _encode(self, prompt: str) -> list[int]:
        if self.settings.chat:
            return encode_chat(self.tokenizer, [{"role": "user", "content": prompt}])
        return encode_text(self.tokenizer, prompt)


class RewardModel:
    """Implements `judges.Judge` by scores: the higher one wins, and the preference is the Bradley-Terry probability.

    Raises JudgefreeError for a folder that holds no sequence-classification model with one output and its tokenizer.
    """

    def __init__(self, settings: RewardModelJudge, root: Path) -> None:
        self.settings = settings
        self.model, self.tokenizer = _load(root / settings.folder, settings)
        positions = max_positions(self.model)
        self.longest = min(settings.max_tokens, positions or settings.max_tokens)

    def compare(self, contests: Sequence[Contest]) -> list[Judgement]:
        works = dict.fromkeys(
            Work(one.instruction, text) for one in contests for text in (one.first, one.second)
        )  # both orders of a contest hold the same two
        ratings = dict(zip(works, self.rate(list(works)), strict=True))
        return [
            self._judgement(ratings[Work(one.instruction, one.first)], ratings[Work(one.instruction, one.second)])
            for one in contests
        ]

    def rate(self, works: Sequence[Work]) -> list[Rating]:
        encoded = [self._encode(one) for one in works]
        fitting = sorted(
            (row for row, ids in enumerate(encoded) if len(ids["input_ids"]) <= self.longest),
            key=lambda row: -len(encoded[row]["input_ids"]),
        )
        # Transformers finds a row's end by the padding id; a model that names none can only take rows one by one
        size = self.settings.batch_rows if self.model.config.get_text_config().pad_token_id is not None else 1
        scores: dict[int, float] = {}
        for start in range(0, len(fitting), size):
            rows = fitting[start : start + size]
            scores |= zip(rows, self._scores([encoded[row] for row in rows]), strict=True)
        return [self._rating(len(ids["input_ids"]), scores.get(row)) for row, ids in enumerate(encoded)]

    def _encode(self, work: Work) -> dict[str, list[int]]:
        if not self.settings.chat:
            return dict(self.tokenizer(*(inert(self.tokenizer, one) for one in (work.instruction, work.text))))
        if not self.tokenizer.chat_template:
            raise JudgefreeError(f"the tokenizer in {self.settings.folder} has no chat template", "set chat: false")
        messages = [{"role": "user", "content": work.instruction}, {"role": "assistant", "content": work.text}]
        text = self.tokenizer.apply_chat_template(inert_messages(self.tokenizer, messages), tokenize=False)
        return dict(self.tokenizer(text, add_special_tokens=False))  # the template has them all

    def _scores(self, rows: list[dict[str, list[int]]]) -> list[float]:
        if len(rows) == 1:
            batch = {name: torch.tensor([ids]) for name, ids in rows[0].items()}
        else:
            batch = self.tokenizer.pad(rows, return_tensors="pt")
        with torch.no_grad():
            output = self.model(**{name: ids.to(self.model.device) for name, ids in batch.items()})
        return output.logits[:, 0].float().tolist()

    def _rating(self, tokens: int, score: float | None) -> Rating:
        if score is None:
            return Rating(said=f"has {tokens} tokens, and the reward model reads {self.longest}")
        if not math.isfinite(score):
            return Rating(said=f"the reward model's score is {score}", bill=Bill(tokens))
        return Rating(score, f"{score:.6g}", Bill(tokens))

    def _judgement(self, first: Rating, second: Rating) -> Judgement:
        bill = Bill(first.bill.prompt_tokens + second.bill.prompt_tokens)
        for one in (first, second):
            if math.isnan(one.score):
                return Judgement(None, said=one.said, bill=bill)
        ahead = second.score - first.score
        verdict = (
            Verdict.TIE if abs(ahead) <= self.settings.tie_within else Verdict.SECOND if ahead > 0 else Verdict.FIRST
        )
        preference = 0.5 * (1 + math.tanh(ahead / 2))  # the logistic function, without overflow
        return Judgement(verdict, preference, f"{first.said} against {second.said}", bill)


def _load(folder: Path, settings: RewardModelJudge) -> tuple[Any, Any]:
    place = device_of(settings.device or "cpu", "the judge's device")
    dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    safe = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right", **safe)
        model: Any = AutoModelForSequenceClassification.from_pretrained(
            folder, use_safetensors=True, dtype=dtype, **safe
        )
    except (OSError, ValueError) as error:
        raise JudgefreeError(
            f"{folder} cannot be loaded as a reward model with tokenizer: {error}",
            "name a local folder with a sequence-classification model in safetensors",
        ) from error
    if model.config.num_labels != 1:
        raise JudgefreeError(
            f"{folder} has {model.config.num_labels} outputs, and a reward model has one", "name another folder"
        )
    return model.eval().to(place), tokenizer
