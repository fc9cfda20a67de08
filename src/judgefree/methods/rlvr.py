"""RLVR: reinforcement learning from verifiable rewards, the supervised baseline of every paper here.

An episode is one prompt and `group_size` completions; the reward is 1 for a correct final answer and 0 for a wrong or
missing one; advantages are taken within the prompt's group. A completion that the grader could not judge (a time-out,
an error) has no reward: it is left out of its group's statistics and not learnt from, never counted as wrong.

With `imitation_weight` it is rejection-sampling fine-tuning (RFT) instead: the right completions are imitated, and nothing
else. A completion that was cut off is not imitated: it would teach not to end. An imitated token's loss is that weight times
-log pi, over the same denominator as a token's of RLVR, in which the sampled completions count as well.

State between steps: none.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from judgefree.advantages import group_advantages
from judgefree.config import Positive, Strict
from judgefree.episodes import Completion, Example, Policy, Prompt, Rollout, Turn
from judgefree.scoring.answers import extract
from judgefree.scoring.grader import REWARD

if TYPE_CHECKING:
    from judgefree.methods import Setting


class Options(Strict):
    """imitation_weight: imitate right completions with this weight and take no advantages; None: RLVR."""

    imitation_weight: Positive | None = None


class Rlvr:
    def __init__(self, options: Options, setting: "Setting") -> None:
        self.options = options
        self.setting = setting

    def play(self, examples: Sequence[Example], policy: Policy) -> Rollout:
        training = self.setting.training
        prompts = [Prompt(policy.encode(example.question), (example.id, "attempt", 0)) for example in examples]
        sampled = policy.sample(prompts, training.group_size)
        played = [
            (example, prompt, completion)
            for example, prompt, completions in zip(examples, prompts, sampled, strict=True)
            for completion in completions
        ]
        answers = [extract(completion.text, self.setting.prompt.answer) for _, _, completion in played]
        verdicts = self.setting.grader.grade(
            [(str(example.answer), answer) for (example, _, _), answer in zip(played, answers, strict=True)]
        )
        rewards = [REWARD[verdict] for verdict in verdicts]
        advantages, dead = group_advantages(
            rewards, [example.id for example, _, _ in played], training.advantage, policy.gather(rewards)
        )
        weight = self.options.imitation_weight
        if weight:
            advantages, dead = np.zeros_like(advantages), np.ones_like(dead)
        turns = [
            _turn(example, prompt, completion, float(advantage), bool(is_dead))
            for (example, prompt, completion), advantage, is_dead in zip(played, advantages, dead, strict=True)
        ]
        records = [
            _record(example, turn, completion.text, answer, verdict, reward)
            for (example, _, completion), turn, answer, verdict, reward in zip(
                played, turns, answers, verdicts, rewards, strict=True
            )
        ]
        if weight:
            turns = [
                part
                for turn, reward in zip(turns, rewards, strict=True)
                for part in (turn, *_imitated(turn, reward, weight))
            ]
        return Rollout(turns, records, _metrics(rewards, verdicts, training.group_size))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def _turn(example: Example, prompt: Prompt, completion: Completion, advantage: float, dead: bool) -> Turn:
    return Turn(
        prompt.ids,
        completion.ids,
        role="attempt",
        group=example.id,
        advantage=advantage,
        dead=dead,
        finish_reason=completion.finish_reason,
        sampling_logprobs=completion.logprobs,
    )


def _imitated(turn: Turn, reward: float, weight: float) -> list[Turn]:
    if reward < 1 or math.isnan(reward) or turn.finish_reason == "length":
        return []
    return [Turn(turn.prompt_ids, turn.completion_ids, "imitated", turn.group, imitation_weight=weight)]


def _record(example: Example, turn: Turn, text: str, answer: str | None, verdict: str, reward: float) -> dict[str, Any]:
    return {
        "prompt_id": example.id, "role": turn.role, "text": text, "answer": answer, "gold": example.answer,
        "verdict": verdict, "reward": reward, "advantage": turn.advantage, "finish_reason": turn.finish_reason,
        "tokens": len(turn.completion_ids),
    }  # fmt: skip


def _metrics(rewards: Sequence[float], verdicts: Sequence[str], group_size: int) -> dict[str, float]:
    grouped = np.asarray(rewards).reshape(-1, group_size)
    judged = grouped[np.isfinite(grouped)]
    spreads = [group[np.isfinite(group)].std(ddof=1) for group in grouped if np.isfinite(group).sum() > 1]
    return {
        "reward": float(judged.mean()) if judged.size else math.nan,
        "reward_std": float(np.mean(spreads)) if spreads else 0.0,
        "reward/missing": float(np.isnan(grouped).mean()),
        "completions/unparsed_ratio": verdicts.count("unparsed") / len(verdicts),
    }
