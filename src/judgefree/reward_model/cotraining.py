"""The method SAVE at work: one rollout scored, one step of the reward model, the responses scored again.

methods/save.py says what the method is and what its options are.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from torch import Tensor

from judgefree.advantages import group_advantages
from judgefree.episodes import Completion, Example, Policy, Prompt, Rollout, Turn
from judgefree.places import INSIDE
from judgefree.reward_model import losses
from judgefree.reward_model.feedback import Feedback, advantages_of, select, threshold
from judgefree.reward_model.learner import Learner, load_weights
from judgefree.reward_model.model import answered, load_reward_model, messages, save_reward_model
from judgefree.reward_model.pairs import PAIRS, Pair, load_pairs, pairs_at
from judgefree.reward_model.watch import above, overlap, pair_accuracy, squared_error, within_groups
from judgefree.scoring.answers import final_answer
from judgefree.scoring.grader import REWARD

if TYPE_CHECKING:
    from judgefree.methods import Setting
    from judgefree.methods.save import Alarms, Options

log = logging.getLogger(__name__)


class Save:
    def __init__(self, options: "Options", setting: "Setting") -> None:
        self.options = options
        self.setting = setting
        training = setting.training
        self.rollouts = training.steps // training.updates_per_rollout
        folder = setting.models[options.reward_model]
        half, device = training.precision == "bf16", PartialState().device
        model = load_reward_model(folder, half).to(device).eval()
        rate = options.learning_rate or 0.0
        self.learner = Learner(model, rate, options.value_learning_rate or 0.0, options.batch_tokens)
        self.first = load_reward_model(folder, half).to(device).eval() if options.watch_drift else None
        self.pairs: list[Pair] = load_pairs(folder / PAIRS) if options.update == "bt_offline" else []

    def state_dict(self) -> dict[str, Any]:
        return self.learner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state)

    # ------------------------------------------------------------------------------------------------------------- rollout

    def play(self, examples: Sequence[Example], policy: Policy) -> Rollout:
        prompts = [Prompt(policy.encode(example.question), (example.id, "attempt", 0)) for example in examples]
        groups = policy.sample(prompts, self.setting.training.group_size)
        batch = Batch(self, examples, groups)
        least = threshold(self.learner.updates, self.rollouts, self.options.m0)  # of both judgements of this step
        before = self._judge(batch, least)
        facts = self._update(batch, before, policy)
        after = before if self.options.update == "frozen" else self._judge(batch, least)
        kept = after.feedback.kept if self.options.update == "save" else torch.ones_like(batch.counted)
        rewards = [[r if k else math.nan for r, k in zip(*row, strict=True)]
                   for row in zip(after.rewards.tolist(), kept.tolist(), strict=True)]  # fmt: skip
        turns, untrained, records = self._turns(examples, prompts, groups, rewards, after, policy)
        return Rollout(turns, records, facts | self._metrics(batch, before, after, groups), untrained=untrained)

    def _judge(self, batch: "Batch", least: float) -> "Judged":
        rewards = torch.tensor(self.learner.rewards(batch.rows)).reshape(batch.counted.shape)
        values = torch.tensor(self.learner.values(batch.prompts))
        anchors = rewards.mean(-1) if self.options.anchor == "mean_reward" else values
        return Judged(rewards, values, anchors, select(advantages_of(rewards, anchors), batch.all, least))

    def _turns(
        self, examples: Sequence[Example], prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]],
        rewards: list[list[float]], judged: "Judged", policy: Policy,
    ) -> tuple[list[Turn], list[Turn], list[dict[str, Any]]]:  # fmt: skip
        """The turns to learn from, those that are not kept, and the records of both; rewards: NaN where not kept."""
        flat = [reward for row in rewards for reward in row]
        ids = [example.id for example, row in zip(examples, rewards, strict=True) for _ in row]
        advantages, dead = group_advantages(flat, ids, self.setting.training.advantage, policy.gather(flat))
        if self.options.policy == "frozen":
            advantages[:], dead[:] = 0.0, True
        alone = {example.id for example, row in zip(examples, rewards, strict=True) if sum(map(math.isfinite, row)) < 2}
        turns: list[Turn] = []
        untrained: list[Turn] = []
        records = []
        scores = judged.rewards.flatten().tolist()
        played = [(p, c) for p, group in zip(prompts, groups, strict=True) for c in group]
        for i, (prompt, completion) in enumerate(played):
            used = math.isfinite(flat[i]) and ids[i] not in alone
            (turns if used else untrained).append(Turn(
                prompt.ids, completion.ids, role="attempt", group=ids[i], advantage=float(advantages[i]),
                dead=bool(dead[i]), finish_reason=completion.finish_reason, sampling_logprobs=completion.logprobs,
            ))  # fmt: skip
            records.append({
                "prompt_id": ids[i], "role": "attempt", "text": completion.text, "reward": scores[i],
                "value": judged.anchors[i // len(groups[0])].item(), "kept": used,
                "advantage": float(advantages[i]) if used else None, "finish_reason": completion.finish_reason,
                "tokens": len(completion.ids),
            })  # fmt: skip
        return turns, untrained, records

    # ------------------------------------------------------------------------------------------- the reward model's step

    def _update(self, batch: "Batch", judged: "Judged", policy: Policy) -> dict[str, float]:
        match self.options.update:
            case "frozen":
                return {}
            case "save":
                facts = self._learn_feedback(batch, judged, policy)
            case "hl_bt":
                rewards = judged.rewards.clone().requires_grad_()
                pairs = float(sum(policy.gather([losses.pairs_in(rewards, batch.counted)])))
                loss = losses.highest_lowest_loss(rewards, batch.counted, max(pairs, 1.0))
                self._carry(batch, loss, rewards)
                facts = {"reward_model/loss_hl": float(sum(policy.gather([loss.item()])))}
            case "bt_offline":
                facts = self._learn_pairs(policy)
        self.learner.apply()
        return facts | {"reward_model/bad_updates": float(self.learner.bad_updates)}

    def _learn_feedback(self, batch: "Batch", judged: "Judged", policy: Policy) -> dict[str, float]:
        """Carry L_R + lambda L_V, each over the prompts of all processes."""
        positive, negative = judged.feedback.positive & batch.counted, judged.feedback.negative & batch.counted
        there = batch.counted.any(-1)
        both = losses.has_both(positive, negative)
        counts = policy.gather([(int(both.sum()), int(there.sum()))])
        pairs, valued = (max(float(sum(column)), 1.0) for column in zip(*counts, strict=True))
        if not any(one for one, _ in counts):
            log.warning("update %d: the reward model learns nothing: no prompt has kept responses above and below V; %.0f%% "
                        "of the responses here were cut off, and such take no part (sampling.max_completion_tokens)",
                        self.learner.updates, 100 * (1 - batch.counted.float().mean()))  # fmt: skip
        rewards = judged.rewards.clone().requires_grad_()
        loss_r = losses.reward_loss(rewards, judged.anchors, positive, negative, pairs)
        self._carry(batch, loss_r, rewards)
        facts = {"reward_model/loss_r": float(sum(policy.gather([loss_r.item()])))}
        if self.options.anchor == "value":
            values = judged.values.clone().requires_grad_()
            loss_v = losses.value_loss(values[there], rewards[there], batch.counted[there], valued)
            if there.any():
                (gradient,) = torch.autograd.grad((self.options.value_weight or 0.0) * loss_v, values)
                self.learner.carry_values(batch.prompts, gradient)
            facts["reward_model/loss_v"] = float(sum(policy.gather([loss_v.item()])))
        return facts

    def _carry(self, batch: "Batch", loss: Tensor, rewards: Tensor) -> None:
        if loss.requires_grad:
            (gradient,) = torch.autograd.grad(loss, rewards)
            self.learner.carry_rewards(batch.rows, gradient.flatten())

    def _learn_pairs(self, policy: Policy) -> dict[str, float]:
        """Bradley-Terry on the next pairs; each process takes every n-th of them."""
        state, total = PartialState(), self.options.pairs_per_step or 0
        chosen = pairs_at(self.pairs, self.learner.updates, total, self.setting.seed)
        mine = chosen[state.process_index :: state.num_processes]
        rows = [self.learner.model.encode(side)[0] for pair in mine for side in pair.conversations()]
        rewards = torch.tensor(self.learner.rewards(rows)).reshape(-1, 2).requires_grad_()
        loss = losses.bradley_terry_loss(rewards[:, 0], rewards[:, 1]) * len(mine) / total if mine else rewards.sum()
        (gradient,) = torch.autograd.grad(loss, rewards)
        self.learner.carry_rewards(rows, gradient.flatten())
        return {"reward_model/loss_bt": float(sum(policy.gather([loss.item()])))}

    # ------------------------------------------------------------------------------------------------------------- metrics

    def _metrics(
        self, batch: "Batch", before: "Judged", after: "Judged", groups: Sequence[Sequence[Completion]]
    ) -> dict[str, float]:
        rewards = after.rewards.detach()
        scores, kept = rewards.tolist(), after.feedback.kept
        metrics = {
            "reward": float(rewards.mean()), "reward_std": float(rewards.std(-1).mean()),
            "reward_model/anchor_gap": abs(float(before.values.mean() - before.rewards.mean())),
            "reward_model/length_correlation": within_groups(scores, batch.lengths),
            "reward_model/prompt_correlation": within_groups(scores, batch.overlaps),
            "reward_model/cut": batch.cut, "reward_model/counted": float(batch.counted.float().mean()),
        }  # fmt: skip
        if self.options.update == "save":
            metrics |= {"reward_model/kept": float(kept.float().mean()),
                        "reward_model/both_signs": float(after.feedback.both.float().mean()),
                        "reward_model/threshold": before.feedback.threshold}  # fmt: skip
        truths = self._true_quality(batch, groups)
        if truths:
            metrics |= quality_metrics(after, truths)
        if self.first:
            first = self.first.read(self.first.rewards, batch.rows, self.options.batch_tokens)
            size = batch.counted.shape[1]
            old = [first[i : i + size] for i in range(0, len(first), size)]
            metrics["reward_model/drift"] = 1 - within_groups(scores, old)
            if truths:
                metrics["reward_model/first_pair_accuracy"] = pair_accuracy(old, truths)[0]
        if self.options.alarms:
            metrics["reward_model/alarms"] = float(len(self._raised(metrics, self.options.alarms)))
        return metrics

    def _raised(self, metrics: dict[str, float], limits: "Alarms") -> list[str]:
        raised = above({name.removeprefix("reward_model/"): value for name, value in metrics.items()}, limits)
        if raised:
            log.warning("update %d: reward model: above its limit: %s", self.learner.updates, ", ".join(raised))
        return raised

    def _true_quality(self, batch: "Batch", groups: Sequence[Sequence[Completion]]) -> list[list[float]]:
        """What the responses are worth, (B, G), NaN where there is no gold answer; empty where nothing is known. For the
        reader: nothing is learnt from it."""
        flat = [(e, c) for e, group in zip(batch.examples, groups, strict=True) for c in group if e.answer is not None]
        if not flat or self.setting.prompt.measure:  # no gold, or a text that is neither right nor wrong
            return []
        form = self.setting.prompt.answer
        verdicts = iter(self.setting.grader.grade([(str(e.answer), final_answer(c, form)) for e, c in flat]))
        return [[REWARD[next(verdicts)] if e.answer is not None else math.nan for _ in group]
                for e, group in zip(batch.examples, groups, strict=True)]  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """What the reward model says of a rollout: rewards (B, G), values and anchors (B,), the feedback it would keep."""

    rewards: Tensor
    values: Tensor
    anchors: Tensor
    feedback: Feedback


def quality_metrics(judged: "Judged", truths: list[list[float]]) -> dict[str, float]:
    """The mean true quality of responses (B, G), how far a judgement sees it, and the pairs that its accuracy is over."""
    known = [truth for row in truths for truth in row if math.isfinite(truth)]
    accuracy, pairs = pair_accuracy(judged.rewards.tolist(), truths)
    return {
        "reward/true": sum(known) / len(known) if known else math.nan,
        "reward_model/pair_accuracy": accuracy,
        "reward_model/pairs": float(pairs),
        "reward_model/squared_error": squared_error(advantages_of(judged.rewards, judged.anchors).tolist(), truths),
    }


class Batch:
    """A rollout as the reward model reads it: ids of all conversations, group by group, and of their prompts; which
    responses (B, G) take part in its step; what the reward is watched for."""

    def __init__(self, save: Save, examples: Sequence[Example], groups: Sequence[Sequence[Completion]]) -> None:
        encode, prompt = save.learner.model.encode, save.setting.prompt
        self.examples = examples
        heads = [messages(prompt, example.question) for example in examples]
        encoded = [encode(answered(head, one.text)) for head, group in zip(heads, groups, strict=True) for one in group]
        self.rows = [ids for ids, _ in encoded]
        self.cut = sum(cut for _, cut in encoded) / len(encoded)
        self.prompts = [encode(head)[0] for head in heads]
        self.counted = torch.tensor([[one.finish_reason != "length" for one in group] for group in groups])
        self.all = torch.ones_like(self.counted)
        self.lengths = [[float(len(one.ids)) for one in group] for group in groups]
        self.overlaps = [[overlap(one.text, head[-1]["content"]) for one in group]
                         for head, group in zip(heads, groups, strict=True)]  # fmt: skip


def export(state: dict[str, Any], folder: Path, target: Path) -> None:
    """The reward model of a state, made from that in `folder`: its reward head loads in plain Transformers."""
    model = load_reward_model(folder)
    load_weights(model, state)
    save_reward_model(model, target / INSIDE)
