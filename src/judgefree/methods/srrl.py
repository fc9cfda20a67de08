"""SRRL: reinforcement learning with a self-review between a failed attempt and a second one.

An episode (paper; its parent is ERL, experiential reinforcement learning), with r in {0, 1} for a wrong or right answer:

    y1 ~ pi(. | x), r1            `group_size` attempts at every question
    where the gate opens:
      D  ~ pi(. | x, y1, r1, m)   a review of the attempt, with a past successful review m from memory in its prompt
      y2 ~ pi(. | x, D), r2       a second attempt with the review's guidelines before the question
    reward of D is r2; m <- m + D where r2 = 1
    loss = policy gradient over y1, D and y2 + lambda * sum over r2 = 1 of -log pi(y2 | x) + beta * KL

Advantages are taken within groups: the attempts, the reviews and the second attempts of a question are one each.
Imitation on the bare question x is what moves the gain of a review into the policy: nothing is reviewed when it is used.

Gates: `per_rollout` reviews every wrong attempt; `all_failed` only those of a question that no attempt solved; `always`
(ablation: no gate) reviews right attempts too, whose line of feedback is `feedback_solved` instead of `feedback`.

Guidelines are the text inside the last closed <prompt> tag of a review that holds any. A review without one counts as a
whole or, with `untagged: drop`, gets no second attempt and the reward 0; so does a review that says nothing. What the grader
gave up on has no reward: it is neither reviewed nor learnt from. A review or second attempt whose prompt would exceed
max_prompt_tokens (a review's without memory, then) is not played, and counted.

Memory holds verified guidelines only. It is read as it stood when the rollout began and appended to at its end in row
order over all processes, the oldest leaving first. Rules: `latest`; `random`, from (seed, rollout, example, attempt);
`nearest`, the highest TF-IDF cosine between question texts, the newest of equals.

Where ours differs: the paper does not state its memory rule, the groups of reviews, nor how the imitation term is averaged;
docs/srrl.md says what we took. Completions that were cut off are never imitated. All roles share the length limit and the
stop strings.

State between steps: the memory and the number of rollouts played.
"""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from judgefree.advantages import group_advantages, group_rows
from judgefree.config import Count, Strict
from judgefree.episodes import Completion, Example, Policy, Prompt, Rollout, Turn, stream_seed
from judgefree.errors import JudgefreeError, PromptTooLong
from judgefree.prompting import fill
from judgefree.scoring.answers import extract
from judgefree.scoring.grader import REWARD

if TYPE_CHECKING:
    from judgefree.methods import Setting

TEXTS = {
    "feedback": (),
    "feedback_solved": (),
    "memory": ("review",),
    "review": ("question", "attempt", "feedback", "memory"),
    "second": ("guidelines", "question"),
}
ATTEMPT, REVIEW, SECOND, DISTILLED = "attempt", "review", "second", "distilled"
_GUIDELINES = re.compile(r"<prompt>((?:(?!<prompt>).)*?)</prompt>", re.DOTALL)  # an unclosed tag is passed over
_TOKEN = r"\w+|[^\w\s]"  # words and numbers, and each operator


class Memory(Strict):
    """Which of the past successful reviews a review is shown, and how many are kept."""

    rule: Literal["latest", "random", "nearest"]
    size: Count


class Options(Strict):
    """distillation_weight: lambda, 0 for none. distillation: `token`, every imitated token weighs lambda times a token of
    the policy loss, under the same denominator; `sequence`, every imitated completion weighs alike, all of them together
    as much as under `token`. prompts: the prompt file. memory: None for no memory."""

    gate: Literal["per_rollout", "all_failed", "always"]
    untagged: Literal["whole", "drop"]
    prompts: str
    distillation_weight: Annotated[float, Field(ge=0)]
    distillation: Literal["token", "sequence"] | None = None
    memory: Memory | None = None

    @model_validator(mode="after")
    def _distilling(self) -> "Options":
        if (self.distillation_weight > 0) != (self.distillation is not None):
            raise ValueError("distillation is given exactly when distillation_weight is above 0; add or remove it")
        return self


