"""Games of an evaluated model: a real model whose next word depends on the last one alone, and games made by hand."""

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from judgefree.config import PromptFormat, Suite
from judgefree.episodes import Completion, Example
from judgefree.errors import JudgefreeError
from judgefree.evaluation.games import Player, play_games, report
from judgefree.evaluation.stage import evaluate, pin
from judgefree.files import listing, pretty_json, read_json, seal, write_atomic
from judgefree.methods.spyrl import Options, Spyrl
from judgefree.rlsvr.game import Detection, Game, Performance, Rules, SpyGame
from judgefree.scoring.votes import Vote
from judgefree.transcripts.page import page
from judgefree.transcripts.records import group
from judgefree.transcripts.views import game_view

# A civilian writes ####1, or hm, which lacks the marker; the spy writes ####2. A detector looks at the last of its list: it
# names a spy that stands there (number 3), abstains before a civilian, and names nobody's number before a placeholder.
NEXT = {
    "civilian": {"####1": 0.8, "hm": 0.2},
    "spy": {"####2": 1.0},
    "show-1": {"\\boxed{N/A}": 1.0},
    "show-2": {"\\boxed{3}": 1.0},
    "show-nothing": {"\\boxed{7}": 1.0},
}
WORDS = ["<pad>", "<eos>", "<unk>", *NEXT, *(word for after in NEXT.values() for word in after), "a", "b"]
TEXTS = {
    "civilian": "{source} civilian", "spy": "{source} {percent} spy", "detector": "{source} {outputs}",
    "output": "{number} show-{text}", "placeholder": "nothing",
}  # fmt: skip
PROMPT = PromptFormat(template="{question}", chat=False, answer="marker")
WORTH = {"1": 0.9, "2": 0.3, None: 0.0}
EXAMPLES = [Example(f"item-{place}", "a b a b a b", "a reference") for place in range(40)]


@pytest.fixture(scope="module")
def world() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    size = 32
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=size, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=1, pad_token_id=0, rms_norm_eps=1e-12,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # attention and MLP add nothing, and the output matrix is a table of logits
        model.model.embed_tokens.weight.copy_(torch.eye(len(WORDS), size))
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        logits = torch.full((len(WORDS), len(WORDS)), -40.0)
        for place, word in enumerate(WORDS):
            for follower, probability in NEXT.get(word, {"<eos>": 1.0}).items():
                logits[place, WORDS.index(follower)] = math.log(probability)
        model.lm_head.weight.zero_()
        model.lm_head.weight[:, : len(WORDS)] = logits.T / math.sqrt(size)
    core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    return model.eval(), tokenizer


def suite(seed: int = 0, batch_rows: int = 16, items: int | None = None) -> Suite:
    game = {"prompts": "prompts/x.yaml", "players": 3, "information_loss": {"share": 0.5, "unit": "words"},
            "temperature": 1.0, "seed": seed, "items": items}  # fmt: skip
    return Suite(dataset="toy", max_completion_tokens=4, batch_rows=batch_rows, game=game)


def worth(rows: Sequence[tuple[str | None, Sequence[str]]]) -> list[float]:
    assert all(references == ["a reference"] for _, references in rows)
    return [WORTH[text] for text, _ in rows]


def test_every_vote_is_the_one_that_its_detector_cast(world: Any) -> None:
    table, metrics, plot = play_games(*world, EXAMPLES, suite(), PROMPT, TEXTS, worth)
    rules = Rules(players=3, answer="marker", unit="words", share=0.5, overseer_votes=None, masked=True, shaped=False,
                  beta=0.0, lam=0.0)  # fmt: skip
    environment = SpyGame(rules, TEXTS, 0)
    right = unreadable = abstained = 0
    for row, game in zip(table.to_dict("records"), environment.inject(EXAMPLES, 0), strict=True):
        assert (row["id"], row["spy"]) == (game.id, game.spy)
        last = [environment.order(game, seat)[-1] for seat in range(3)]
        expected = {"1": "na", "2": "vote", "nothing": "out_of_range"}
        assert row["outputs"][game.spy] == "2" and "2" not in [o for s, o in enumerate(row["outputs"]) if s != game.spy]
        assert row["kinds"] == [expected[row["outputs"][seat]] for seat in last]
        voted = [seat if seat == game.spy else None for seat in last]
        assert list(row["voted"]) == voted and row["votes"] == [voted.count(seat) for seat in range(3)]
        assert row["quality"] == [0.0 if text == "nothing" else WORTH[text] for text in row["outputs"]]
        assert row["caught"] == (game.spy in voted)
        right += voted.count(game.spy)
        unreadable += row["kinds"].count("out_of_range")
        abstained += row["kinds"].count("na")
    assert metrics["game/games"] == 40 and metrics["game/too_long"] == 0
    assert metrics["game/detector_accuracy"] == pytest.approx(right / 120) and right > 0
    assert metrics["game/invalid_votes"] == pytest.approx(unreadable / 120) and unreadable > 0
    assert metrics["game/na_votes"] == pytest.approx(abstained / 120)
    assert metrics["game/quality_spy"] == pytest.approx(0.3)
    assert metrics["game/vote_rank_correlation_low"] <= metrics["game/vote_rank_correlation"]
    assert plot.startswith(b"\x89PNG")


