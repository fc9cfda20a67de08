"""EpisodeTrainer: TRL's GRPOTrainer with our rollouts, batches and loss. The only file that touches TRL's inside.

What we replace: where batches come from (`get_train_dataloader`, `_prepare_inputs`) and the loss (`_compute_loss`).
What stays TRL's and Transformers': model and reference model, LoRA, the fused LM head that gives log-probs, vLLM and its
weight sync, the training loop, optimizer, schedule, saving, DDP. tests/training/test_seam.py fails first
when an upgrade moves any name that is used here.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from accelerate.utils import is_peft_model
from datasets import Dataset
from torch import Tensor
from torch.utils.data import DataLoader
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.grpo_trainer import use_adapter

from judgefree.config import PromptFormat, Training
from judgefree.episodes import Example, Method, Rollout, Turn
from judgefree.training.batches import Row, balanced_chunks, pad_batch, select_tokens, split_updates
from judgefree.training.certainty import CertaintyMeter
from judgefree.training.loss import Denominators, LossInputs, aggregate, token_losses
from judgefree.training.monitor import variety
from judgefree.training.order import examples_at
from judgefree.training.policy import Engine, TrainedPolicy

Batch = dict[str, Tensor]

STATISTICS = ("clip_ratio/region_mean", "ratio/abs_log_mean", "entropy", "kl", "kl/clamped", "cov/abs_log_ratio")


class EpisodeTrainer(GRPOTrainer):
    """Plays `method` on `examples` and learns from the turns.

    Everything random at step k comes from (seed, k), so a run that goes on from a checkpoint makes the same rollouts.
    on_rollout: told each rollout of this process and the step at which it was made, for the records.
    """

    def __init__(
        self,
        model: Any,
        *,
        method: Method,
        examples: Sequence[Example],
        training: Training,
        prompt: PromptFormat,
        seed: int,
        make_engine: Callable[["EpisodeTrainer", Training, PromptFormat], Engine],
        on_rollout: Callable[[int, Rollout], None],
        args: Any,
        tokenizer: Any,
        callbacks: Sequence[Any] = (),
        peft_config: Any = None,
    ) -> None:
        super().__init__(
            model=model,
            reward_funcs=_no_reward,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": [""]}),  # never read: examples come by step, see _play
            processing_class=tokenizer,
            callbacks=list(callbacks),
            peft_config=peft_config,
        )
        self.method = method
        self.examples = examples
        self.training = training
        self.seed = seed
        self.on_rollout = on_rollout
        engine = make_engine(self, training, prompt)
        self.policy = TrainedPolicy(
            tokenizer, prompt, training, seed, engine, self.logprobs, certainty_scorer=self.certainties
        )
        self._updates: list[tuple[list[Batch], Denominators]] = []
        self._counts: Denominators | None = None
        self._rewards_broken = False
        self._statistics: dict[str, Tensor] = {}

    # ------------------------------------------------------------------------------------------- where batches come from

    def get_train_dataloader(self) -> DataLoader:
        """One empty item per micro-batch: TRL's sampler is not used, and nothing has to be skipped on resume."""
        items: Any = range(self.args.max_steps * self.args.gradient_accumulation_steps)
        return DataLoader(items, collate_fn=list)

    def _prepare_inputs(self, generation_batch: Any) -> Batch:
        update = self.state.global_step % self.training.updates_per_rollout
        micro = self._step % self.args.gradient_accumulation_steps
        if micro == 0:
            if update == 0:
                self._play()
            self._statistics = {}
        batches, self._counts = self._updates[update]
        return batches[micro]

    def _play(self) -> None:
        step = self.policy.step = self.state.global_step
        rank, processes = self.accelerator.process_index, self.accelerator.num_processes
        rollout_number = step // self.training.updates_per_rollout
        chosen = examples_at(rollout_number, len(self.examples), self.training.examples_per_rollout, self.seed)
        share = len(chosen) // processes
        mine = [self.examples[i] for i in chosen[rank * share : (rank + 1) * share]]
        rollout = self.method.play(mine, self.policy)
        self.on_rollout(step, rollout)
        self._log_rollout(rollout)
        self._updates = self._batches_of(rollout.turns, step)

    def _batches_of(self, turns: Sequence[Turn], step: int) -> list[tuple[list[Batch], Denominators]]:
        settings = self.training.loss
        masked = self.training.truncated == "mask"
        rows = [Row(turn, counts=not (masked and turn.finish_reason == "length")) for turn in turns]
        self._fill_logprobs(rows)
        rank, updates = self.accelerator.process_index, self.training.updates_per_rollout
        sizes = self.policy.gather([(len(rows), sum(row.tokens for row in rows))])
        before = sum(count for count, _ in sizes[:rank])
        total = sum(count for count, _ in sizes)
        prepared: list[tuple[list[Batch], Denominators]] = []
        for members in split_updates(before, len(rows), total, updates, self.seed, step):
            batch = [rows[i] for i in members]
            select_tokens(batch, settings, self.policy.gather, rank, self.seed, step + len(prepared))
            counts = Denominators(
                rows=float(sum(self.policy.gather([len(batch)]))),
                tokens_here=float(sum(row.tokens for row in batch)),
                tokens_everywhere=sum(tokens for _, tokens in sizes) / updates,
                max_completion_tokens=self.training.sampling.max_completion_tokens,
                processes=self.accelerator.num_processes,
            )
            kept = [row for row in batch if row.moves(settings.kl_weight)]
            chunks = balanced_chunks(
                [(len(r.turn.prompt_ids), len(r.turn.completion_ids)) for r in kept],
                self.args.gradient_accumulation_steps,
            )
            pad_id, device, first = self._tokenizer.pad_token_id, self.args.device, not prepared
            prepared.append(([pad_batch([kept[i] for i in chunk], pad_id, device, first) for chunk in chunks], counts))
        return prepared

    # --------------------------------------------------------------------------------------------------------- log-probs

    def _fill_logprobs(self, rows: Sequence[Row]) -> None:
        """Old and reference log-probs, only where the loss will use them and no pass has given them yet."""
        loss, cap = self.training.loss, self.training.vllm and self.training.vllm.correction_cap
        selecting = loss.kl_cov is not None or loss.clip_cov is not None
        needed = [row for row in rows if row.counts and row.is_policy and (selecting or row.moves(loss.kl_weight))]
        if self.training.updates_per_rollout > 1 or selecting or cap:
            self.policy.score([row.turn for row in needed if row.turn.old_logprobs is None])
        for row in needed if cap else ():
            old, sampled = row.turn.old_logprobs, row.turn.sampling_logprobs
            assert cap and old and sampled
            row.importance = [min(math.exp(o - s), cap) for o, s in zip(old, sampled, strict=True)]
        if loss.kl_weight > 0:
            policy_rows = [row for row in rows if row.counts and row.is_policy]
            for row, values in zip(policy_rows, self._reference([r.turn for r in policy_rows]), strict=True):
                row.ref_logprobs = values

    def logprobs(self, turns: Sequence[Turn]) -> list[list[float]]:
        """log pi of every completion token under the current weights, without gradient."""
        return self._score(self.model, turns)[0]

    def certainties(self, turns: Sequence[Turn]) -> tuple[list[list[float]], list[float]]:
        """The same, and the self-certainty of every completion, from one pass."""
        model = self.accelerator.unwrap_model(self.model)
        base = model.get_base_model() if is_peft_model(model) else model
        with CertaintyMeter(base, self.training.sampling.temperature) as meter:
            return self._score(self.model, turns, meter)

    def _reference(self, turns: Sequence[Turn]) -> list[list[float]]:
        if self.ref_model is not None:
            return self._score(self.ref_model, turns)[0]
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
            return self._score(self.model, turns)[0]

    def _score(
        self, model: Any, turns: Sequence[Turn], meter: CertaintyMeter | None = None
    ) -> tuple[list[list[float]], list[float]]:
        sizes = [(len(turn.prompt_ids), len(turn.completion_ids)) for turn in turns]
        passes = self.training.updates_per_rollout * self.args.gradient_accumulation_steps
        scores: list[list[float]] = [[] for _ in turns]
        certainties = [0.0] * len(turns)
        trained, arguments = cast(Any, self.model), cast(Any, self.args)
        with torch.no_grad(), disable_gradient_checkpointing(trained, arguments.gradient_checkpointing_kwargs):
            for chunk in balanced_chunks(sizes, passes) if turns else ():
                if not chunk:
                    continue
                batch = pad_batch([Row(turns[i]) for i in chunk], self._tokenizer.pad_token_id, self.args.device)
                values, _ = self._forward(model, batch)
                means = meter.means(batch["completion_ids"], batch["mask"], values) if meter else [0.0] * len(chunk)
                for row, i in enumerate(chunk):
                    scores[i] = values[row, : sizes[i][1]].float().tolist()
                    certainties[i] = means[row]
        return scores, certainties

    def _forward(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Per-token log-probs and entropies, (B, T), under the sampling temperature (TRL's fused head divides by it)."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["attention_mask"]], dim=1)
        keep = batch["completion_ids"].size(1)
        logprobs, entropies, _ = self._get_per_token_logps_and_entropies(
            model, ids, attention, keep, compute_entropy=model is not self.ref_model
        )
        return logprobs, entropies

    # -------------------------------------------------------------------------------------------------------------- loss

    def _compute_loss(self, model: Any, inputs: Batch) -> Tensor:
        logprobs, entropies = self._forward(model, inputs)
        parts = LossInputs(
            mask=inputs["mask"],
            advantages=inputs["advantages"],
            policy_rows=inputs["policy_rows"],
            imitation_weight=inputs["imitation_weight"],
            old_logprobs=inputs.get("old_logprobs"),
            ref_logprobs=inputs.get("ref_logprobs"),
            selected=inputs.get("selected"),
            importance=inputs.get("importance"),
        )
        losses, statistics = token_losses(logprobs, parts, self.training.loss)
        if self._rewards_broken:
            losses = losses * math.nan  # a gradient that is not finite is skipped and counted (callbacks.py)
        assert self._counts is not None
        self._add_statistics({**statistics, "entropy": entropies.detach()}, parts.mask * parts.policy_rows, parts)
        return aggregate(losses, parts.mask, self.training.loss, self._counts)

    # ----------------------------------------------------------------------------------------------------------- metrics

    def _add_statistics(self, statistics: dict[str, Tensor], mask: Tensor, parts: LossInputs) -> None:
        """Sum over the micro-batches of an update, then log token means over all processes; of no tokens there is no mean.

        A micro-batch of turns to imitate, or of nothing, lacks some statistics. The sums of all processes meet in one fixed
        order nevertheless.
        """
        sums = {name: torch.stack([(value * mask).sum(), mask.sum()]) for name, value in statistics.items()}
        if parts.selected is not None:
            sums["cov/abs_log_ratio"][1] = parts.selected.sum()
        for name, value in sums.items():
            self._statistics[name] = self._statistics.get(name, torch.zeros_like(value)) + value
        if (self._step + 1) % self.args.gradient_accumulation_steps:
            return
        mine = [self._statistics.get(name, torch.zeros(2, device=mask.device)) for name in STATISTICS]
        everyones = self.accelerator.reduce(torch.stack(mine), reduction="sum").tolist()
        for name, (total, count) in zip(STATISTICS, everyones, strict=True):
            if count:
                self._metrics["train"][name].append(total / count)

    def _log_rollout(self, rollout: Rollout) -> None:
        """The rollout of all processes in numbers. A reward that is nowhere finite spoils the rollout's updates."""
        sampled = [turn for turn in rollout.turns if turn.imitation_weight == 0.0]
        watched = [turn for turn in [*sampled, *rollout.untrained] if rollout.watched in (None, turn.role)]
        dead = self.policy.gather([turn.dead for turn in sampled])
        everyone = self.policy.gather([(len(turn.completion_ids), turn.finish_reason == "length") for turn in watched])
        metrics = {}
        if everyone:
            lengths, clipped = zip(*everyone, strict=True)
            metrics["completions/mean_length"] = sum(lengths) / len(lengths)
            metrics["completions/max_length"] = float(max(lengths))
            metrics["completions/clipped_ratio"] = sum(clipped) / len(lengths)
        if dead:
            metrics["frac_reward_zero_std"] = sum(dead) / len(dead)
        own = rollout.metrics | variety([turn.completion_ids for turn in watched])
        shares = self.policy.gather([own])
        for name in own:
            finite = [share[name] for share in shares if math.isfinite(share[name])]
            metrics[name] = sum(finite) / len(finite) if finite else math.nan
        self._rewards_broken = not math.isfinite(metrics.get("reward", 0.0))
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)


def _no_reward(prompts: Any, completions: Any, **_: Any) -> list[float | None]:
    """TRL asks for a reward function; ours belong to the method, so a call would mean that TRL's rollout path ran."""
    raise NotImplementedError("TRL's own rollout was reached; EpisodeTrainer._prepare_inputs must come first")
