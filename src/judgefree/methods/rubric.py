"""Rubric-as-reward: a paid judge scores every completion by a rubric. The baseline that the other methods do without.

An episode is one prompt and `group_size` completions; the judge reads each answer with the criteria of the prompt file and
gives 1 to 10 (judging/words.py), which is the reward; advantages are taken within the prompt's group (GRPO, or what
`training.advantage` says). SpyRL's paper compares with this under GPT-4o; no label is read.

A completion without a readable answer earns the lowest score and is not put to the judge. A rating that failed is no
reward: it is left out of its group's statistics, not learnt from, and counted. When a judge answers none of a rollout's
questions, training ends there (MayPass): what the checkpoints hold goes on once the judge is back.

What it costs is metered: `judge/cost`, `judge/tokens`, `judge/failed` of every rollout, all processes together. Answers
are kept on disk by what was asked, so a rollout that is made again after a stop is neither paid for twice nor rewarded
otherwise.

State between steps: none.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from judgefree.advantages import group_advantages
from judgefree.config import Strict
from judgefree.config_judges import EndpointJudge
from judgefree.episodes import Completion, Example, Policy, Prompt, Rollout, Turn
from judgefree.errors import MayPass
from judgefree.judging.judges import Rating, Work, total
from judgefree.judging.words import LOWEST
from judgefree.scoring.answers import final_answer

if TYPE_CHECKING:
    from judgefree.methods import Setting


class Options(Strict):
    """judge: the endpoint, as under `judges` of params.yaml; here it is a setting of the run, and a part of its key.
    prompts: the prompt file with the rubric (texts.JUDGE_TEXTS)."""

    judge: EndpointJudge
    prompts: str


class Rubric:
    def __init__(self, options: Options, setting: "Setting") -> None:
        from judgefree.judging.endpoint import endpoint_judge  # httpx takes its time to import

        self.setting = setting
        self.judge = endpoint_judge(options.judge, dict(setting.texts), setting.root)

    def play(self, examples: Sequence[Example], policy: Policy) -> Rollout:
        prompts = [Prompt(policy.encode(example.question), (example.id, "attempt", 0)) for example in examples]
        sampled = policy.sample(prompts, self.setting.training.group_size)
        played = [
            (example, prompt, completion)
            for example, prompt, group in zip(examples, prompts, sampled, strict=True)
            for completion in group
        ]
        answers = [final_answer(completion, self.setting.prompt.answer) for _, _, completion in played]
        ratings = self._ratings([example for example, _, _ in played], answers)
        rewards = [rating.score for rating in ratings]
        advantages, dead = group_advantages(
            rewards,
            [example.id for example, _, _ in played],
            self.setting.training.advantage,
            policy.gather(rewards),
        )
        turns = [
            Turn(
                prompt.ids,
                completion.ids,
                "attempt",
                example.id,
                advantage=float(advantage),
                dead=bool(is_dead),
                finish_reason=completion.finish_reason,
                sampling_logprobs=completion.logprobs,
            )
            for (example, prompt, completion), advantage, is_dead in zip(played, advantages, dead, strict=True)
        ]
        records = [
            _record(example, completion, answer, rating, turn)
            for (example, _, completion), answer, rating, turn in zip(played, answers, ratings, turns, strict=True)
        ]
        asked = policy.gather([rating for rating, answer in zip(ratings, answers, strict=True) if answer])
        if asked and all(math.isnan(rating.score) for rating in asked):
            raise MayPass(
                f"the judge answered none of a rollout's {len(asked)} questions: {asked[0].said}",
                "see that it is up, then repeat: training goes on from its newest checkpoint",
            )
        metrics = _metrics(rewards, answers, self.setting.training.group_size)
        return Rollout(turns, records, {**metrics, **_costs(asked)})

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def _ratings(self, examples: Sequence[Example], answers: Sequence[str | None]) -> list[Rating]:
        works = [Work(example.question, answer) for example, answer in zip(examples, answers, strict=True) if answer]
        given = iter(self.judge.rate(works))
        return [next(given) if answer else Rating(LOWEST, "no readable answer") for answer in answers]


def _record(example: Example, completion: Completion, answer: str | None, rating: Rating, turn: Turn) -> dict[str, Any]:
    return {
        "prompt_id": example.id, "role": turn.role, "text": completion.text, "answer": answer, "said": rating.said,
        "reward": rating.score, "advantage": turn.advantage, "finish_reason": turn.finish_reason,
        "tokens": len(turn.completion_ids),
    }  # fmt: skip


def _costs(asked: Sequence[Rating]) -> dict[str, float]:
    bill = total([rating.bill for rating in asked])
    return {
        "judge/cost": bill.cost,
        "judge/tokens": float(bill.prompt_tokens + bill.completion_tokens),
        "judge/failed": float(sum(math.isnan(rating.score) for rating in asked)),
    }


def _metrics(rewards: Sequence[float], answers: Sequence[str | None], group_size: int) -> dict[str, float]:
    grouped = np.asarray(rewards).reshape(-1, group_size)
    judged = grouped[np.isfinite(grouped)]
    spreads = [group[np.isfinite(group)].std(ddof=1) for group in grouped if np.isfinite(group).sum() > 1]
    return {
        "reward": float(judged.mean()) if judged.size else math.nan,
        "reward_std": float(np.mean(spreads)) if spreads else 0.0,
        "reward/missing": float(np.isnan(grouped).mean()),
        "completions/unparsed_ratio": sum(answer is None for answer in answers) / len(answers),
    }
