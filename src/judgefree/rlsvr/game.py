"""The spy game: who sees less than the others? (SpyRL)

    inject    a spy u among n players, uniformly; its source lacks one contiguous span (masking.py)
    execute   every player does the task on what it sees, independently; only the part that the data set's answer format
              finds in a completion after its thought is public, a fixed placeholder where it finds none
    interact  detectors see all outputs, each in an order of its own, and vote; or abstain
    reward    votes are compared with u, by rule (advantages.py)

Detectors are the players, each beside its own view and told neither its role nor its number (it cannot know which output
is its own, so a vote for itself is a vote); or one overseer beside the whole source, asked several times. A player is told
its role when it performs. Spy, span and orders come from (seed, rollout, example) alone. No reference text enters a game.

A game of which one prompt is too long is left out as a whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from judgefree.advantages import detection_reward, performing_rewards
from judgefree.episodes import Completion, Example, Policy, Prompt, stream_seed
from judgefree.errors import JudgefreeError, PromptTooLong
from judgefree.prompting import fill
from judgefree.rlsvr.masking import Masked, Unit, mask
from judgefree.scoring.answers import Where, public_text
from judgefree.scoring.thought import split_thought
from judgefree.scoring.votes import Vote, read_vote

PERFORMER, DETECTOR = "performer", "detector"
TEXTS = {
    "civilian": ("source",),
    "spy": ("source", "percent"),
    "detector": ("source", "outputs"),
    "output": ("number", "text"),
    "placeholder": (),
}
_LEAST_THOUGHT = 10  # characters that the released code's format reward asks for more than


@dataclass(frozen=True)
class Rules:
    """overseer_votes: how often one detector with the whole source is asked; None: every player is a detector. masked: False
    for the ablation without a spy, in which all see everything. shaped: the released code's detection reward."""

    players: int
    answer: Where
    unit: Unit
    share: float
    overseer_votes: int | None
    masked: bool
    shaped: bool
    beta: float
    lam: float


@dataclass
class Performance:
    """What a player wrote. output: its public text; marked: whether it stood where it belongs."""

    seat: int
    prompt_ids: list[int]
    completion: Completion
    output: str
    marked: bool
    reward: float = 0.0


@dataclass
class Detection:
    """A detector's answer. seat: of the player, or the number of the overseer's answer. voted: the seat voted for."""

    seat: int
    prompt_ids: list[int]
    completion: Completion
    vote: Vote
    voted: int | None
    reward: float = 0.0


@dataclass
class Game:
    """spy: its seat, from 0. view: what the spy sees, None where all see everything. received: votes by seat."""

    id: str
    rollout: int
    source: str
    spy: int
    view: Masked | None
    performances: list[Performance] = field(default_factory=list)
    detections: list[Detection] = field(default_factory=list)
    received: list[int] = field(default_factory=list)

    def seen_by(self, seat: int) -> str:
        return self.view.text if self.view and seat == self.spy else self.source


