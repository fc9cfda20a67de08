"""VllmEngine on vLLM itself, made by TRL in this process. Runs in the vLLM environment: `pytest -m gpu tests/sampling`;
a CPU build of vLLM will do (with VLLM_ENABLE_V1_MULTIPROCESSING=0 and VLLM_CPU_KVCACHE_SPACE=1)."""

import functools

import pytest
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM

from judgefree.config import Sampling
from judgefree.episodes import Prompt
from judgefree.errors import JudgefreeError
from judgefree.sampling.transformers_engine import sample

pytestmark = pytest.mark.gpu
vllm = pytest.importorskip("vllm", reason="vLLM lives in an environment of its own")

TEMPERATURE = 0.8
SETTINGS = Sampling(temperature=TEMPERATURE, max_completion_tokens=16)
PROMPTS = [Prompt([5, 9, 12], ("a", 0)), Prompt([7] * 6, ("b", 0))]


def mend_cpu_build():
    """vLLM's CPU build multiplies with a packed copy of the weights, made once: new weights would change nothing."""
    import vllm.model_executor.layers.linear  # noqa: F401
    import vllm.model_executor.layers.utils as utils

    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: setattr(
        layer, "cpu_linear", torch.nn.functional.linear
    )


@pytest.fixture(scope="module")
def trainer(tmp_path_factory, tokenizer):
    import trl.generation.vllm_generation as vllm_generation
    from trl import GRPOConfig, GRPOTrainer

    on_cpu = not torch.cuda.is_available()
    if on_cpu:
        mend_cpu_build()
    folder = tmp_path_factory.mktemp("policy")
    torch.manual_seed(0)
    # vLLM's attention wants heads of at least 64
    config = LlamaConfig(
        vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=256, initializer_range=0.2, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    arguments = GRPOConfig(
        output_dir=str(folder / "out"), use_vllm=True, vllm_mode="colocate", use_cpu=on_cpu, bf16=False,
        vllm_gpu_memory_utilization=0.2, vllm_max_model_length=128, per_device_train_batch_size=8, num_generations=4,
        temperature=TEMPERATURE, report_to="none",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_generation, "LLM", functools.partial(vllm_generation.LLM, dtype="float32"))
        made = GRPOTrainer(
            model=str(folder),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": ["ABC"] * 8}),
            processing_class=tokenizer,
        )
    made.logprobs = lambda turns: [full_pass(made.model, t.prompt_ids, t.completion_ids) for t in turns]
    return made


@pytest.fixture
def engine(trainer):
    from judgefree.sampling.vllm_engine import VllmEngine

    return VllmEngine(trainer, stop=[], keep_logprobs=True)


def full_pass(model, prompt, completion) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion], device=model.device)).logits[0, len(prompt) - 1 : -1]
    return (logits.float() / TEMPERATURE).log_softmax(-1)[range(len(completion)), completion].tolist()


def optimizer_step(trainer):
    """Moves every weight, and the trainer's count of steps."""
    with torch.no_grad():
        for weight in trainer.model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    trainer.state.global_step += 1


def ids(completions):
    return [[one.ids for one in several] for several in completions]


def test_samples_depend_on_their_own_seed_alone(engine):
    first = ids(engine(PROMPTS, 4, 11, 0, SETTINGS, False))
    assert len({tuple(one) for several in first for one in several}) == 8
    assert ids(engine(PROMPTS[::-1], 4, 11, 0, SETTINGS, False)) == first[::-1]
    assert ids(engine(PROMPTS[:1], 2, 11, 0, SETTINGS, False)) == [first[0][:2]]
    assert ids(engine(PROMPTS, 4, 11, 1, SETTINGS, False)) != first


def test_greedy_tokens_and_logprobs_are_those_of_the_model(engine, trainer):
    ours = sample(
        trainer.model, trainer.processing_class, PROMPTS, 1, seed=0, step=0, settings=SETTINGS, eos_ids={1},
        batch_rows=8, greedy=True,
    )  # fmt: skip
    theirs = engine(PROMPTS, 1, 11, 0, SETTINGS, True)
    for [mine], [other] in zip(ours, theirs, strict=True):
        assert (mine.ids, mine.text, mine.finish_reason) == (other.ids, other.text, other.finish_reason)
    for prompt, several in zip(PROMPTS, engine(PROMPTS, 3, 11, 0, SETTINGS, False), strict=True):
        for one in several:
            assert one.logprobs == pytest.approx(full_pass(trainer.model, prompt.ids, one.ids), abs=1e-4)


def test_a_stop_string_cuts_as_the_other_engine_does(engine):
    whole = engine(PROMPTS, 4, 11, 0, SETTINGS, False)[1][1]
    engine.stop = [whole.text[4:6]]
    cut = engine(PROMPTS, 4, 11, 0, SETTINGS, False)[1][1]
    at = whole.text.find(engine.stop[0])
    assert (cut.text, cut.finish_reason) == (whole.text[:at], "stop")
    assert cut.ids == whole.ids[: len(cut.ids)] and len(cut.ids) < len(whole.ids)


def test_new_weights_arrive_and_missing_ones_are_noticed(engine, trainer, monkeypatch):
    before = ids(engine(PROMPTS, 2, 11, 0, SETTINGS, False))
    optimizer_step(trainer)
    assert ids(engine(PROMPTS, 2, 11, 0, SETTINGS, False)) != before
    assert engine.probe_difference < 1e-4
    optimizer_step(trainer)
    monkeypatch.setattr(trainer.vllm_generation, "sync_weights", lambda: None)
    with pytest.raises(JudgefreeError, match="does not sample from the trainer's weights"):
        engine(PROMPTS, 2, 11, 0, SETTINGS, False)
