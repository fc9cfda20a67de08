import math
from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from judgefree.config import Sampling
from judgefree.episodes import Prompt
from judgefree.errors import JudgefreeError
from judgefree.sampling.transformers_engine import NonFiniteLogits, Row, batches, choose, sample, truncate

EOS = 1
TEMPERED = Sampling(temperature=0.9, max_completion_tokens=20)


def ragged_prompts(count: int = 5) -> list[Prompt]:
    generator = torch.Generator().manual_seed(3)
    lengths = [9, 2, 14, 5, 9, 1, 7][:count]
    ids = [torch.randint(2, 64, (length,), generator=generator).tolist() for length in lengths]
    return [Prompt(prompt, (f"example-{i}", "attempt", 0)) for i, prompt in enumerate(ids)]


def draw(model, tokenizer, prompts, n=3, *, settings=TEMPERED, eos_ids=(EOS,), batch_rows=64, step=4, **options):
    return sample(
        model, tokenizer, prompts, n, seed=11, step=step, settings=settings, eos_ids=set(eos_ids),
        batch_rows=batch_rows, **options,
    )  # fmt: skip


def tokens(completions) -> list[list[list[int]]]:
    return [[one.ids for one in several] for several in completions]


def test_equal_prompts_are_read_once_and_keep_their_own_streams(llama, tokenizer, monkeypatch):
    ids = ragged_prompts(1)[0].ids
    prompts = [Prompt(ids, ("game", "performer", seat)) for seat in range(4)] + ragged_prompts(2)[1:]
    apart = [tokens(draw(llama, tokenizer, [prompt], 2))[0] for prompt in prompts]
    widths = []
    forward = llama.forward
    monkeypatch.setattr(llama, "forward", lambda **given: widths.append(given["input_ids"].shape) or forward(**given))
    assert tokens(draw(llama, tokenizer, prompts, 2)) == apart and len({str(one) for one in apart}) == 5
    assert widths[0] == (2, len(ids)) and widths[1][1] == 1  # two prompts are read, ten completions follow


# ------------------------------------------------------------------------------------------------ against generate


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "qwen3_sliding"])
def test_greedy_equals_generate_on_ragged_prompts(make_model, name, tokenizer):
    model, prompts = make_model(name), ragged_prompts()
    # ids that greedy decoding reaches at different steps, so that rows leave the batch one after another
    free = tokens(draw(model, tokenizer, prompts, 1, eos_ids=(), greedy=True))
    ends = {free[0][0][3], free[2][0][8], free[3][0][14]}
    ours = tokens(draw(model, tokenizer, prompts, 2, eos_ids=ends, greedy=True))

    width = max(len(p.ids) for p in prompts)
    padded = torch.tensor([[0] * (width - len(p.ids)) + p.ids for p in prompts])
    mask = torch.tensor([[0] * (width - len(p.ids)) + [1] * len(p.ids) for p in prompts])
    output = model.generate(
        padded, attention_mask=mask, do_sample=False, max_new_tokens=20, eos_token_id=list(ends), pad_token_id=0
    )
    theirs = []
    for row in output[:, width:].tolist():
        end = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        theirs.append(row[:end])
    assert [several[0] for several in ours] == theirs
    assert [several[1] for several in ours] == theirs
    assert len({len(ids) for ids in theirs}) > 2


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("truncated", [{}, {"top_k": 12, "top_p": 0.8}])
def test_logprobs_equal_those_of_one_full_pass(llama, tokenizer, greedy, truncated):
    chosen = TEMPERED.model_copy(update=truncated)
    prompts = ragged_prompts()
    for prompt, several in zip(
        prompts, draw(llama, tokenizer, prompts, settings=chosen, greedy=greedy, keep_logprobs=True), strict=True
    ):
        for one in several:
            with torch.no_grad():
                logits = llama(torch.tensor([prompt.ids + one.ids])).logits[0, len(prompt.ids) - 1 : -1]
            if not greedy:
                logits = truncate(logits / 0.9, chosen.top_k, chosen.top_p)
            expected = logits.log_softmax(-1)[range(len(one.ids)), one.ids]
            assert one.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


# ----------------------------------------------------------------------------------------------------- independence


