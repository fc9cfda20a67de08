"""A policy made from nothing: a small Llama with random weights and a word-level tokenizer of its own.

Each number, word, role tag and line end is one token, because a policy of this size learns two-digit arithmetic only
when a number is a single symbol.
"""

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from judgefree.config_data import ScratchBase
from judgefree.data import arithmetic, memo, orders

VOCABULARIES = {"arithmetic": arithmetic.vocabulary, "memo": memo.vocabulary, "orders": orders.vocabulary}
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
ROLES = ["<system>", "<user>", "<assistant>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% if message.role == 'assistant' %}<eos>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def build(settings: ScratchBase, folder: Path) -> str:
    """Write weights (float32), configuration and tokenizer into `folder`; the same settings give the same bytes.

    Returns the source for the manifest. The global random state is left as it was.
    """
    words = VOCABULARIES[settings.vocabulary](settings.max_value)
    tokenizer = build_tokenizer([*words, *(settings.words or [])], settings.max_length)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.max_length,
        tie_word_embeddings=True,
        # Made for small widths and short texts: with the defaults (0.02, 10000) copying a number from the question is
        # not learnt within the first 300 steps.
        initializer_range=settings.hidden_size**-0.5,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return f"generated from seed {settings.seed}, vocabulary {settings.vocabulary}"


def build_tokenizer(words: list[str], max_length: int) -> PreTrainedTokenizerFast:
    """A tokenizer with one id per word: pad 0, eos 1, unknown 2, the role tags, then `words` in their order.

    A text of known words, single spaces, line ends and `.` or `?` glued to a word decodes to itself.
    """
    special = [PAD, EOS, UNKNOWN, *ROLES]
    ids = {word: index for index, word in enumerate([*special, *words])}
    core = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n|[.?]"), "isolated"),
            pre_tokenizers.Split(Regex(r"[^\S\n]+"), "removed"),
        ]
    )
    # WordPiece puts a space before every token that does not begin with its (here impossible) prefix.
    spaced = decoders.WordPiece(prefix="\0", cleanup=False)
    glued = [decoders.Replace(f" {sign}", sign) for sign in (".", "?")]
    lines = [decoders.Replace(" \n", "\n"), decoders.Replace("\n ", "\n")]
    alone = decoders.Replace("=?", "= ?")
    core.decoder = decoders.Sequence([spaced, decoders.Fuse(), *glued, *lines, alone])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        additional_special_tokens=ROLES,
        padding_side="left",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
