"""The spy game played with the evaluated model, which is every player and every detector (rlsvr/game.py), on test items that
have reference texts: how well it finds the spy, and whether votes fall on the outputs that are worse by the reference.

The reference is read here, after the game: no player and no detector ever sees it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pandas as pd

from judgefree.config import PlayedGame, PromptFormat, Sampling, Suite
from judgefree.episodes import Completion, Example, Policy, Prompt
from judgefree.errors import JudgefreeError, PromptTooLong
from judgefree.evaluation.alignment import Alignment, align, figure, quality_ranks, rank_correlation
from judgefree.evaluation.completions import with_error
from judgefree.prompting import encode_message
from judgefree.rlsvr.game import Game, Rules, SpyGame
from judgefree.sampling.rules import end_ids
from judgefree.sampling.transformers_engine import max_positions, sample

RESAMPLES, CONFIDENCE = 2000, 0.95  # of the intervals over games
UNREADABLE = ("missing", "invalid", "out_of_range")

# (output, None where a completion has none; references) of every row -> its quality, higher is better
Quality = Callable[[Sequence[tuple[str | None, Sequence[str]]]], Sequence[float]]


@dataclass(frozen=True)
class Player:
    """What the game asks of a policy, from a model that is not being trained."""

    model: Any
    tokenizer: Any
    suite: Suite
    played: PlayedGame
    prompt: PromptFormat

    def encode_message(self, text: str) -> list[int]:
        """Raises PromptTooLong where the model's window has no room left for a completion."""
        ids = encode_message(self.tokenizer, self.prompt, text)
        if len(ids) > (room := (max_positions(self.model) or math.inf) - self.suite.max_completion_tokens):
            raise PromptTooLong(f"a prompt has {len(ids)} tokens, and the model has room for {room}")
        return ids

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        return sample(
            self.model, self.tokenizer, prompts, n, seed=self.played.seed, step=0,
            settings=Sampling(
                temperature=self.played.temperature, max_completion_tokens=self.suite.max_completion_tokens
            ),
            eos_ids=end_ids(self.model, self.tokenizer), batch_rows=self.suite.batch_rows, stop=self.prompt.stop,
        )  # fmt: skip

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(values)


def play_games(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    suite: Suite,
    prompt: PromptFormat,
    texts: Mapping[str, str],
    quality: Quality,
) -> tuple[pd.DataFrame, dict[str, float], bytes]:
    """One game for each of the suite's first `game.items` examples that have a reference: what `report` makes of them.

    texts: of the game's prompt file. A game whose prompts leave the model no room is left out and counted.

    Raises JudgefreeError where no example has a reference, or no game has room.
    """
    played = suite.game
    assert played, "the suite plays no games"
    examples = [example for example in examples if (example.answer or "").strip()][: played.items]
    if not examples:
        raise JudgefreeError(f"no test item of {suite.dataset} has a reference to judge outputs by",
                             "remove game from the suite or mend the data set")  # fmt: skip
    games = _play(Player(model, tokenizer, suite, played, prompt), examples, texts)
    references = {example.id: str(example.answer) for example in examples}
    table, metrics, plot = report(games, references, quality, played.seed, suite.dataset)
    return table, {"game/too_long": float(len(examples) - len(games)), **metrics}, plot


