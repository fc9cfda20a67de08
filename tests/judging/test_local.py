"""Judges that are models here: built so that what they must say and score can be worked out by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from judgefree.config_judges import PolicyJudge, RewardModelJudge
from judgefree.errors import JudgefreeError
from judgefree.judging.judges import Bill, Contest, Verdict, Work
from judgefree.judging.opening import identity, open_judge

WORDS = ["<pad>", "<eos>", "<unk>", "q", "poor", "good", "best", "verdict:", "score:", "[[A>B]]", "[[7]]", "hm", "ask"]
SAYS = {"verdict:": "[[A>B]]", "score:": "[[7]]", "ask": "hm"}  # after each word; whatever is not named ends
TEXTS = {"criteria": "", "compare": "{instruction} {first} {second} verdict:", "rate": "{instruction} {text} score:"}
SIZE = 16


def tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def config(**changes: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(WORDS), hidden_size=SIZE, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=1, rms_norm_eps=1e-12, **{"pad_token_id": 0, **changes},
    )  # fmt: skip


def blind(model: Any) -> None:
    """The hidden state is sqrt(16) times the last token's unit vector: attention and MLP add nothing."""
    model.model.embed_tokens.weight.copy_(torch.eye(len(WORDS), SIZE))
    model.model.layers[0].self_attn.o_proj.weight.zero_()
    model.model.layers[0].mlp.down_proj.weight.zero_()


def save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """models/talker, a policy; models/scorer, a reward model that scores the last word; models/deep, a random one."""
    place = tmp_path_factory.mktemp("judges")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        talker = LlamaForCausalLM(config())
        blind(talker)
        talker.lm_head.weight.zero_()
        for word, place_of in zip(WORDS, range(len(WORDS)), strict=True):
            talker.lm_head.weight[WORDS.index(SAYS.get(word, "<eos>")), place_of] = 10.0
        save(talker, place / "models" / "talker")
        scorer = LlamaForSequenceClassification(config(num_labels=1))
        blind(scorer)
        scorer.score.weight.zero_()
        for word, value in {"poor": -1.0, "good": 0.5, "best": 2.0}.items():
            scorer.score.weight[0, WORDS.index(word)] = value / math.sqrt(SIZE)
        save(scorer, place / "models" / "scorer")
        deep = LlamaForSequenceClassification(config(num_labels=1))
        for parameter in deep.parameters():
            parameter.mul_(4.0)
        save(deep, place / "models" / "deep")
        save(LlamaForSequenceClassification(config(num_labels=2)), place / "models" / "two")
        save(LlamaForSequenceClassification(config(num_labels=1, pad_token_id=None)), place / "models" / "unpadded")
    return place


def policy(**changes: Any) -> PolicyJudge:
    return PolicyJudge.model_validate({"kind": "policy", "model": "talker", "chat": False, "max_completion_tokens": 4,
                                       "batch_rows": 2, **changes})  # fmt: skip


def reward_model(name: str = "scorer", **changes: Any) -> RewardModelJudge:
    return RewardModelJudge.model_validate({"kind": "reward_model", "folder": f"models/{name}", "chat": False,
                                            "max_tokens": 32, "batch_rows": 4, "tie_within": 1e-4, **changes})  # fmt: skip


def test_a_policy_is_asked_in_words(root: Path) -> None:
    judge = open_judge(policy(), TEXTS, root)
    judgements = judge.compare(
        [Contest("q", "good", "poor"), Contest("q", "poor", "good best"), Contest("q q", "", "good")]
    )
    assert [one.verdict for one in judgements] == [Verdict.FIRST] * 3
    assert [one.bill for one in judgements] == [Bill(4, 2), Bill(5, 2), Bill(4, 2)]  # the end token is written as well
    assert [(one.score, one.said) for one in judge.rate([Work("q", "good")])] == [(7.0, "[[7]]")]


