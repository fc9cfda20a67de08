"""RLIF: reinforcement learning from internal feedback, with two rewards that no label enters.

An episode is one prompt and `group_size` completions. Paper, "Two is better than one: a collapse-free multi-reward RLIF
training framework":

    R_cluster = share of the group's readable answers that equal this completion's, 0 where it has none
    channel 1 = R_cluster + 0.1 * (an answer stands in the box)
    channel 2 = self-certainty: mean over the completion of KL(U || pi)
    A         = alpha * z(channel 1) + beta * z(channel 2), z within the group; then whitened over the batch (GDPO)
    loss      = clipped surrogate with KL-Cov and a KL term: the trainer's part (training.loss)

The paper's baselines and controls are values of `reward`: certainty (Intuitor), cluster, majority (TTRL: 1 for agreeing
with the most frequent answer), random (a coin: what any reward would buy); `combine_then_normalise` is its ablation.

Where ours differs: answers are compared by canonical key, which is symmetric, instead of by math-verify, which is not;
certainty is that under the sampling temperature; whitening is an option, since the paper's equations leave it out.

Which answers form clusters: numbers, exact formulas, tuples, sets, matrices. Words, and what is no more than normalised
characters, do so only where the key is settled (words of four letters or more, numbers in another base), so that
fragments of text are no votes. All others count as unreadable: they earn 0 and no share is taken of them.

The gold answer reaches no reward. Where there is one, the accuracy of the vote is logged. `own_signal/rollout`, by which
`select: own_signal` chooses, is the share of readable answers times I(question; answer) / log(questions): it grows with
agreement inside groups and falls to 0 where all questions get the same answer, which agreement and certainty reward.

State between steps: the number of rollouts played, which the random control draws from.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from judgefree.advantages import channel_advantages, whiten
from judgefree.config import Positive, Strict
from judgefree.episodes import Completion, Example, Policy, Prompt, Rollout, Turn, stream_seed
from judgefree.errors import JudgefreeError
from judgefree.scoring.answers import canonical_key, final_answer, is_formula, is_settled

if TYPE_CHECKING:
    from judgefree.methods import Setting

Reward = Literal["multi", "cluster", "certainty", "majority", "random"]


class Options(Strict):
    """alpha, beta: weights of cluster + format and of self-certainty (multi only). format_weight: what an answer in its
    place earns beside the cluster (multi and cluster). final_batch_norm: whiten the advantages over the whole batch."""

    reward: Reward
    final_batch_norm: bool
    alpha: Positive | None = None
    beta: Positive | None = None
    format_weight: Annotated[float, Field(ge=0)] | None = None
    combine_then_normalise: Literal[True] | None = None

    @model_validator(mode="after")
    def _weights(self) -> "Options":
        wanted = {"alpha": self.reward == "multi", "beta": self.reward == "multi",
                  "format_weight": self.reward in ("multi", "cluster")}  # fmt: skip
        for name, want in wanted.items():
            if want != (getattr(self, name) is not None):
                raise ValueError(f"reward {self.reward!r} {'wants' if want else 'has no'} {name}; "
                                 f"{'add' if want else 'remove'} it")  # fmt: skip
        if self.combine_then_normalise and self.reward != "multi":
            raise ValueError(f"reward {self.reward!r} has nothing to combine; remove combine_then_normalise")
        return self


class Rlif:
    def __init__(self, options: Options, setting: "Setting") -> None:
        if setting.training.advantage != "grpo":
            raise JudgefreeError(
                f"training.advantage: RLIF normalises each channel within its group, not by {setting.training.advantage}",
                "set advantage: grpo for this run",
            )
        self.options = options
        self.setting = setting
        self.rollouts = 0

    def play(self, examples: Sequence[Example], policy: Policy) -> Rollout:
        prompts = [Prompt(policy.encode(example.question), (example.id, "attempt", 0)) for example in examples]
        groups = policy.sample(prompts, self.setting.training.group_size)
        completions = [completion for group in groups for completion in group]
        turns = [
            _turn(example, prompt, completion)
            for example, prompt, group in zip(examples, prompts, groups, strict=True)
            for completion in group
        ]
        answers = [final_answer(completion, self.setting.prompt.answer) for completion in completions]
        size = self.setting.training.group_size
        keys = [[vote_key(answer) for answer in answers[i : i + size]] for i in range(0, len(answers), size)]
        formats = [float(answer is not None) for answer in answers]
        shares = [share for group in keys for share in cluster_shares(group)]
        certainties = policy.self_certainty(turns) if self.options.reward in ("multi", "certainty") else None
        channels = self._channels(examples, keys, shares, formats, certainties)
        weights = self._weights(channels)
        self.rollouts += 1
        advantages, dead = channel_advantages(
            channels, weights, [turn.group for turn in turns],
            combine_then_normalise=bool(self.options.combine_then_normalise),
        )  # fmt: skip
        if self.options.final_batch_norm:
            advantages = whiten(advantages, dead, policy.gather(advantages.tolist()))
        rewards = [sum(weights[name] * channels[name][i] for name in channels) for i in range(len(turns))]
        for turn, advantage, is_dead in zip(turns, advantages, dead, strict=True):
            turn.advantage, turn.dead = float(advantage), bool(is_dead)
        golds = [example.answer for example in examples for _ in range(size)]
        shown: Sequence[float | None] = [None] * len(turns) if certainties is None else certainties
        records = [
            _record(turn, completion.text, answer, gold)
            | {"cluster": share, "format": form, "certainty": certainty, "reward": reward}
            for turn, completion, answer, gold, share, form, certainty, reward in zip(
                turns, completions, answers, golds, shares, formats, shown, rewards, strict=True
            )
        ]
        metrics = {"reward": _mean(rewards), "reward/cluster": _mean(shares), "reward/format": _mean(formats)}
        if certainties is not None:
            metrics["reward/certainty"] = _mean(certainties)
        metrics |= vote_metrics(policy.gather(keys)) | self._vote_accuracy(examples, keys, answers, policy)
        return Rollout(turns, records, metrics)

    def state_dict(self) -> dict[str, Any]:
        return {"rollouts": self.rollouts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rollouts = state.get("rollouts", 0)

    def _channels(
        self,
        examples: Sequence[Example],
        keys: Sequence[Sequence[str | None]],
        shares: Sequence[float],
        formats: Sequence[float],
        certainties: Sequence[float] | None,
    ) -> dict[str, Sequence[float]]:
        """The raw reward channels of this run, one value per completion. `examples` lend their ids only."""
        if self.options.reward == "majority":
            return {"majority": [vote for group in keys for vote in majority_votes(group)]}
        if self.options.reward == "random":
            return {"random": [
                float(stream_seed(self.setting.seed, self.rollouts, example.id, "coin", sample) % 2)
                for example, group in zip(examples, keys, strict=True) for sample in range(len(group))
            ]}  # fmt: skip
        channels: dict[str, Sequence[float]] = {}
        if self.options.format_weight is not None:
            weight = self.options.format_weight
            channels["cluster"] = [share + weight * form for share, form in zip(shares, formats, strict=True)]
        if certainties is not None:
            channels["certainty"] = certainties
        return channels

    def _weights(self, channels: Mapping[str, Any]) -> dict[str, float]:
        weights = {"cluster": self.options.alpha, "certainty": self.options.beta}
        return {name: weights.get(name) or 1.0 for name in channels}

    def _vote_accuracy(
        self,
        examples: Sequence[Example],
        keys: Sequence[Sequence[str | None]],
        answers: Sequence[str | None],
        policy: Policy,
    ) -> dict[str, float]:
        """How often the most frequent answer is right, among the examples of all processes that have a gold answer; no
        vote is wrong, a vote that the grader gave up on is left out. For the reader: nothing is learnt from it."""
        pairs = []
        for number, (example, group) in enumerate(zip(examples, keys, strict=True)):
            if example.answer is not None:
                label = majority(group)
                place = number * len(group) + group.index(label)
                pairs.append((example.answer, answers[place] if label is not None else None))
        verdicts = self.setting.grader.grade(pairs) if pairs else []
        judged = [float(v == "correct") for v in policy.gather(verdicts) if v not in ("timeout", "error")]
        return {"vote/accuracy": _mean(judged)} if judged else {}


def vote_key(answer: str | None) -> str | None:
    """The key by which an answer is clustered, None where it is unreadable (rule: top of this file)."""
    key = canonical_key(answer) if answer is not None else None
    if key is None or ((is_formula(key) or '"' in key) and not is_settled(key)):
        return None
    return key


def cluster_shares(keys: Sequence[str | None]) -> list[float]:
    """R_cluster of a group: size of the answer's cluster over the number of readable answers, 0 for unreadable ones."""
    counts = Counter(key for key in keys if key is not None)
    return [counts[key] / counts.total() if key is not None else 0.0 for key in keys]


