"""SpyRL on a real policy through the trainer: only the side whose stage it is learns, the monitor sees the performers."""

from pathlib import Path
from typing import Any

import pytest
from harness import load
from world import training

from judgefree.config import PromptFormat
from judgefree.episodes import Example
from judgefree.methods import Setting
from judgefree.methods.spyrl import Options, Spyrl
from judgefree.scoring.grader import Grader
from judgefree.training.arguments import episode_arguments
from judgefree.training.engines import make_engine
from judgefree.training.trainer import EpisodeTrainer

TEXTS = {"civilian": "{source} w1", "spy": "{source} w2", "detector": "{source} {outputs} w3", "output": "{number} {text}",
         "placeholder": "w4"}  # fmt: skip
OPTIONS = {
    "prompts": "prompts/x.yaml", "detectors": "players", "information_loss": {"unit": "words", "share": 0.5}, "beta": 0.1,
    "lam": 0.1, "baseline": {"rule": "update_first", "decay": 0.9}, "detection_reward": "plain",
    "schedule": {"rule": "fixed", "start": "detection", "cycle": 1},
}  # fmt: skip


def test_both_stages_train(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = training(
        steps=4, save_every=4, micro_batches=1, max_prompt_tokens=200, sampling={"max_completion_tokens": 6}
    )
    prompt = PromptFormat(template="{question}", chat=False, answer="whole", measure="rouge")
    model, tokenizer = load(tiny)
    monkeypatch.setattr("judgefree.rlsvr.game.read_vote", _by_length)  # random words hold no vote
    rollouts: list[Any] = []
    weights: list[Any] = []

    def keep(step: int, rollout: Any) -> None:
        rollouts.append(rollout)
        weights.append({name: value.detach().clone() for name, value in model.state_dict().items()})

    args = episode_arguments(settings, tmp_path, 0)
    args.save_strategy = "no"
    with Grader(1, 2.0) as grader:
        method = Spyrl(Options.model_validate(OPTIONS), Setting(settings, prompt, grader, 0, TEXTS))
        trainer = EpisodeTrainer(
            model, method=method, examples=[Example(f"e{i}", "w1 w2 w5 w6") for i in range(8)], training=settings,
            prompt=prompt, seed=0, make_engine=make_engine, on_rollout=keep, args=args, tokenizer=tokenizer,
        )  # fmt: skip
        trainer.train()
    assert [{turn.role for turn in one.turns} for one in rollouts] == [{"detector"}, {"performer"}] * 2
    assert [len(one.turns) for one in rollouts] == [len(one.untrained) for one in rollouts] == [16] * 4
    weights.append(model.state_dict())
    for before, after in zip(weights[:-1], weights[1:], strict=True):
        assert not all(value.equal(after[name]) for name, value in before.items())
    logged = [row for row in trainer.state.log_history if "detector/accuracy" in row]
    for row, rollout in zip(logged, rollouts, strict=True):
        lengths = [one["tokens"] for one in rollout.records if one["role"] == "performer"]
        assert row["completions/mean_length"] == pytest.approx(sum(lengths) / len(lengths))
    assert [row["stage/performing"] for row in logged] == [0, 1, 0, 1]


def _by_length(text: str, players: int, cut: bool = False) -> Any:
    from judgefree.scoring.votes import Vote

    return Vote("vote", len(text) % players + 1)