@dataclass
class Said:
    """One completion of an episode. follows: the attempt that a review is of, the review that a second attempt uses.
    reward: NaN where nothing is known. guidelines: of a review, None where they were dropped. memory: what it was shown.
    imitation: of a second attempt, its weight as an answer to the bare question."""

    role: str
    example: Example
    slot: int
    prompt_ids: list[int]
    completion: Completion
    follows: "Said | None" = None
    reward: float = math.nan
    answer: str | None = None
    verdict: str | None = None
    guidelines: str | None = None
    tagged: bool | None = None
    memory: str | None = None
    imitation: float = 0.0

    @property
    def place(self) -> tuple[str, int]:
        return self.example.id, self.slot


class Srrl:
    def __init__(self, options: Options, setting: "Setting") -> None:
        if options.distillation == "sequence" and setting.training.loss.aggregation == "grpo":
            raise JudgefreeError(
                "options.distillation: sequence, under loss.aggregation grpo, which is a mean per sequence already",
                "use distillation: token",
            )
        self.options = options
        self.setting = setting
        self.texts = setting.texts
        self.memory: list[dict[str, str]] = []
        self.rollouts = 0

    def play(self, examples: Sequence[Example], policy: Policy) -> Rollout:
        attempts = self._attempts(examples, policy)
        gated = self._gated(attempts)
        reviews = self._reviews(gated, policy)
        seconds = self._seconds(reviews, policy)
        self._weigh(seconds, policy)
        order = {example.id: number for number, example in enumerate(examples)}
        # by example, as over any number of processes: their rows are shared out among a rollout's updates
        said = sorted([*attempts, *reviews, *seconds], key=lambda one: order[one.example.id])
        rewards = [one.reward for one in said]
        advantages, dead = group_advantages(
            rewards, [_group(one) for one in said], self.setting.training.advantage, policy.gather(rewards)
        )
        sampled = [_turn(one, float(a), bool(d)) for one, a, d in zip(said, advantages, dead, strict=True)]
        turns = [part for one, turn in zip(said, sampled, strict=True) for part in (turn, *_imitated(one))]
        records = [_record(one, turn) for one, turn in zip(said, sampled, strict=True)]
        self._remember(seconds, policy)
        self.rollouts += 1
        too_long = len(gated) - len(reviews) + sum(one.guidelines is not None for one in reviews) - len(seconds)
        counts = {"reviews/gated": len(gated), "rollout/too_long": too_long,
                  "rollout/distilled": sum(one.imitation > 0 for one in seconds)}  # fmt: skip
        metrics = measure(policy.gather([_facts(one) for one in said]), policy.gather([counts]))
        metrics["memory/size"] = float(len(self.memory))
        return Rollout(turns, records, metrics, watched=ATTEMPT)

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self.memory, "rollouts": self.rollouts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory, self.rollouts = list(state.get("memory", [])), state.get("rollouts", 0)

    # ----------------------------------------------------------------------------------------------------- the episode

    def _attempts(self, examples: Sequence[Example], policy: Policy) -> list[Said]:
        prompts = [Prompt(policy.encode(example.question), (example.id, ATTEMPT, 0)) for example in examples]
        groups = policy.sample(prompts, self.setting.training.group_size)
        return self._graded([
            Said(ATTEMPT, example, slot, prompt.ids, completion)
            for example, prompt, group in zip(examples, prompts, groups, strict=True)
            for slot, completion in enumerate(group)
        ])  # fmt: skip

    def _gated(self, attempts: Sequence[Said]) -> list[Said]:
        """The attempts to be reviewed; never one without a reward."""
        judged = [one for one in attempts if math.isfinite(one.reward)]
        if self.options.gate == "always":
            return judged
        solved = {one.example.id for one in judged if one.reward >= 1}
        wrong = [one for one in judged if one.reward < 1]
        return [one for one in wrong if self.options.gate == "per_rollout" or one.example.id not in solved]

    def _reviews(self, gated: Sequence[Said], policy: Policy) -> list[Said]:
        recalled = self._recalled(gated)

        def ask(attempt: Said, past: str | None) -> list[int]:
            text = fill(
                self.texts["review"],
                question=attempt.example.question,
                attempt=attempt.completion.text,
                feedback=self.texts["feedback" if attempt.reward < 1 else "feedback_solved"],
                memory="" if past is None else fill(self.texts["memory"], review=past),
            )
            return policy.encode_message(text)

        def prompt(attempt: Said) -> list[int]:
            try:
                return ask(attempt, recalled.get(attempt.place))
            except PromptTooLong:  # long guidelines in memory must not end all reviews, and with them its renewal
                recalled.pop(attempt.place, None)
                return ask(attempt, None)

        reviews = _answers(policy, REVIEW, gated, prompt)
        for review in reviews:
            review.memory = recalled.get(review.place)
            tagged = guidelines(review.completion.text)
            review.tagged = tagged is not None
            whole = review.completion.text.strip() if self.options.untagged == "whole" else ""
            review.guidelines = tagged or whole or None
        return reviews

    def _seconds(self, reviews: Sequence[Said], policy: Policy) -> list[Said]:
        """The second attempts, graded; what they earn is what their reviews earn."""

        def prompt(review: Said) -> list[int]:
            assert review.guidelines
            return policy.encode(
                fill(self.texts["second"], guidelines=review.guidelines, question=review.example.question)
            )

        for review in reviews:
            review.reward = 0.0 if review.guidelines is None else math.nan
        usable = [review for review in reviews if review.guidelines is not None]
        seconds = self._graded(_answers(policy, SECOND, usable, prompt))
        for second in seconds:
            assert second.follows
            second.follows.reward = second.reward
        return seconds

    def _graded(self, said: list[Said]) -> list[Said]:
        for one in said:
            one.answer = extract(one.completion.text, self.setting.prompt.answer)
        verdicts = self.setting.grader.grade([(str(one.example.answer), one.answer) for one in said])
        for one, verdict in zip(said, verdicts, strict=True):
            one.verdict, one.reward = verdict, REWARD[verdict]
        return said

    # ------------------------------------------------------------------------------------------ imitation and memory

    def _weigh(self, seconds: Sequence[Said], policy: Policy) -> None:
        """Gives every right second attempt, unless it was cut off, the weight that its imitation has per token."""
        chosen = [one for one in seconds if one.reward >= 1 and one.completion.finish_reason == "stop"]
        lengths = policy.gather([len(one.completion.ids) for one in chosen])
        for one in chosen:
            one.imitation = self.options.distillation_weight
            if self.options.distillation == "sequence":
                one.imitation *= sum(lengths) / len(lengths) / len(one.completion.ids)

    def _recalled(self, gated: Sequence[Said]) -> dict[tuple[str, int], str]:
        """What the review of each attempt, by example and slot, is shown; empty where there is no memory yet."""
        if self.options.memory is None or not self.memory:
            return {}
        rule, size = self.options.memory.rule, len(self.memory)
        questions = list(dict.fromkeys(one.example.question for one in gated))
        near: dict[str, int] = {}
        if rule == "nearest":
            near = dict(zip(questions, nearest([past["question"] for past in self.memory], questions), strict=True))

        def number(one: Said) -> int:
            if rule == "random":
                return stream_seed(self.setting.seed, self.rollouts, one.example.id, "memory", one.slot) % size
            return near.get(one.example.question, size - 1)

        return {one.place: self.memory[number(one)]["review"] for one in gated}

    def _remember(self, seconds: Sequence[Said], policy: Policy) -> None:
        if self.options.memory is None:
            return
        verified = [
            {"example": one.example.id, "question": one.example.question, "review": str(one.follows.guidelines)}
            for one in seconds
            if one.reward >= 1 and one.follows
        ]
        self.memory = [*self.memory, *policy.gather(verified)][-self.options.memory.size :]


