"""Prompts that begin alike: what is read of them, and that sharing changes no token."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judgefree.config import Sampling
from judgefree.episodes import Prompt
from judgefree.sampling import prefixes
from judgefree.sampling.transformers_engine import sample

SETTINGS = Sampling(temperature=0.9, max_completion_tokens=8)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Eight tokens are worth a second pass here: the models have 64 positions."""
    monkeypatch.setattr(prefixes, "LEAST", 8)


def game(source: int, players: int = 5, ragged: bool = True) -> list[list[int]]:
    """Detectors' prompts of one game: four see the source, one a source whose second half is hidden; outputs differ."""
    start = torch.Generator().manual_seed(source)
    seen = torch.randint(2, 64, (30,), generator=start).tolist()
    hidden = [*seen[:15], *[7] * 15]
    outputs = [torch.randint(2, 64, (6 + ragged * n,), generator=start).tolist() for n in range(players)]
    return [(hidden if seat == 2 else seen) + [seat + 2] + outputs[seat] for seat in range(players)]


def read_by(model, tokenizer, prompts, monkeypatch, batch_rows=64, **options):
    """Completions' ids, and the shapes (rows, tokens) of the passes that read prompts."""
    shapes, forward = [], type(model).forward
    with monkeypatch.context() as patch:
        patch.setattr(
            model, "forward", lambda **given: shapes.append(tuple(given["input_ids"].shape)) or forward(model, **given)
        )
        done = sample(
            model, tokenizer, [Prompt(ids, (f"p{i}",)) for i, ids in enumerate(prompts)], 2, seed=1, step=0,
            settings=SETTINGS, eos_ids={1}, batch_rows=batch_rows, **options,
        )  # fmt: skip
    return [[one.ids for one in several] for several in done], [shape for shape in shapes if shape[1] > 1]


@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
@pytest.mark.parametrize("greedy", [True, False])
def test_a_shared_beginning_is_read_once_and_changes_no_token(make_model, tokenizer, monkeypatch, name, greedy):
    model = make_model(name)
    prompts = [*game(1), [5] * 9, *game(2, ragged=False), game(1)[0][:20]]
    shared, shapes = read_by(model, tokenizer, prompts, monkeypatch, greedy=greedy)
    alone = [read_by(model, tokenizer, [ids], monkeypatch, greedy=greedy)[0][0] for ids in prompts]
    if greedy:
        assert shared == alone
    with monkeypatch.context() as patch:
        patch.setattr(prefixes, "can_share", lambda cache: False)
        apart, whole = read_by(model, tokenizer, prompts, monkeypatch, greedy=greedy)
    assert shared == apart
    assert whole == [(12, 41)] and len(shapes) == 2
    # heads: two sources and their two hidden versions; of the longest prompt 31 tokens, of the short ones none or ten
    assert shapes == [(4, 31), (12, 10)]


def test_detectors_of_one_game_read_their_source_once(llama, tokenizer, monkeypatch):
    prompts = [ids for seat, ids in enumerate(game(3, ragged=False)) if seat != 2]
    assert read_by(llama, tokenizer, prompts, monkeypatch)[1] == [(1, 30), (4, 7)]
    assert read_by(llama, tokenizer, prompts, monkeypatch, batch_rows=2)[1] == [(1, 37)] * 4  # two samples fill a batch


def test_models_with_a_window_read_every_prompt(make_model, tokenizer, monkeypatch):
    assert read_by(make_model("qwen3_sliding"), tokenizer, game(1), monkeypatch)[1] == [(5, 41)]


def test_what_hardly_begins_alike_is_read_apart():
    assert prefixes.plan([[3] * 7 + [n] * 40 for n in (1, 2, 4)]) == prefixes.Reading(47, [], [], 141)
    assert prefixes.plan([[3] * 8 + [n] * 40 for n in (1, 2, 4)]) == prefixes.Reading(40, [2], [0, 0, 0], 128)


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30), min_size=1, max_size=8))
def test_every_head_begins_the_one_it_is_read_with(tails):
    prompts = [[5] * 9 * (len(tail) % 2) + tail for tail in tails]
    reading = prefixes.plan(prompts)
    assert reading.tokens <= max(map(len, prompts)) * len(prompts) and reading.tail >= 1
    if reading.heads:
        heads = [prompt[: max(0, len(prompt) - reading.tail)] for prompt in prompts]
        for head, place in zip(heads, reading.head_of, strict=True):
            assert heads[reading.heads[place]][: len(head)] == head
        assert reading.tokens == max(map(len, heads)) * len(reading.heads) + reading.tail * len(prompts)
        # no two that are read begin alike as a whole: fewer would do
        read = sorted(heads[i] for i in reading.heads)
        assert not [1 for a, b in pairwise(read) if b[: len(a)] == a]