def test_games_depend_on_their_seed_and_not_on_batches(world: Any) -> None:
    once = play_games(*world, EXAMPLES, suite(), PROMPT, TEXTS, worth)
    again = play_games(*world, EXAMPLES, suite(batch_rows=7), PROMPT, TEXTS, worth)
    assert once[0].equals(again[0]) and once[1:] == again[1:]
    other = play_games(*world, EXAMPLES, suite(seed=1), PROMPT, TEXTS, worth)
    assert list(other[0]["spy"]) != list(once[0]["spy"])
    assert list(play_games(*world, EXAMPLES, suite(items=2), PROMPT, TEXTS, worth)[0]["id"]) == ["item-0", "item-1"]


def test_a_game_without_room_is_left_out_and_counted(world: Any) -> None:
    long = Example("long", "a " * 60, "a reference")  # and a detector's prompt holds six words more
    table, metrics, _ = play_games(*world, [long, *EXAMPLES[:3]], suite(), PROMPT, TEXTS, worth)
    assert metrics["game/too_long"] == 1 and metrics["game/games"] == 3 and "long" not in list(table["id"])
    with pytest.raises(JudgefreeError, match="too long"):
        play_games(*world, [long], suite(), PROMPT, TEXTS, worth)


@pytest.mark.parametrize("votes", [None, 4])
def test_records_of_training_with_such_games_make_a_page(world: Any, votes: int | None) -> None:
    options = Options(
        prompts="prompts/x.yaml", detectors="overseer" if votes else "players", overseer_votes=votes,
        information_loss={"share": 0.5, "unit": "words"}, beta=0.1, lam=0.1, baseline={"rule": "none"},
        detection_reward="plain", schedule={"rule": "joint"},
    )  # fmt: skip
    setting: Any = SimpleNamespace(training=SimpleNamespace(group_size=3), prompt=PROMPT, seed=0, texts=TEXTS)
    settings = suite()
    assert settings.game
    policy: Any = Player(*world, settings, settings.game, PROMPT)
    rows = [{"step": 0, **row} for row in Spyrl(options, setting).play(EXAMPLES[:6], policy).records]
    groups = group(rows)
    html = page("Run", {}, groups, groups, {}, overseer=votes is not None)
    assert html.count("<article") == 6 and html.count("<mark>") == 12, "every game's span, and the word for it"
    for several in groups.values():
        view = game_view(several, overseer=votes is not None)
        assert view.before is not None and view.before + view.masked + view.after == "a b a b a b"
        assert len(view.masked.split()) == 3 and len(view.players) == 3 and len(view.detectors) == (votes or 3)
        assert all(player.votes == len(player.voters) for player in view.players)
        assert [player.row["output"] for player in view.players if player.spy] == ["2"]
        assert sum(one.right for one in view.detectors) == sum(player.votes for player in view.players if player.spy)


def test_outputs_need_a_reference(world: Any) -> None:
    with pytest.raises(JudgefreeError, match="no test item of toy has a reference"):
        play_games(*world, [Example("item-x", "a b")], suite(), PROMPT, TEXTS, worth)


def test_games_are_played_on_the_first_items_that_have_a_reference(world: Any) -> None:
    without = [Example("null", "a b a b"), Example("blank", "a b a b", " ")]
    table, metrics, _ = play_games(*world, [*without, *EXAMPLES], suite(items=3), PROMPT, TEXTS, worth)
    assert table["id"].tolist() == ["item-0", "item-1", "item-2"] and metrics["game/too_long"] == 0


# ------------------------------------------------------------------------------------------------------------ by hand