def test_a_rows_tokens_depend_on_neither_the_batch_nor_the_order_of_prompts(llama, tokenizer):
    prompts = ragged_prompts()
    whole = tokens(draw(llama, tokenizer, prompts, 4))
    assert len({tuple(ids) for several in whole for ids in several}) == 20  # no two streams are the same
    for batch_rows in (1, 3, 4, 9):
        assert tokens(draw(llama, tokenizer, prompts, 4, batch_rows=batch_rows)) == whole
    assert tokens(draw(llama, tokenizer, prompts[::-1], 4)) == whole[::-1]
    assert tokens(draw(llama, tokenizer, prompts[2:3], 2)) == [whole[2][:2]]  # one prompt again, by itself
    assert tokens(draw(llama, tokenizer, prompts, 4, step=5)) != whole


def test_the_global_random_state_plays_no_part(llama, tokenizer):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = tokens(draw(llama, tokenizer, ragged_prompts()))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert tokens(draw(llama, tokenizer, ragged_prompts())) == first


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    n=st.integers(1, 7),
    batch_rows=st.integers(1, 12),
)
@settings(max_examples=60, deadline=None)
def test_batches_hold_every_row_once_and_split_no_prompt_that_fits(lengths, n, batch_rows):
    prompts = [[2] * length for length in lengths]
    rows = [Row(i, 1) for i in range(len(prompts)) for _ in range(n)]
    made = list(batches(prompts, rows, batch_rows))
    assert sorted(id(row) for batch in made for row in batch) == sorted(map(id, rows))
    assert all(1 <= len(batch) <= batch_rows for batch in made)
    for i in range(len(prompts)):
        homes = sum(any(row.prompt == i for row in batch) for batch in made)
        assert homes == math.ceil(n / batch_rows)
    longest = [max(len(prompts[row.prompt]) for row in batch) for batch in made]
    assert longest == sorted(longest, reverse=True)


# ----------------------------------------------------------------------------------------------------- distribution