def test_a_policy_that_says_no_verdict_or_has_no_room(root: Path) -> None:
    judge = open_judge(policy(), {**TEXTS, "compare": "{instruction} {first} {second} ask"}, root)
    (mute,) = judge.compare([Contest("q", "good", "poor")])
    assert mute.verdict is None and mute.said == "no verdict in the reply 'hm'"
    long, short = open_judge(policy(), TEXTS, root).compare(
        [Contest("q " * 26, "good", "poor"), Contest("q " * 25, "good", "poor")]
    )
    assert long.verdict is None and long.said == "the prompt has 29 tokens, and the judge has room for 28"
    assert short.verdict is Verdict.FIRST


def test_a_policy_without_a_chat_template_cannot_chat(root: Path) -> None:
    with pytest.raises(JudgefreeError, match="no chat template"):
        open_judge(policy(chat=True), TEXTS, root).compare([Contest("q", "good", "poor")])


def test_the_higher_score_wins(root: Path) -> None:
    judge = open_judge(reward_model(), {}, root)
    judgements = judge.compare([
        Contest("q", "good", "poor"), Contest("q", "poor", "best"), Contest("q", "poor good", "good"),
        Contest("q", "hm best", "good"),
    ])  # fmt: skip
    assert [one.verdict for one in judgements] == [Verdict.FIRST, Verdict.SECOND, Verdict.TIE, Verdict.FIRST]
    expected = [1 / (1 + math.exp(-ahead)) for ahead in (-1.5, 3.0, 0.0, -1.5)]
    assert [one.preference for one in judgements] == pytest.approx(expected, abs=1e-6)
    assert judgements[1].bill == Bill(4) and judgements[1].said == "-1 against 2"
    assert [one.score for one in judge.rate([Work("q", "best"), Work("best", "poor")])] == pytest.approx([2.0, -1.0])


def test_a_text_that_is_too_long_has_no_score_and_is_not_cut(root: Path) -> None:
    judge = open_judge(reward_model(max_tokens=5), {}, root)
    fits, long = judge.rate([Work("q", "hm hm hm best"), Work("q", "hm hm hm hm best")])
    assert fits.score == pytest.approx(2.0) and math.isnan(long.score)
    assert long.said == "has 6 tokens, and the reward model reads 5"
    lost, kept = judge.compare([Contest("q", "hm hm hm hm best", "poor"), Contest("q", "good", "poor")])
    assert lost.verdict is None and "6 tokens" in lost.said and kept.verdict is Verdict.FIRST


@pytest.mark.parametrize("name", ["deep", "unpadded"])
def test_scores_do_not_depend_on_what_stands_beside(root: Path, name: str) -> None:
    """The same texts one by one and padded beside longer ones; a model without a padding id takes them one by one."""
    works = [Work("q", " ".join(["good", "hm", "best", "poor"] * n)) for n in (1, 7, 2, 5, 3)]
    together = [one.score for one in open_judge(reward_model(name, batch_rows=5), {}, root).rate(works)]
    alone = [one.score for one in open_judge(reward_model(name, batch_rows=1), {}, root).rate(works)]
    assert together == pytest.approx(alone, abs=1e-5) and len({round(score, 4) for score in alone}) == 5


def test_a_chat_template_holds_both_texts(root: Path) -> None:
    judge: Any = open_judge(reward_model(chat=True), {}, root)
    with pytest.raises(JudgefreeError, match="no chat template"):
        judge.rate([Work("q", "good")])
    judge.tokenizer.chat_template = "{% for one in messages %}{{ one.content }} {% endfor %}"
    assert judge.rate([Work("best", "good")])[0].score == pytest.approx(0.5)
    assert judge._encode(Work("q", "hm good"))["input_ids"] == [3, 11, 5]


def test_what_is_no_reward_model_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(JudgefreeError, match="2 outputs"):
        open_judge(reward_model("two"), {}, root)
    with pytest.raises(JudgefreeError, match="models/none cannot be loaded as a reward model"):
        open_judge(reward_model("none"), {}, root)
    with pytest.raises(JudgefreeError, match="models/none"):
        open_judge(policy(model="none"), TEXTS, root)
    with pytest.raises(JudgefreeError, match="is not there"):
        identity(policy(model="none"), root)


def test_another_model_is_another_judge(root: Path) -> None:
    assert identity(reward_model("scorer"), root)["files"] != identity(reward_model("deep"), root)["files"]
    assert identity(policy(), root) == identity(policy(), root) != identity(policy(max_completion_tokens=5), root)
