"""A common measure of reward models that were trained beside different policies: pairs of right and wrong responses that
the policies of two arms, together, give to the same prompts at their end."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from judgefree.config import PromptFormat
from judgefree.data.generated import MARKER
from judgefree.data.splits import load_split
from judgefree.places import INSIDE
from judgefree.reward_model.model import ValueAnchoredRewardModel, answered, load_reward_model, messages
from judgefree.reward_model.watch import pair_accuracy

POLICIES = (
    "save",
    "save-frozen",
)  # whose responses: the method's, and those that found the initial reward model's flaw
ROLLOUTS = 4  # at the end of each run
BATCH_TOKENS = 16384


@dataclass(frozen=True)
class Asked:
    """A prompt and what the policies wrote to it; truths: 1 for a right response."""

    question: str
    texts: Sequence[str]
    truths: Sequence[float]


def asked_of(work: Path, runs: Sequence[str], dataset: str) -> list[Asked]:
    """The last rollouts of runs that were asked the same prompts, put together by prompt."""
    rows = pd.concat([_last_rollouts(work / "models" / run / "records") for run in runs])
    examples = {example.id: example for example in load_split(work / "data" / dataset, "train")}
    return [
        Asked(examples[name].question, texts, [float(_is_right(text, str(examples[name].answer))) for text in texts])
        for name, texts in rows.groupby("prompt_id")["text"].agg(list).items()
    ]


def accuracy_on(asked: Sequence[Asked], reward_model: Path, prompt: PromptFormat) -> float:
    """How often a reward model puts the right one of two responses to a prompt above the wrong one."""
    rewards = list(rewards_of(load_reward_model(reward_model), asked, prompt))
    return pair_accuracy(rewards, [one.truths for one in asked])[0]


def rewards_of(
    model: ValueAnchoredRewardModel, asked: Sequence[Asked], prompt: PromptFormat
) -> Iterator[Sequence[float]]:
    heads = [messages(prompt, one.question) for one in asked]
    rows = [model.encode(answered(head, text))[0] for head, one in zip(heads, asked, strict=True) for text in one.texts]
    rewards = iter(model.read(model.rewards, rows, BATCH_TOKENS))
    return ([next(rewards) for _ in one.texts] for one in asked)


def measured(work: Path, seeds: Mapping[str, str], dataset: str, prompt: PromptFormat, judge: str) -> dict[str, float]:
    """Accuracy of every run's last reward model by arm, and of the initial one under its own name, on the responses of one
    seed; empty where one of POLICIES is not there. seeds: run by arm."""
    if not set(POLICIES) <= set(seeds):
        return {}
    asked = asked_of(work, [seeds[arm] for arm in POLICIES], dataset)
    folders = {judge: work / "models" / judge, **{arm: work / "models" / run / INSIDE for arm, run in seeds.items()}}
    return {name: accuracy_on(asked, folder, prompt) for name, folder in folders.items()}


def _last_rollouts(folder: Path) -> pd.DataFrame:
    rows = pd.concat([pd.read_parquet(file) for file in sorted(folder.glob("*.parquet"))])
    return rows[rows["step"].isin(sorted(rows["step"].unique())[-ROLLOUTS:])]


def _is_right(text: str, answer: str) -> bool:
    return text.split()[-2:] == [MARKER, answer]