class SpyGame:
    """The environment. texts: those of the prompt file (TEXTS)."""

    def __init__(self, rules: Rules, texts: Mapping[str, str], seed: int) -> None:
        self.rules = rules
        self.texts = texts
        self.seed = seed

    def inject(self, examples: Sequence[Example], rollout: int) -> list[Game]:
        games = []
        for example in examples:
            spy = stream_seed(self.seed, rollout, example.id, "spy") % self.rules.players
            draw = stream_seed(self.seed, rollout, example.id, "mask")
            view = mask(example.question, self.rules.unit, self.rules.share, draw) if self.rules.masked else None
            games.append(Game(example.id, rollout, example.question, spy, view))
        return games

    def execute(self, episodes: Sequence[Game], policy: Policy) -> list[Game]:
        def prompts(game: Game) -> list[Prompt]:
            civilian = policy.encode_message(fill(self.texts["civilian"], source=game.source))
            spy = civilian
            if game.view:
                percent = f"{100 * self.rules.share:g}"
                spy = policy.encode_message(fill(self.texts["spy"], source=game.view.text, percent=percent))
            return [
                Prompt(spy if seat == game.spy else civilian, (game.id, PERFORMER, seat))
                for seat in range(self.rules.players)
            ]

        games, asked = _fitting(episodes, prompts, policy)
        said = iter(policy.sample([prompt for several in asked for prompt in several], 1))
        for game, several in zip(games, asked, strict=True):
            game.performances = [
                self._performance(seat, prompt.ids, next(said)[0]) for seat, prompt in enumerate(several)
            ]
        return games

    def interact(self, episodes: Sequence[Game], policy: Policy) -> list[Game]:
        def prompts(game: Game) -> list[Prompt]:
            if self.rules.overseer_votes:
                return [Prompt(policy.encode_message(self._question(game, 0, game.source)), (game.id, DETECTOR, 0))]
            return [
                Prompt(policy.encode_message(self._question(game, seat, game.seen_by(seat))), (game.id, DETECTOR, seat))
                for seat in range(self.rules.players)
            ]

        games, asked = _fitting(episodes, prompts, policy)
        flat = [prompt for several in asked for prompt in several]
        said = iter(policy.sample(flat, self.rules.overseer_votes or 1))
        for game, several in zip(games, asked, strict=True):
            for place, prompt in enumerate(several):
                order = self.order(game, place)
                for sample, completion in enumerate(next(said)):
                    game.detections.append(self._detection(place + sample, prompt.ids, completion, order))
            game.received = received(game.detections, self.rules.players)
        return games

    def reward(self, episodes: Sequence[Game]) -> None:
        for game in episodes:
            rewards = performing_rewards(game.received, game.spy, self.rules.beta, self.rules.lam)
            for performance in game.performances:
                performance.reward = float(rewards[performance.seat])
            for detection in game.detections:
                detection.reward = self._detection_reward(detection, game.spy)

    def order(self, game: Game, detector: int) -> list[int]:
        """The seats in the order in which a detector sees their outputs, numbered from 1."""
        return sorted(
            range(self.rules.players),
            key=lambda seat: stream_seed(self.seed, game.rollout, game.id, "order", detector, seat),
        )

    def _question(self, game: Game, detector: int, source: str) -> str:
        outputs = "\n".join(
            fill(self.texts["output"], number=str(place), text=listed(game.performances[seat].output))
            for place, seat in enumerate(self.order(game, detector), 1)
        )
        return fill(self.texts["detector"], source=source, outputs=outputs)

    def _performance(self, seat: int, prompt_ids: list[int], completion: Completion) -> Performance:
        output = public_text(completion, self.rules.answer)
        return Performance(seat, prompt_ids, completion, output or self.texts["placeholder"], output is not None)

    def _detection(self, seat: int, prompt_ids: list[int], completion: Completion, order: Sequence[int]) -> Detection:
        vote = read_vote(completion.text, self.rules.players, cut=completion.finish_reason == "length")
        return Detection(seat, prompt_ids, completion, vote, None if vote.number is None else order[vote.number - 1])

    def _detection_reward(self, detection: Detection, spy: int) -> float:
        form = None
        if self.rules.shaped:
            thought, rest = split_thought(detection.completion.text)
            form = len(thought.strip()) > _LEAST_THOUGHT and bool(rest.strip())
        if detection.voted == spy:
            return detection_reward("right", form)
        return detection_reward("abstained" if detection.vote.kind == "na" else "wrong", form)


def listed(output: str) -> str:
    """An output as detectors see it: every line of several is marked, so that none passes for another player's entry, and no
    box is left that a detector might quote."""
    lines = output.replace("\\boxed", "boxed").splitlines()
    return "\n".join(f"| {line}" for line in lines) if len(lines) > 1 else "".join(lines)


def received(detections: Sequence[Detection], players: int) -> list[int]:
    """Votes by seat; what is no vote is nobody's."""
    votes = [detection.voted for detection in detections]
    return [votes.count(seat) for seat in range(players)]


def _fitting(
    games: Sequence[Game], prompts: Callable[[Game], list[Prompt]], policy: Policy
) -> tuple[list[Game], list[list[Prompt]]]:
    """The games whose prompts are all short enough, and the prompts. Raises JudgefreeError if there are none anywhere."""
    kept, asked, reasons = [], [], []
    for game in games:
        try:
            asked.append(prompts(game))
            kept.append(game)
        except PromptTooLong as error:  # counted in `game/too_long`
            reasons.append(error.problem)
    everyones = policy.gather([(len(kept), reasons[:1])])
    if not any(count for count, _ in everyones):
        first = next(reason for _, several in everyones for reason in several)
        raise JudgefreeError(
            f"every game of a rollout has a prompt that is too long, so nothing is left to play; of the first, {first}",
            "raise training.max_prompt_tokens (a detector's prompt holds the source and all outputs), lower "
            "sampling.max_completion_tokens, or prepare shorter sources",
        )
    return kept, asked