def report(
    games: Sequence[Game], references: Mapping[str, str], quality: Quality, seed: int, title: str
) -> tuple[pd.DataFrame, dict[str, float], bytes]:
    """Table, metrics and figure of games that have been played, one or more.

    references: by game id; quality: of the public outputs, for instance ROUGE-L. An output that lacks its marker is None
    there, whatever stood for it in the game. seed, title: of the bootstrap, of the figure.

    Table: a row per game with id, spy (its seat), caught (it has more votes than anybody else), accuracy (the share of
    detectors that named it) and correlation (of votes with quality; None in games that alignment.py leaves out); by seat
    the lists outputs, quality, ranks (of quality, 1 the best), votes (received), voted (the seat voted for, None
    otherwise), kinds (of votes) and answers (the detectors' whole texts).

    Metrics: game/games, game/detector_accuracy and game/spy_caught (each with _se over games), game/detector_accuracy_spy
    (of spies, who do not know that they are), the shares game/na_votes, game/invalid_votes (missing, not readable or
    nobody's) and game/unmarked (outputs without their marker), game/quality and game/quality_spy;
    game/vote_rank_correlation with _low and _high, game/vote_rank_correlation_pooled, game/votes_rank_1..n (alignment.py),
    game/unvoted and game/equal_quality (games left out of these). What does not exist is left out. The figure: mean votes
    by quality rank, as PNG bytes.
    """
    outputs = [
        (one.output if one.marked else None, [references[game.id]]) for game in games for one in game.performances
    ]
    scores = iter(quality(outputs))
    table = pd.DataFrame([_row(game, [float(next(scores)) for _ in game.performances]) for game in games])
    aligned = align(list(zip(table["votes"], table["quality"], strict=True)), RESAMPLES, seed, CONFIDENCE)
    return table, _metrics(games, table) | _alignment(aligned), figure(aligned, title)


def _play(player: Player, examples: Sequence[Example], texts: Mapping[str, str]) -> list[Game]:
    played = player.played
    rules = Rules(
        players=played.players, answer=player.prompt.answer, unit=played.information_loss.unit,
        share=played.information_loss.share, overseer_votes=None, masked=True, shaped=False, beta=0.0, lam=0.0,
    )  # fmt: skip
    environment = SpyGame(rules, texts, played.seed)
    policy = cast(Policy, player)  # a game asks for no more than Player has
    unlabelled = [replace(example, answer=None, demonstration=None) for example in examples]
    return environment.interact(environment.execute(environment.inject(unlabelled, 0), policy), policy)


def _row(game: Game, quality: Sequence[float]) -> dict[str, Any]:
    others = [votes for seat, votes in enumerate(game.received) if seat != game.spy]
    says_something = any(game.received) and len(set(quality)) > 1
    return {
        "id": game.id,
        "spy": game.spy,
        "caught": game.received[game.spy] > max(others),
        "accuracy": game.received[game.spy] / len(game.detections),
        "correlation": rank_correlation(game.received, quality) if says_something else None,
        "outputs": [one.output for one in game.performances],
        "quality": list(quality),
        "ranks": quality_ranks(quality).tolist(),
        "votes": list(game.received),
        "voted": [one.voted for one in game.detections],
        "kinds": [one.vote.kind for one in game.detections],
        "answers": [one.completion.text for one in game.detections],
    }


def _metrics(games: Sequence[Game], table: pd.DataFrame) -> dict[str, float]:
    kinds = [kind for several in table["kinds"] for kind in several]
    spies = [float(one.voted == game.spy) for game in games for one in game.detections if one.seat == game.spy]
    quality = [value for several in table["quality"] for value in several]
    outputs = [one for game in games for one in game.performances]
    metrics = {
        "game/games": float(len(games)),
        **with_error("game/detector_accuracy", table["accuracy"]),
        **with_error("game/spy_caught", table["caught"]),
        "game/detector_accuracy_spy": _mean(spies),
        "game/na_votes": kinds.count("na") / len(kinds),
        "game/invalid_votes": sum(kind in UNREADABLE for kind in kinds) / len(kinds),
        "game/unmarked": sum(not one.marked for one in outputs) / len(outputs),
        "game/quality": _mean(quality),
        "game/quality_spy": _mean([row["quality"][row["spy"]] for row in table.to_dict("records")]),
    }
    return metrics


def _alignment(aligned: Alignment) -> dict[str, float]:
    metrics = {"game/unvoted": float(aligned.no_votes), "game/equal_quality": float(aligned.equal_quality)}
    if aligned.correlation and aligned.pooled:
        name, headline = "game/vote_rank_correlation", aligned.correlation
        metrics |= {name: headline.value, f"{name}_low": headline.low, f"{name}_high": headline.high}
        metrics[f"{name}_pooled"] = aligned.pooled.value
    return metrics | {f"game/votes_rank_{rank}": one.value for rank, one in enumerate(aligned.votes_by_rank, 1)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
