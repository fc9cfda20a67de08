import resource

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgefree.bases.build import build_base
from judgefree.bases.scratch import build_tokenizer
from judgefree.config_data import ArithmeticData, Demonstrations, Lessons, OrdersData, Quality
from judgefree.data import arithmetic, orders
from judgefree.errors import JudgefreeError
from judgefree.files import verify

SETTINGS = {
    "kind": "scratch", "vocabulary": "arithmetic", "seed": 3, "hidden_size": 32, "intermediate_size": 48, "layers": 2,
    "heads": 4, "max_length": 96, "max_value": 15,
}  # fmt: skip

WORLD = ArithmeticData(
    kind="arithmetic",
    seed=0,
    train=800,
    validation=50,
    test=50,
    min_steps=1,
    max_steps=3,
    max_value=15,
    templates=["chain", "story"],
    demonstrations=Demonstrations(right=0.4, slip=0.2, skip=0.2),
    quality=Quality(
        max_quarantined_share=0.01,
        min_gold_parse_share=0.995,
        max_question_chars=8000,
        max_answer_chars=400,
        near_overlap_ngram=13,
        near_overlap_share=0.5,
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_base("tiny", {"base": SETTINGS}, tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_folder_is_sealed_whole_and_nothing_is_left_behind(folder):
    manifest = verify(folder)
    assert manifest["kind"] == "scratch"
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= manifest["files"].keys()
    # Embedding (tied), two layers of four square projections, three of the feed-forward net and two norms, a last norm.
    words = 6 + len(arithmetic.vocabulary(15))
    assert manifest["parameters"] == words * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 48 + 2 * 32) + 32
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]


def test_the_same_settings_give_the_same_bytes_and_another_seed_other_weights(folder, tmp_path):
    again = contents(build_base("other-name", {"base": SETTINGS}, tmp_path))
    assert again == contents(folder)
    other = contents(build_base("tiny", {"base": {**SETTINGS, "seed": 4}}, tmp_path))
    assert {name for name in again if other[name] != again[name]} == {"model.safetensors", "manifest.json"}


def test_building_leaves_the_random_state_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build_base("tiny", {"base": SETTINGS}, tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_a_rebuild_replaces_the_folder(folder, tmp_path):
    target = build_base("tiny", {"base": {**SETTINGS, "layers": 1}}, tmp_path)
    (target / "stray").write_text("x")
    assert contents(build_base("tiny", {"base": SETTINGS}, tmp_path)) == contents(folder)


def test_the_model_loads_as_float32_and_continues_a_conversation(folder, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight
    prompt = tokenizer("<user>3 + 4 = ?<assistant>", return_tensors="pt", add_special_tokens=False)
    ids = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    assert ids.shape[1] > prompt["input_ids"].shape[1]


def test_every_text_of_the_world_survives_encoding_and_decoding(tokenizer):
    rows = [row for split in arithmetic.rows(WORLD).values() for row in split]
    texts = [row[column] for row in rows for column in ("question", "solution", "demonstration") if row[column]]
    assert len(texts) > 1000
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text


def test_numbers_tags_marker_and_line_ends_are_single_tokens(tokenizer):
    tokens = tokenizer.tokenize("<user>12 - 7 = ?<assistant>12 - 7 = 5\n#### 5<eos>")
    assert tokens == [
        "<user>",
        "12",
        "-",
        "7",
        "=",
        "?",
        "<assistant>",
        "12",
        "-",
        "7",
        "=",
        "5",
        "\n",
        "####",
        "5",
        "<eos>",
    ]
    assert tokenizer.tokenize("Tom has 2 apples.") == ["Tom", "has", "2", "apples", "."]
    assert tokenizer.convert_tokens_to_ids(["<pad>", "<eos>", "<unk>"]) == [0, 1, 2]
    assert tokenizer("16 pears")["input_ids"] == [2, 2]


def test_special_tokens_vanish_on_decoding(tokenizer):
    ids = tokenizer("<user>3 + 4 = ?<assistant>3 + 4 = 7\n#### 7<eos><pad>")["input_ids"]
    assert tokenizer.decode(ids[7:], skip_special_tokens=True) == "3 + 4 = 7\n#### 7"


def test_the_chat_template_grows_by_appending(tokenizer):
    talk = [{"role": "system", "content": "now"}, {"role": "user", "content": "3 + 4 = ?"}]
    asked = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert asked == "<system>now<user>3 + 4 = ?<assistant>"
    talk.append({"role": "assistant", "content": "#### 7"})
    assert tokenizer.apply_chat_template(talk, tokenize=False) == asked + "#### 7<eos>"


def test_padding_is_on_the_left_and_not_the_end(tokenizer):
    batch = tokenizer(["3", "3 + 4"], padding=True)
    assert batch["input_ids"][0][:2] == [tokenizer.pad_token_id] * 2
    assert batch["attention_mask"][0] == [0, 0, 1]
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_ids_follow_the_order_of_the_words():
    tokenizer = build_tokenizer(["b", "a"], 8)
    assert tokenizer.convert_tokens_to_ids(["b", "a"]) == [6, 7]
    assert len(tokenizer) == 8


@pytest.fixture(scope="module")
def orders_tokenizer(tmp_path_factory):
    settings = {**SETTINGS, "vocabulary": "orders", "max_value": 20}
    folder = build_base("tiny-orders", {"base": settings}, tmp_path_factory.mktemp("root"))
    assert "vocabulary orders" in verify(folder)["source"]
    return AutoTokenizer.from_pretrained(folder)


def test_every_text_of_the_world_of_orders_survives_too(orders_tokenizer):
    world = OrdersData(
        kind="orders",
        seed=0,
        train=300,
        validation=5,
        test=5,
        max_value=20,
        families={"plain": 0.4, "times": 0.15, "over": 0.15, "brackets": 0.15, "nested": 0.15},
        ordered=0.1,
        slip=0.1,
        lessons=Lessons(guided=0.25, review=0.25, memory=0.25, fitting=0.5, follow=0.9, insight=0.4, copy_memory=0.5),
        quality=WORLD.quality,
    )
    rows = orders.rows(world)["train"]
    for text in (row[column] for row in rows for column in ("question", "solution", "demonstration")):
        ids = orders_tokenizer(text)["input_ids"]
        assert orders_tokenizer.unk_token_id not in ids
        assert orders_tokenizer.decode(ids, skip_special_tokens=True) == text


def test_brackets_signs_and_the_tags_of_a_review_are_single_tokens(orders_tokenizer):
    text = "review\nmultiply first\n8 - ( 6 * 2 ) / 3 = ?"
    assert orders_tokenizer.tokenize(text) == [
        "review", "\n", "multiply", "first", "\n", "8", "-", "(", "6", "*", "2", ")", "/", "3", "=", "?"
    ]  # fmt: skip
    assert orders_tokenizer.tokenize("<prompt> left to right </prompt>") == [
        "<prompt>",
        "left",
        "to",
        "right",
        "</prompt>",
    ]


def test_a_full_disk_names_the_folder(tmp_path):
    """The system refuses the weights' bytes past a limit, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(JudgefreeError, match=r"cannot write below .*\.work/base/tiny.*\n.*free disk space"):
            build_base("tiny", {"base": SETTINGS}, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "models").exists()
