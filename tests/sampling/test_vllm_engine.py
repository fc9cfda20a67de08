"""The vLLM engine's own rules, on a stand-in for `vllm.LLM` that computes with a second copy of a real model. vLLM
itself runs in an environment of its own."""

import importlib.util
import inspect
import sys
from types import SimpleNamespace

import pytest
import torch
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from judgefree.config import Sampling
from judgefree.episodes import Prompt, stream_seed
from judgefree.errors import JudgefreeError
from judgefree.sampling.transformers_engine import Row, complete, sample
from judgefree.sampling.vllm_engine import PROBE_TOLERANCE, VllmEngine, require_vllm

SETTINGS = Sampling(temperature=0.8, max_completion_tokens=16)
PROMPTS = [Prompt([5, 9, 12], ("a", 0)), Prompt([7] * 6, ("b", 0))]


class StandInLLM:
    """Generates from its own copy of the weights. What it answered once it answers again until its cache is reset, as
    a prefix cache keeps what old weights computed."""

    def __init__(self, model, eos_id):
        self.model, self.eos_id = model, eos_id
        self.cache, self.busy, self.requests = {}, False, []

    def reset_prefix_cache(self):
        if not self.busy:
            self.cache.clear()
        return not self.busy

    def generate(self, prompts, sampling_params, use_tqdm):
        self.requests += [vars(options) for options in sampling_params]
        return [self.answer(p["prompt_token_ids"], o) for p, o in zip(prompts, sampling_params, strict=True)]

    def answer(self, ids, options):
        key = (tuple(ids), str(vars(options)))
        if key not in self.cache:
            ignore = getattr(options, "ignore_eos", False)
            stream = torch.Generator().manual_seed(options.seed) if options.temperature else None
            row = Row(0, options.max_tokens, stream)
            settings = Sampling(temperature=options.temperature or 1.0, max_completion_tokens=options.max_tokens)
            complete(self.model, [ids], [row], settings, lambda i: not ignore and i[-1] == self.eos_id, 1, True)
            self.cache[key] = row
        row = self.cache[key]
        logprobs = [{i: SimpleNamespace(logprob=p)} for i, p in zip(row.ids, row.logprobs, strict=True)]
        kept = logprobs if options.logprobs is not None else None
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=row.ids, logprobs=kept, finish_reason="stop")])


def make_trainer(model, engine_model, tokenizer, copies=True):
    """What the engine needs of a GRPOTrainer; `copies` False is a weight sync that returns and does nothing."""
    llm = StandInLLM(engine_model, tokenizer.eos_token_id)

    def sync_weights():
        if copies:
            engine_model.load_state_dict(model.state_dict())

    def logprobs(turns):
        with torch.no_grad():
            logits = [model(torch.tensor([t.prompt_ids + t.completion_ids])).logits[0] / 0.8 for t in turns]
        return [
            row[len(t.prompt_ids) - 1 : -1].log_softmax(-1)[range(len(t.completion_ids)), t.completion_ids].tolist()
            for row, t in zip(logits, turns, strict=True)
        ]

    return SimpleNamespace(
        model=model,
        processing_class=tokenizer,
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(unwrap_model=lambda wrapped: wrapped, is_main_process=True, process_index=0),
        vllm_generation=SimpleNamespace(llm=llm, mode="colocate", max_model_length=64, sync_weights=sync_weights),
        logprobs=logprobs,
    )


