"""SpyRL: reinforcement learning from a game in which one player saw less than the others and the others look for it.

A rollout (paper; the game is rlsvr/game.py), for every source x:

    u ~ Unif{1..n}; o_i = g(x) for the spy i = u, x for the others
    y_i ~ pi(. | o_i, role)            `group_size` = n outputs
    v_i ~ pi(. | o_i or x, y_1..y_n)   detectors vote for who they think is the spy, or abstain
    detection:  r_i = 1[v_i = u], advantages within the game's detectors
    performing: zero-sum rewards from the votes received, advantages above a moving mean per role (RAE)

Both sides are the same policy under different prompts. Only the side whose turn it is learns: the schedule is told accuracy
and abstention of every rollout (rlsvr/alternation.py). All is played and measured in every rollout, whatever is learnt.

The paper is the default of papers.md and profiles; options give the released code (`detectors: overseer`, `detection_reward:
shaped`, `normalise_performing: true`, `schedule: {rule: fixed, cycle: 1, ...}`) and the ablations (`baseline: {rule: none}`,
schedules `joint`, `performing`, `detection`, `spy: none`).

Where ours differs: a detector is told neither role nor number and sees the outputs in an order of its own; baselines take up
the games of all processes in one order, so that their number does not matter; the moving means of the schedule are corrected
for their start. The released code's rule for the detector whose number is the spy's is a leftover and left out. A stage's
length is counted in rollouts. docs/spyrl.md says more.

State between steps: the two baselines, the schedule's state, the number of rollouts played.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from judgefree.advantages import EPSILON, Floats, normalised, role_advantages
from judgefree.config import InformationLoss, Positive, Strict
from judgefree.episodes import Example, Policy, Rollout, Turn
from judgefree.rlsvr.alternation import Alternation, Hysteresis, Schedule, Stage
from judgefree.rlsvr.environment import play
from judgefree.rlsvr.game import DETECTOR, PERFORMER, TEXTS, Detection, Game, Performance, Rules, SpyGame

if TYPE_CHECKING:
    from judgefree.methods import Setting

__all__ = ["TEXTS", "Options", "Spyrl"]

VERL_EPSILON = 1e-6  # of the released code's second normalisation
LEARNING: dict[Stage, tuple[str, ...]] = {
    "detection": (DETECTOR,), "performing": (PERFORMER,), "joint": (PERFORMER, DETECTOR),
}  # fmt: skip
FAR = (
    0.5  # a hidden part this much larger or smaller than asked, relatively, is counted: few units, or no spaces between
)
VOTE_KINDS = ("vote", "na", "missing", "invalid", "out_of_range")


class Baseline(Strict):
    """Of role-advantage estimation: what is read when, and the decay of the moving means (`none`: no baseline, no decay)."""

    rule: Literal["update_first", "read_first", "none"]
    decay: Annotated[float, Field(ge=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _decaying(self) -> "Baseline":
        if (self.rule == "none") != (self.decay is None):
            raise ValueError("decay is given exactly when rule is not none; add or remove it")
        return self


class Options(Strict):
    """prompts: the prompt file. detectors: `players` each vote once beside their own view; an `overseer` sees the whole
    source and votes `overseer_votes` times. beta, lam: weights of the performing reward. normalise_performing: divide by the
    game's standard deviation once more, as the released code does. spy: `none` for the ablation in which all see
    everything."""

    prompts: str
    detectors: Literal["players", "overseer"]
    overseer_votes: Annotated[int, Field(ge=2)] | None = None
    information_loss: InformationLoss
    beta: Positive
    lam: Positive
    baseline: Baseline
    normalise_performing: Literal[True] | None = None
    detection_reward: Literal["plain", "shaped"]
    schedule: Schedule
    spy: Literal["none"] | None = None

    @model_validator(mode="after")
    def _overseen(self) -> "Options":
        if (self.detectors == "overseer") != (self.overseer_votes is not None):
            raise ValueError("overseer_votes is given exactly when detectors is overseer; add or remove it")
        return self


class Spyrl:
    def __init__(self, options: Options, setting: "Setting") -> None:
        self.options = options
        rules = Rules(
            players=setting.training.group_size, answer=setting.prompt.answer, unit=options.information_loss.unit,
            share=options.information_loss.share, overseer_votes=options.overseer_votes, masked=options.spy is None,
            shaped=options.detection_reward == "shaped", beta=options.beta, lam=options.lam,
        )  # fmt: skip
        self.environment = SpyGame(rules, setting.texts, setting.seed)
        self.alternation = Alternation(options.schedule)
        self.baselines = {"spy": 0.0, "civilian": 0.0}
        self.rollouts = 0

    def play(self, examples: Sequence[Example], policy: Policy) -> Rollout:
        games = play(self.environment, examples, policy, self.rollouts)
        stage = self.alternation.stage
        performing = self._performing_advantages(games, policy) if PERFORMER in LEARNING[stage] else {}
        rollout = Rollout([], watched=PERFORMER)
        for game in games:  # by game, as over any number of processes: rows are shared out among a rollout's updates
            sides: tuple[tuple[str, Sequence[Performance | Detection]], ...] = (
                (PERFORMER, game.performances), (DETECTOR, game.detections),
            )  # fmt: skip
            for role, said in sides:
                given = np.zeros(len(said))
                if role in LEARNING[stage]:
                    given = performing[game.id] if role == PERFORMER else _detection_advantages(game)
                turns = [_turn(game, role, one, float(a)) for one, a in zip(said, given, strict=True)]
                (rollout.turns if role in LEARNING[stage] else rollout.untrained).extend(turns)
                rollout.records += [_record(game, one, turn, stage) for one, turn in zip(said, turns, strict=True)]
        overseen = self.options.detectors == "overseer"
        rollout.metrics = measure(
            policy.gather([_facts(game, overseen) for game in games]), stage, self.options.information_loss.share
        )
        rollout.metrics["game/too_long"] = float(sum(policy.gather([len(examples) - len(games)])))
        rollout.metrics |= self._go_on(rollout.metrics)
        return rollout

    def state_dict(self) -> dict[str, Any]:
        schedule = self.alternation.state_dict()
        return {"baselines": dict(self.baselines), "schedule": schedule, "rollouts": self.rollouts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self.baselines, self.rollouts = dict(state["baselines"]), state["rollouts"]
            self.alternation.load_state_dict(state["schedule"])

    def _performing_advantages(self, games: Sequence[Game], policy: Policy) -> dict[str, Floats]:
        """By game; the baselines take up the games of all processes in the order of the examples."""
        everyones = policy.gather([(g.id, g.spy, [one.reward for one in g.performances]) for g in games])
        rule, decay = self.options.baseline.rule, self.options.baseline.decay or 0.0
        advantages, self.baselines = role_advantages([game[1:] for game in everyones], self.baselines, rule, decay)
        if self.options.normalise_performing:
            advantages = [normalised(one, ["game"] * len(one), VERL_EPSILON) for one in advantages]
        return {game[0]: one for game, one in zip(everyones, advantages, strict=True)}

    def _go_on(self, metrics: dict[str, float]) -> dict[str, float]:
        """Tells the schedule what was measured; what is to be logged of it and of the baselines."""
        self.rollouts += 1
        switched = self.alternation.observe(metrics["detector/accuracy"], metrics["votes/na"])
        logged = {"game/switched": float(switched), **{f"baseline/{k}": value for k, value in self.baselines.items()}}
        if isinstance(self.options.schedule, Hysteresis):
            logged |= {f"stage/{name}_mean": mean for name, mean in self.alternation.means.items()}
        return logged


def _detection_advantages(game: Game) -> Floats:
    """(r - mean) / (std + e) within a game's detectors, by the population's std (paper)."""
    rewards = np.asarray([one.reward for one in game.detections])
    return normalised(rewards, [game.id] * len(rewards), EPSILON, ddof=0)


def _turn(game: Game, role: str, said: Performance | Detection, advantage: float) -> Turn:
    """Dead only where there is nothing to learn by construction: an advantage above a baseline is hardly ever 0."""
    return Turn(
        said.prompt_ids,
        said.completion.ids,
        role=role,
        group=f"{game.id}/{role}",
        advantage=advantage,
        dead=advantage == 0.0,
        finish_reason=said.completion.finish_reason,
        sampling_logprobs=said.completion.logprobs,
    )


def _record(game: Game, one: Performance | Detection, turn: Turn, stage: Stage) -> dict[str, Any]:
    """For people: a row per completion, the whole source in the first one of its game only."""
    span = (game.view.start, game.view.end) if game.view else (None, None)
    performed, detected = isinstance(one, Performance) and one, isinstance(one, Detection) and one
    return {
        "prompt_id": game.id, "role": turn.role, "slot": one.seat, "stage": stage, "spy": game.spy,
        "text": one.completion.text, "output": performed.output if performed else None,
        "source": game.source if performed and one.seat == 0 else None, "span_start": span[0], "span_end": span[1],
        "vote": detected.voted if detected else None, "vote_kind": detected.vote.kind if detected else None,
        "votes": game.received[one.seat] if performed else None, "reward": one.reward, "advantage": turn.advantage,
        "finish_reason": one.completion.finish_reason, "tokens": len(one.completion.ids),
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- metrics

Facts = dict[str, Any]  # of one game


def _facts(game: Game, overseen: bool) -> Facts:
    return {
        "spy": game.spy,
        "ratio": game.view.ratio if game.view else None,
        "received": game.received,
        PERFORMER: [(one.reward, len(one.completion.ids), one.marked) for one in game.performances],
        DETECTOR: [
            (one.reward, len(one.completion.ids), one.vote.kind, one.voted, None if overseen else one.seat)
            for one in game.detections
        ],
    }


def measure(games: Sequence[Facts], stage: Stage, share: float) -> dict[str, float]:
    """The rollout of all processes in numbers. `reward` is that of the side that learns (a performer's is 0 on average by
    construction), `completions/unparsed_ratio` that of the performers. Of votes: shares of all votes. share: what was to be
    hidden of a source."""
    performed = [one for game in games for one in game[PERFORMER]]
    detected = [(game["spy"], *one) for game in games for one in game[DETECTOR]]
    groups = [[one[0] for one in game[role]] for game in games for role in LEARNING[stage]]
    kinds = [one[3] for one in detected]
    shares = {kind: kinds.count(kind) / len(kinds) for kind in VOTE_KINDS}
    right = [voted == spy for spy, _, _, _, voted, _ in detected]
    metrics = {
        "reward": float(np.mean([reward for group in groups for reward in group])),
        "reward_std": float(np.mean([np.std(group, ddof=1) for group in groups])),
        "reward/spy": float(np.mean([game[PERFORMER][game["spy"]][0] for game in games])),
        "reward/detector": float(np.mean([one[1] for one in detected])),
        "completions/unparsed_ratio": sum(not marked for _, _, marked in performed) / len(performed),
        "detector/accuracy": sum(right) / len(right),
        **{f"votes/{kind}": share for kind, share in shares.items() if kind != "vote"},
        "votes/unreadable": shares["missing"] + shares["invalid"] + shares["out_of_range"],
        "votes/received_by_spy": float(np.mean([game["received"][game["spy"]] for game in games])),
        "stage/performing": float(PERFORMER in LEARNING[stage]),
        "stage/detection": float(DETECTOR in LEARNING[stage]),
        "rollout/completions": float(len(performed) + len(detected)),
        "rollout/tokens": float(sum(one[1] for one in performed) + sum(one[2] for one in detected)),
    }
    ratios = [game["ratio"] for game in games if game["ratio"] is not None]
    if ratios:
        metrics["information_loss/ratio"] = float(np.mean(ratios))
        off = [abs(ratio - share) > FAR * share for ratio in ratios]
        metrics["information_loss/far"] = sum(off) / len(off)
    if own := [voted == spy for spy, _, _, _, voted, seat in detected if seat == spy]:
        metrics["detector/accuracy_spy"] = sum(own) / len(own)
    for role, several in ((PERFORMER, [one[1] for one in performed]), (DETECTOR, [one[2] for one in detected])):
        metrics[f"rollout/completions/{role}"] = float(len(several))
        metrics[f"rollout/tokens/{role}"] = float(sum(several))
    return metrics