def guidelines(review: str) -> str | None:
    """The text inside the last closed <prompt> tag that holds any; None where there is none. Time is linear."""
    return next((text for found in reversed(_GUIDELINES.findall(review)) if (text := found.strip())), None)


def nearest(stored: Sequence[str], asked: Sequence[str]) -> list[int]:
    """For each of the asked texts the number of the stored one with the highest TF-IDF cosine, the last of equals.

    Document frequencies are those of the stored texts; words, numbers and operators count alike.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second to import, for one rule of three

    if not asked:
        return []
    vectors = TfidfVectorizer(token_pattern=_TOKEN)
    known = vectors.fit_transform(stored)  # rows of length 1
    cosines = (vectors.transform(asked) @ known.T).toarray()
    return [len(stored) - 1 - int(np.argmax(row[::-1])) for row in cosines]


def _answers(policy: Policy, role: str, to: Sequence[Said], prompt: Callable[[Said], list[int]]) -> list[Said]:
    """One completion to each of `to`, without those whose prompt is too long. Always one call: engines that serve several
    processes want one from each."""
    asked: list[tuple[Said, list[int]]] = []
    for one in to:
        with suppress(PromptTooLong):  # counted in `rollout/too_long`
            asked.append((one, prompt(one)))
    sampled = policy.sample([Prompt(ids, (one.example.id, role, one.slot)) for one, ids in asked], 1)
    return [
        Said(role, one.example, one.slot, ids, completion, follows=one)
        for (one, ids), (completion,) in zip(asked, sampled, strict=True)
    ]


def _group(one: Said) -> str:
    return f"{one.example.id}/{one.role}"


def _turn(one: Said, advantage: float, dead: bool) -> Turn:
    return Turn(
        one.prompt_ids,
        one.completion.ids,
        role=one.role,
        group=_group(one),
        advantage=advantage,
        dead=dead,
        finish_reason=one.completion.finish_reason,
        sampling_logprobs=one.completion.logprobs,
    )


def _imitated(second: Said) -> list[Turn]:
    """The completion as an answer to the bare question, where it has a weight."""
    if not second.imitation:
        return []
    assert second.follows and second.follows.follows
    bare, group = second.follows.follows.prompt_ids, f"{second.example.id}/{DISTILLED}"
    return [Turn(bare, second.completion.ids, DISTILLED, group, imitation_weight=second.imitation)]


def _record(one: Said, turn: Turn) -> dict[str, Any]:
    return {
        "prompt_id": one.example.id, "slot": one.slot, "role": one.role, "text": one.completion.text,
        "answer": one.answer, "gold": one.example.answer, "verdict": one.verdict, "reward": one.reward,
        "advantage": turn.advantage, "finish_reason": turn.finish_reason, "tokens": len(turn.completion_ids),
        "memory": one.memory, "tagged": one.tagged, "guidelines": one.guidelines, "distilled": one.imitation > 0,
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- metrics

Facts = tuple[str, str, int, float, str | None, bool | None]  # role, group, tokens, reward, verdict, tagged


def _facts(one: Said) -> Facts:
    return one.role, _group(one), len(one.completion.ids), one.reward, one.verdict, one.tagged


def measure(facts: Sequence[Facts], counts: Sequence[dict[str, int]]) -> dict[str, float]:
    """The rollout of all processes in numbers; what was not measured (no review, say) is left out. `reward` and its kin are
    those of the attempts, as RLVR's."""
    of = {role: [one for one in facts if one[0] == role] for role in (ATTEMPT, REVIEW, SECOND)}
    rewards = {role: [one[3] for one in several if math.isfinite(one[3])] for role, several in of.items()}
    attempts, reviews = of[ATTEMPT], of[REVIEW]
    spreads = [
        float(np.std(kept, ddof=1))
        for rows in group_rows([one[1] for one in attempts]).values()
        if len(kept := [attempts[row][3] for row in rows if math.isfinite(attempts[row][3])]) > 1
    ]
    metrics = {name: float(sum(count[name] for count in counts)) for name in counts[0]}
    metrics["reviews/gated"] /= len(attempts)
    metrics |= {
        "reward": float(np.mean(rewards[ATTEMPT])) if rewards[ATTEMPT] else math.nan,
        "reward_std": float(np.mean(spreads)) if spreads else 0.0,
        "reward/missing": 1 - len(rewards[ATTEMPT]) / len(attempts),
        "completions/unparsed_ratio": sum(one[4] == "unparsed" for one in attempts) / len(attempts),
        "rollout/completions": float(len(facts)),
        "rollout/tokens": float(sum(one[2] for one in facts)),
    }
    for role, several in of.items():
        metrics[f"rollout/completions/{role}"] = float(len(several))
        metrics[f"rollout/tokens/{role}"] = float(sum(one[2] for one in several))
        if role != ATTEMPT and rewards[role]:
            metrics[f"reward/{role}"] = float(np.mean(rewards[role]))
    if reviews:
        metrics["reviews/untagged"] = sum(not one[5] for one in reviews) / len(reviews)
    return metrics