def test_a_suite_with_games_leaves_them_in_its_report(world: Any, tmp_path: Path) -> None:
    """From the resolved settings to the report, twice the same bytes."""
    rows = pd.DataFrame([{"id": one.id, "question": one.question, "answer": one.answer, "demonstration": None}
                         for one in EXAMPLES[:6]])  # fmt: skip
    data, model = tmp_path / "data" / "toy", tmp_path / "models" / "mine"
    data.mkdir(parents=True)
    rows.astype({"demonstration": "string"}).to_parquet(data / "test.parquet")
    for part in world:
        part.save_pretrained(model)
    for folder in (data, model):
        seal(folder, {"key": "by hand"})
    prompt = {"template": "{question} civilian", "chat": False, "answer": "marker", "measure": "rouge"}
    settings = {"threads": 1, "grading": {"workers": 1, "timeout_s": 2.0}, "prompts": {"toy": prompt},
                "suites": {"toy": suite().model_dump(exclude_none=True)}, "texts": {"toy": TEXTS}}  # fmt: skip
    write_atomic(tmp_path / "resolved" / "evaluate" / "mine.json", pretty_json(settings))
    pin(tmp_path)
    evaluate("mine", tmp_path)
    report = tmp_path / "reports" / "runs" / "mine"
    first = listing(report)
    games, metrics = pd.read_parquet(report / "toy" / "games.parquet"), read_json(report / "toy" / "metrics.json")
    assert games["id"].tolist() == [one.id for one in EXAMPLES[:6]]
    assert metrics["game/detector_accuracy"] == pytest.approx(games["accuracy"].mean())
    assert metrics["items"] == metrics["game/games"] == 6 and metrics["rouge_l"] == 0, (
        "no word of the reference is said"
    )
    assert (report / "toy" / "votes.png").read_bytes().startswith(b"\x89PNG")
    shutil.rmtree(tmp_path / ".work")
    evaluate("mine", tmp_path)
    assert listing(report) == first


@pytest.fixture
def made() -> Callable[..., Game]:
    def make(name: str, spy: int, outputs: Sequence[str | None], votes: Sequence[int | str]) -> Game:
        said = Completion([3, 1], "text", "stop")
        game = Game(name, 0, "source", spy, None)
        game.performances = [
            Performance(seat, [3], said, text or "nothing", text is not None) for seat, text in enumerate(outputs)
        ]
        game.detections = [
            Detection(seat, [3], said, Vote("vote", 1), vote) if isinstance(vote, int)
            else Detection(seat, [3], said, Vote(vote), None)  # type: ignore[arg-type]
            for seat, vote in enumerate(votes)
        ]  # fmt: skip
        game.received = [sum(vote == seat for vote in votes) for seat in range(len(outputs))]
        return game

    return make


def test_measures_of_three_games_by_hand(made: Callable[..., Game]) -> None:
    games = [
        # votes 0, 2, 0, qualities 0.9, 0.3, 0.0 (no marker): vote ranks 1.5, 3, 1.5, quality ranks 3, 2, 1: no correlation
        made("a", 1, ["1", "2", None], [1, 1, "na"]),
        # votes 1, 0, 2, qualities 0.9, 0.9, 0.3: vote ranks 2, 1, 3, quality ranks 2.5, 2.5, 1: -1.5 / sqrt(2 * 1.5)
        made("b", 2, ["1", "1", "2"], [2, 2, 0]),
        made("c", 0, ["2", "1", "1"], ["missing", "invalid", "out_of_range"]),
    ]
    table, metrics, _ = report(games, dict.fromkeys("abc", "a reference"), worth, 0, "toy")
    assert table["caught"].tolist() == [True, True, False]
    assert table["accuracy"].tolist() == pytest.approx([2 / 3, 2 / 3, 0])
    assert table["ranks"].tolist() == [[1, 2, 3], [1.5, 1.5, 3], [3, 1.5, 1.5]]
    assert table["correlation"].tolist()[:2] == pytest.approx([0, -math.sqrt(3) / 2]) and math.isnan(
        table["correlation"][2]
    )
    expected = {
        "game/games": 3, "game/detector_accuracy": 4 / 9, "game/spy_caught": 2 / 3,
        "game/detector_accuracy_spy": 1 / 3,  # game a: seat 1 named itself; b: seat 2 named seat 0; c: no vote
        "game/na_votes": 1 / 9, "game/invalid_votes": 3 / 9, "game/unmarked": 1 / 9,
        "game/quality": (0.9 + 0.3 + 0.0 + 0.9 + 0.9 + 0.3 + 0.3 + 0.9 + 0.9) / 9, "game/quality_spy": 0.3,
        "game/unvoted": 1, "game/equal_quality": 0,
        "game/vote_rank_correlation": -math.sqrt(3) / 4,
        # products -0 and -1.5, votes 1.5 + 2, qualities 2 + 1.5
        "game/vote_rank_correlation_pooled": -1.5 / 3.5,
        "game/votes_rank_1": 0.25, "game/votes_rank_2": 1.25, "game/votes_rank_3": 1.0,
    }  # fmt: skip
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    # per game 2/3, 2/3, 0: standard deviation 2/3 / sqrt(3), over sqrt(3)
    assert metrics["game/detector_accuracy_se"] == pytest.approx(2 / 9)