@pytest.fixture
def trainer(make_model, tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    return make_trainer(make_model("llama"), make_model("llama"), tokenizer)


def shift(model, by):
    """A big step of the optimizer."""
    with torch.no_grad():
        model.lm_head.weight.add_(
            torch.randn(model.lm_head.weight.shape, generator=torch.Generator().manual_seed(1)) * by
        )


def test_the_call_is_the_same_as_that_of_the_other_engine(trainer):
    """The stand-in draws from the same streams, so ids, texts, reasons and log-probs must be the same as ours."""
    engine = VllmEngine(trainer, stop=["#"], keep_logprobs=True)
    theirs = engine(PROMPTS, 3, 11, 4, SETTINGS, False)
    ours = sample(
        trainer.model, trainer.processing_class, PROMPTS, 3, seed=11, step=4, settings=SETTINGS, eos_ids={1},
        batch_rows=64, keep_logprobs=True,
    )  # fmt: skip
    assert [[one.ids for one in several] for several in theirs] == [[one.ids for one in several] for several in ours]
    assert theirs[0][0].logprobs == pytest.approx(ours[0][0].logprobs, abs=1e-4)
    assert engine.probe_difference == pytest.approx(0, abs=1e-4)


def test_every_sample_is_a_request_with_a_seed_of_its_own(trainer):
    engine = VllmEngine(trainer, stop=["#"], keep_logprobs=False)
    engine(PROMPTS, 2, 11, 4, Sampling(temperature=0.8, max_completion_tokens=60, top_k=5, top_p=0.9), False)
    requests = trainer.vllm_generation.llm.requests[1:]  # the first is the probe
    assert [r["seed"] for r in requests] == [stream_seed(11, 4, key, 0, i) for key in "ab" for i in range(2)]
    assert [r["max_tokens"] for r in requests] == [60, 60, 58, 58]  # 64 positions, prompts of 3 and 6
    for request in requests:
        assert (request["temperature"], request["top_k"], request["top_p"]) == (0.8, 5, 0.9)
        assert (request["stop"], request["stop_token_ids"], request["logprobs"]) == (["#"], [1], None)


def test_greedy_asks_for_temperature_zero(trainer):
    engine = VllmEngine(trainer, stop=[], keep_logprobs=False)
    [[first], _] = engine(PROMPTS, 1, 11, 4, SETTINGS, True)
    assert {r["temperature"] for r in trainer.vllm_generation.llm.requests[1:]} == {0.0}
    expected = sample(
        trainer.model, trainer.processing_class, PROMPTS, 1, seed=0, step=0, settings=SETTINGS, eos_ids={1},
        batch_rows=8, greedy=True,
    )  # fmt: skip
    assert first == expected[0][0]


class StandInClient:
    """Answers as TRL's client of a server does, one request at a time, with the stand-in's completions."""

    def __init__(self, llm):
        self.llm = llm

    def generate(self, prompts, n, generation_kwargs, **named):
        [ids] = prompts
        assert n == 1
        [output] = self.llm.answer(ids, SimpleNamespace(**named, **generation_kwargs)).outputs
        chosen = output.logprobs and [[entry.logprob] for by_id in output.logprobs for entry in by_id.values()]
        return {"completion_ids": [output.token_ids], "logprobs": chosen and [chosen]}


def test_a_server_gives_the_same_completions_in_the_same_order(trainer):
    colocated = VllmEngine(trainer, stop=[], keep_logprobs=True)(PROMPTS, 5, 11, 4, SETTINGS, False)
    trainer.vllm_generation.mode = "server"
    trainer.vllm_generation.vllm_client = StandInClient(trainer.vllm_generation.llm)
    assert VllmEngine(trainer, stop=[], keep_logprobs=True)(PROMPTS, 5, 11, 4, SETTINGS, False) == colocated


def test_trl_offers_what_the_engine_relies_on():
    made = inspect.signature(VLLMGeneration.__init__).parameters
    assert {"mode", "max_model_length"} <= made.keys() and callable(VLLMGeneration.sync_weights)
    asked = inspect.signature(VLLMClient.generate).parameters
    assert {
        "prompts",
        "n",
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "logprobs",
        "generation_kwargs",
    } <= asked.keys()


def test_weights_are_copied_once_a_step_and_arrive(trainer):
    engine = VllmEngine(trainer, stop=[], keep_logprobs=False)
    before = engine(PROMPTS, 2, 11, 4, SETTINGS, False)
    probes = len(trainer.vllm_generation.llm.requests)
    engine(PROMPTS, 2, 11, 4, SETTINGS, False)
    assert len(trainer.vllm_generation.llm.requests) == probes + 4  # no second probe within the step
    shift(trainer.model, 1.0)
    trainer.state.global_step = 1
    assert engine(PROMPTS, 2, 11, 4, SETTINGS, False) != before
    assert engine.probe_difference < 1e-4


def test_weights_that_do_not_arrive_fail_the_step(make_model, tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    trainer = make_trainer(make_model("llama"), make_model("llama"), tokenizer, copies=False)
    engine = VllmEngine(trainer, stop=[], keep_logprobs=False)
    engine(PROMPTS, 1, 11, 0, SETTINGS, False)  # equal so far
    shift(trainer.model, 1.0)
    trainer.state.global_step = 1
    for _ in range(2):  # and it does not pass at the second try
        with pytest.raises(JudgefreeError, match="does not sample from the trainer's weights"):
            engine(PROMPTS, 1, 11, 1, SETTINGS, False)
    assert engine.probe_difference > PROBE_TOLERANCE


def test_a_prefix_cache_that_was_not_emptied_fails_the_step(trainer):
    engine = VllmEngine(trainer, stop=[], keep_logprobs=False)
    engine(PROMPTS, 1, 11, 0, SETTINGS, False)
    shift(trainer.model, 1.0)
    trainer.state.global_step = 1
    trainer.vllm_generation.llm.busy = True
    with pytest.raises(JudgefreeError, match="prefix cache"):
        engine(PROMPTS, 1, 11, 1, SETTINGS, False)


def test_a_prefix_cache_that_lies_about_being_empty_is_found_by_the_probe(trainer):
    engine = VllmEngine(trainer, stop=[], keep_logprobs=False)
    engine(PROMPTS, 1, 11, 0, SETTINGS, False)
    shift(trainer.model, 1.0)
    trainer.state.global_step = 1
    trainer.vllm_generation.llm.reset_prefix_cache = lambda: True
    with pytest.raises(JudgefreeError, match="does not sample from the trainer's weights"):
        engine(PROMPTS, 1, 11, 1, SETTINGS, False)


def test_nan_in_the_engine_is_refused(trainer):
    trainer.logprobs = lambda turns: [[float("nan")] * len(turn.completion_ids) for turn in turns]
    with pytest.raises(JudgefreeError, match="nan nats"):
        VllmEngine(trainer, stop=[], keep_logprobs=False)(PROMPTS, 1, 11, 0, SETTINGS, False)


def test_a_request_given_up_is_an_error(trainer):
    engine = VllmEngine(trainer, stop=[], keep_logprobs=False)
    engine(PROMPTS, 1, 11, 0, SETTINGS, False)
    output = SimpleNamespace(token_ids=[3], logprobs=None, finish_reason="abort")
    trainer.vllm_generation.llm.generate = lambda *_, **__: [SimpleNamespace(outputs=[output])] * 2
    with pytest.raises(JudgefreeError, match="abort"):
        engine(PROMPTS, 1, 11, 0, SETTINGS, False)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_an_interpreter_without_vllm_is_told_which_one_to_use():
    with pytest.raises(JudgefreeError, match="`python` in params.yaml"):
        require_vllm()