def frequencies(logits: torch.Tensor, chosen: Sampling, draws: int = 40_000) -> torch.Tensor:
    stream = torch.Generator().manual_seed(5)
    rows = logits.expand(draws // 8, -1)
    counts = torch.zeros(logits.numel())
    for _ in range(8):
        ids, _ = choose(rows, chosen, [stream] * len(rows))
        counts += torch.bincount(ids, minlength=logits.numel())
    return counts


def plain_nucleus(logits: list[float], temperature: float, top_k: int | None, top_p: float | None) -> list[float]:
    """The truncated distribution by loops over Python numbers."""
    weights = {i: math.exp(x / temperature) for i, x in enumerate(logits)}
    order = sorted(weights, key=lambda i: (-weights[i], i))[:top_k]
    total, kept, mass = sum(weights[i] for i in order), [], 0.0
    for i in order:
        if top_p is not None and kept and mass >= top_p:
            break
        kept.append(i)
        mass += weights[i] / total
    return [weights[i] / sum(weights[j] for j in kept) if i in kept else 0.0 for i in range(len(logits))]


@pytest.mark.parametrize(
    "options",
    [{}, {"top_k": 5}, {"top_p": 0.7}, {"top_k": 6, "top_p": 0.9}, {"top_p": 0.01}, {"top_k": 99}],
)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_draws_follow_the_distribution(options, temperature):
    logits = torch.randn(12, generator=torch.Generator().manual_seed(2)) * 1.5
    expected = torch.tensor(plain_nucleus(logits.tolist(), temperature, options.get("top_k"), options.get("top_p")))
    counts = frequencies(logits, Sampling(temperature=temperature, max_completion_tokens=1, **options))
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    if possible.sum() > 1:
        share = expected[possible].double()
        assert chisquare(counts[possible], share / share.sum() * counts.sum()).pvalue > 0.001
    shaped = truncate(logits[None] / temperature, options.get("top_k"), options.get("top_p")).softmax(-1)[0]
    assert torch.allclose(shaped, expected, atol=1e-6)


def test_equal_logits_beyond_the_kth_are_cut_too():
    assert truncate(torch.zeros(1, 6), 2, None).isfinite().sum() == 2


# ------------------------------------------------------------------------------------------------------------- ends


def test_the_end_token_is_kept_and_ends_the_row_also_when_it_is_the_padding_token(llama, tokenizer):
    shared = deepcopy(tokenizer)
    shared.pad_token = shared.eos_token
    for text_tokenizer in (tokenizer, shared):
        several = [one for many in draw(llama, text_tokenizer, ragged_prompts(7), 6) for one in many]
        ended = [one for one in several if one.ids[-1] == EOS]
        assert ended and all(EOS not in one.ids[:-1] for one in several)
        assert all(one.finish_reason == "stop" for one in ended)
        assert all(one.finish_reason == "length" and len(one.ids) == 20 for one in several if one not in ended)


def test_a_padding_token_inside_the_prompt_is_read_like_any_other(llama, tokenizer):
    """With pad equal to eos, earlier turns of a conversation hold that id: it must not be masked."""
    prompt = Prompt([5, EOS, 9, 0, 12], ("a",))
    ours = draw(llama, tokenizer, [prompt, Prompt([4] * 9, ("b",))], 1, eos_ids=(), greedy=True)[0][0]
    ids = list(prompt.ids)
    for _ in range(20):
        with torch.no_grad():
            ids.append(llama(torch.tensor([ids])).logits[0, -1].argmax().item())
    assert ours.ids == ids[5:]


def test_a_stop_string_ends_the_row_with_the_token_that_completes_it(llama, tokenizer):
    prompts = ragged_prompts()
    free = draw(llama, tokenizer, prompts, 4, eos_ids=())
    stop = [free[0][0].text[4:6], free[3][1].text[7:9]]
    stopped = draw(llama, tokenizer, prompts, 4, eos_ids=(), stop=stop)
    hits = 0
    for whole, cut in zip((c for m in free for c in m), (c for m in stopped for c in m), strict=True):
        prefixes = [tokenizer.decode(whole.ids[:i], skip_special_tokens=True) for i in range(1, len(whole.ids) + 1)]
        end = next((i for i, text in enumerate(prefixes, 1) if any(part in text for part in stop)), None)
        if end is None:
            assert (cut.ids, cut.text, cut.finish_reason) == (whole.ids, whole.text, "length")
        else:
            before = min(whole.text.find(part) for part in stop if part in prefixes[end - 1])
            assert (cut.ids, cut.text, cut.finish_reason) == (whole.ids[:end], whole.text[:before], "stop")
            hits += 1
    assert hits >= 2


def test_a_completion_ends_where_the_models_positions_end(llama, tokenizer):
    prompts = [Prompt([3] * 60, ("long",)), Prompt([3] * 10, ("short",))]
    long, short = draw(llama, tokenizer, prompts, 1, eos_ids=())
    assert (len(long[0].ids), long[0].finish_reason) == (4, "length")
    assert len(short[0].ids) == 20
    with pytest.raises(JudgefreeError, match="64 positions"):
        draw(llama, tokenizer, [Prompt([3] * 64, ("too long",))])


# ------------------------------------------------------------------------------------------------------------ model


def test_the_model_is_left_as_it_was(make_model, tokenizer):
    model = make_model("llama")
    model.train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    draw(model, tokenizer, ragged_prompts(2), 1)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.is_grad_enabled()


def test_dropout_is_off_while_sampling(make_model, tokenizer):
    model = make_model("llama")
    expected = tokens(draw(model, tokenizer, ragged_prompts(2)))
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    model.train()
    assert tokens(draw(model, tokenizer, ragged_prompts(2))) == expected


def test_broken_weights_are_an_error_not_tokens(make_model, tokenizer):
    model = make_model("llama")
    model.lm_head.weight.data[7] = math.nan
    for greedy in (False, True):
        with pytest.raises(NonFiniteLogits, match="NaN"):
            draw(model, tokenizer, ragged_prompts(2), greedy=greedy)


def test_half_precision_weights_are_sampled_in_full_precision(make_model, tokenizer):
    model = make_model("llama").bfloat16()
    prompts = ragged_prompts()
    for several in draw(model, tokenizer, prompts, keep_logprobs=True):
        assert all(math.isfinite(value) and value <= 0 for one in several for value in one.logprobs)


def test_no_prompts_give_no_completions(llama, tokenizer):
    assert draw(llama, tokenizer, []) == []
