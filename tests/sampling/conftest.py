import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SHARED = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "initializer_range": 0.5,
}


def build(name: str) -> torch.nn.Module:
    """A small policy with random but decided weights: its greedy tokens vary along the text and differ by prompt."""
    torch.manual_seed(7)
    match name:
        case "llama":
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
            return LlamaForCausalLM(LlamaConfig(**SHARED, **heads, eos_token_id=1, pad_token_id=0)).eval()
        case "gpt_neox":
            heads = {"num_attention_heads": 4, "max_position_embeddings": 64}
            return GPTNeoXForCausalLM(GPTNeoXConfig(**SHARED, **heads, eos_token_id=1, pad_token_id=0)).eval()
        case "qwen3_sliding":
            window = {
                "use_sliding_window": True,
                "sliding_window": 6,
                "layer_types": ["sliding_attention", "full_attention"],
            }
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
            return Qwen3ForCausalLM(Qwen3Config(**SHARED, **heads, **window, eos_token_id=1, pad_token_id=0)).eval()
    raise ValueError(name)


@pytest.fixture(scope="session")
def make_model():
    return build


@pytest.fixture(scope="session")
def llama():
    """Shared by tests that do not change it."""
    return build("llama")


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Ids 0 to 63: <pad>, <eos>, then 62 single characters; a text decodes to its characters, without spaces."""
    characters = [chr(c) for c in range(ord("!"), ord("!") + 62)]
    core = Tokenizer(models.WordLevel({token: i for i, token in enumerate(["<pad>", "<eos>", *characters])}, "<eos>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