def majority(keys: Sequence[str | None]) -> str | None:
    """The most frequent key, the earliest of equals; None where no answer is readable."""
    counts = Counter(key for key in keys if key is not None)
    return counts.most_common(1)[0][0] if counts else None


def majority_votes(keys: Sequence[str | None]) -> list[float]:
    label = majority(keys)
    return [float(key is not None and key == label) for key in keys]


def vote_metrics(groups: Sequence[Sequence[str | None]]) -> dict[str, float]:
    """Entropies in nats: of the answers within their group (mean over groups) and over the whole rollout; the share
    that is unreadable; and the signal that a run selects its weights by (top of this file). Groups count alike."""
    readable = [[key for key in group if key is not None] for group in groups]
    inside = [_entropy(Counter(group)) for group in readable if group]
    pooled: Counter[str] = Counter()
    for group in readable:
        for key, count in Counter(group).items():
            pooled[key] += count / len(group)  # type: ignore[assignment]
    overall, within = _entropy(pooled), _mean(inside)
    share = sum(map(len, readable)) / sum(map(len, groups))
    information = max(overall - within, 0.0) / math.log(len(groups)) if len(groups) > 1 else 0.0
    return {
        "cluster/entropy": within,
        "answers/entropy": overall,
        "completions/unparsed_ratio": 1.0 - share,
        "own_signal/rollout": share * information,
    }


def _entropy(counts: Mapping[str, float]) -> float:
    total = sum(counts.values())
    return -sum(count / total * math.log(count / total) for count in counts.values()) + 0.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _turn(example: Example, prompt: Prompt, completion: Completion) -> Turn:
    return Turn(
        prompt.ids,
        completion.ids,
        role="attempt",
        group=example.id,
        finish_reason=completion.finish_reason,
        sampling_logprobs=completion.logprobs,
    )


def _record(turn: Turn, text: str, answer: str | None, gold: str | None) -> dict[str, Any]:
    return {
        "prompt_id": turn.group, "role": turn.role, "text": text, "answer": answer, "gold": gold,
        "advantage": turn.advantage, "finish_reason": turn.finish_reason, "tokens": len(turn.completion_ids),
    }  # fmt: skip
