"""Run by test_processes.py under `accelerate launch`: one rollout's gradients, as each process sees them."""

import json
import sys
from pathlib import Path

import torch
from harness import Given, Watch, load
from world import make_turns, training

from judgefree.config import PromptFormat
from judgefree.episodes import Example, Turn
from judgefree.training.arguments import episode_arguments
from judgefree.training.trainer import EpisodeTrainer

PLAIN = PromptFormat(template="{question}", chat=False, answer="boxed")


def main(folder: str, work: str, processes: int) -> None:
    settings = training(
        processes=processes, steps=2, save_every=2, updates_per_rollout=2, micro_batches=4,
        loss={"kl_weight": 0.05, "kl_cov": {"share": 0.1, "weight": 1.0}},
    )  # fmt: skip
    model, tokenizer = load(Path(folder))
    watch = Watch()
    args = episode_arguments(settings, Path(work), 0)
    args.max_grad_norm, args.save_strategy, args.optim = 0.0, "no", "sgd"
    trainer: EpisodeTrainer

    def turns() -> list[Turn]:
        """Each process plays its own whole groups, in the examples' order. The last one has turns to imitate as well, so
        short that some of its micro-batches hold nothing else."""
        imitated = [Turn([4], [9, 1], "distilled", "g3", imitation_weight=0.5) for _ in range(20)]
        everything, share = [*make_turns(), *imitated], 4 // processes
        rank = trainer.accelerator.process_index
        return [turn for turn in everything if int(turn.group[1:]) // share == rank]

    trainer = EpisodeTrainer(
        model, method=Given(turns), examples=[Example(f"e{i}", "w1") for i in range(64)], training=settings, prompt=PLAIN,
        seed=0, make_engine=lambda *_: None, on_rollout=lambda *_: None, args=args, tokenizer=tokenizer, callbacks=[watch],
    )  # fmt: skip
    trainer.train()
    if trainer.accelerator.is_main_process:
        gradients = [{name.removeprefix("module."): value for name, value in step.items()} for step in watch.gradients]
        torch.save(gradients, Path(work) / "gradients.pt")
        (Path(work) / "logs.json").write_text(json.dumps(trainer.state.log_history[:-1]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
