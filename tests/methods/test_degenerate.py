"""What policies that make no sense earn from each method: text that never changes, no text, one answer to everything, the
prompt said back, a line of 100 kB. Rewards that such a policy games by design (votes, certainty) trip the collapse monitor:
tests/training/test_monitor.py. What a judge or a reward model thinks of such a text is its own affair."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import PLAIN
from judge_server import endpoint
from rewards_world import policy_folder, reward_model
from world import training

from judgefree.episodes import Completion, Example, Policy, Prompt, Rollout, Turn
from judgefree.judging.judges import Rating, Work
from judgefree.methods import METHODS, OPTIONS, Setting
from judgefree.reward_model.model import save_reward_model
from judgefree.scoring.grader import Grader

TEXTS = {"feedback": "wrong", "feedback_solved": "right", "memory": "{review}\n", "second": "{guidelines}\n{question}",
         "review": "review\n{memory}{question}\n{attempt}\n{feedback}", "civilian": "{source}\nwrite",
         "spy": "{source}\nwrite {percent}", "detector": "{source}\n{outputs}\nVote: \\boxed{number}.",
         "output": "{number}) {text}", "placeholder": "(no answer)"}  # fmt: skip
FORMAT = {"format_weight": 0.1, "final_batch_norm": False}
SPYRL = {"prompts": "prompts/x.yaml", "detectors": "players", "information_loss": {"unit": "words", "share": 0.2},
         "beta": 0.1, "lam": 0.1, "baseline": {"rule": "update_first", "decay": 0.9}, "detection_reward": "plain",
         "schedule": {"rule": "joint"}}  # fmt: skip
SAVE = {"reward_model": "judge", "update": "save", "anchor": "value", "learning_rate": 1e-3, "value_learning_rate": 1e-2,
        "value_weight": 1.0, "batch_tokens": 2000}  # fmt: skip
MULTI = {"reward": "multi", "alpha": 0.5, "beta": 0.5, **FORMAT}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "rlvr": ("rlvr", {}),
    "rft": ("rlvr", {"imitation_weight": 1.0}),
    "srrl": ("srrl", {"gate": "per_rollout", "untagged": "whole", "prompts": "prompts/x.yaml", "distillation": "token",
                      "distillation_weight": 1.0, "memory": {"rule": "latest", "size": 9}}),
    "multi": ("rlif", MULTI),
    "multi-whitened": ("rlif", {**MULTI, "final_batch_norm": True}),
    "combined": ("rlif", {**MULTI, "combine_then_normalise": True}),
    "cluster": ("rlif", {"reward": "cluster", **FORMAT}),
    "certainty": ("rlif", {"reward": "certainty", "final_batch_norm": False}),
    "majority": ("rlif", {"reward": "majority", "final_batch_norm": False}),
    "spyrl": ("spyrl", SPYRL),
    "rubric": ("rubric", {"judge": endpoint("http://127.0.0.1:9"), "prompts": "prompts/x.yaml"}),
    "save": ("save", SAVE),
    "save-mean": ("save", {**SAVE, "anchor": "mean_reward", "value_learning_rate": None, "value_weight": None}),
    "save-frozen": ("save", {"reward_model": "judge", "update": "frozen", "batch_tokens": 2000}),
    "spyrl-overseer": ("spyrl", {**SPYRL, "detectors": "overseer", "overseer_votes": 8, "detection_reward": "shaped"}),
}  # fmt: skip
MODELS: dict[str, Path] = {}
BY_GOLD = ("rlvr", "rft", "srrl")
SIZE = 4
EXAMPLES = [Example(f"e{n}", f"What is {n} + 1? Put the answer into \\boxed{{}}.", str(n + 1)) for n in range(8)]

Say = Callable[[str, int, str], str]  # from role, sample and prompt to what is said


class Saying:
    """A policy that says what a function tells it; it is as sure of a text as the text is long."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.texts: list[str] = []

    def encode(self, question: str) -> list[int]:
        self.texts.append(question)
        return [len(self.texts) - 1]

    encode_message = encode

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        said = [
            [self.say(str(prompt.key[1]), int(prompt.key[2]) + i, self.texts[prompt.ids[0]]) for i in range(n)]
            for prompt in prompts
        ]
        return [[Completion([len(text) % 97 + 2, 1], text, "stop") for text in group] for group in said]

    def self_certainty(self, turns: Sequence[Turn]) -> list[float]:
        return [turn.completion_ids[0] / 10 for turn in turns]

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def encode_chat(self, messages: Any) -> list[int]:
        raise NotImplementedError

    def score(self, turns: Sequence[Turn]) -> list[list[float]]:
        raise NotImplementedError


class Judge:
    """Of the method `rubric`: gives every readable answer 8 of 10."""

    def rate(self, works: Sequence[Work]) -> list[Rating]:
        return [Rating(8.0, "[[8]]") for _ in works]


def number(prompt: str) -> int:
    """The n of the last question that is asked in a prompt."""
    return int(prompt.rsplit("What is ", 1)[1].split(" ", 1)[0])


def honest(role: str, sample: int, prompt: str) -> str:
    """Right in three of four, and after a review; reviews have their tag."""
    if role == "review":
        return "<prompt>count on by one</prompt>"
    return f"so it is \\boxed{{{number(prompt) + (2 if role == 'attempt' and sample == 3 else 1)}}}"


DEGENERATE: dict[str, Say] = {
    "constant": lambda role, sample, prompt: "the the the the",
    "empty": lambda role, sample, prompt: "",
    "box": lambda role, sample, prompt: "so it is \\boxed{7}",
    "copy": lambda role, sample, prompt: prompt,
    "line": lambda role, sample, prompt: "ab " * 33_334,
}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(1, 2.0) as one:
        yield one


@pytest.fixture(scope="module", autouse=True)
def judge(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The random reward model that SAVE learns from."""
    folder = tmp_path_factory.mktemp("judge")
    save_reward_model(reward_model(policy_folder(folder / "policy")), folder / "judge")
    MODELS["judge"] = folder / "judge"


def method_of(run: str, grader: Grader, examples: Sequence[Example]) -> Any:
    name, options = RUNS[run]
    settings = training(group_size=SIZE, rollout_size=SIZE * len(examples))
    setting = Setting(settings, PLAIN, grader, 0, TEXTS, models=MODELS)
    method: Any = METHODS[name](OPTIONS[name].model_validate(options), setting)
    if name == "rubric":
        method.judge = Judge()
    return method


def play(run: str, say: Say, grader: Grader, examples: Sequence[Example] = EXAMPLES) -> Rollout:
    policy: Policy = Saying(say)
    rollout: Rollout = method_of(run, grader, examples).play(examples, policy)
    return rollout


def sampled(rollout: Rollout) -> list[Turn]:
    return [turn for turn in rollout.turns if turn.imitation_weight == 0]


# ------------------------------------------------------------------------------------------------------ a policy of one kind


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("run", RUNS)
def test_among_its_own_kind_nothing_is_learnt_from_it(run: str, name: str, grader: Grader) -> None:
    rollout = play(run, DEGENERATE[name], grader)
    assert all(turn.dead and turn.advantage == 0.0 for turn in sampled(rollout))
    assert rollout.metrics.get("own_signal/rollout", 0.0) == 0.0


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("run", BY_GOLD)
def test_it_earns_less_than_an_honest_policy(run: str, name: str, grader: Grader) -> None:
    """One answer to everything is right for one question of eight, by luck; nothing else earns anything."""
    rollout, better = play(run, DEGENERATE[name], grader), play(run, honest, grader)
    assert rollout.metrics["reward"] == (1 / 8 if name == "box" else 0.0) < better.metrics["reward"] == 3 / 4
    if run == "srrl":
        empty = name == "empty"  # a review that says nothing gets no second attempt
        assert rollout.metrics["reward/review"] == 0.0 < better.metrics["reward/review"] == 1.0
        assert rollout.metrics.get("reward/second") == (None if empty else 0.0)
        assert rollout.metrics["memory/size"] == 0 < better.metrics["memory/size"] == 8
        assert rollout.metrics["reviews/untagged"] == 1.0 > better.metrics["reviews/untagged"] == 0.0
    if run != "rlvr":
        imitated = [turn for turn in rollout.turns if turn.imitation_weight > 0]
        assert len(imitated) == (SIZE if run == "rft" and name == "box" else 0)


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_reward_model_learns_no_reward_from_one_text(
    name: str, grader: Grader, caplog: pytest.LogCaptureFixture
) -> None:
    """A group of equal texts has no good ones beside bad ones: backbone and reward head stay, only the value moves, and
    that is told."""
    method, policy = method_of("save", grader, EXAMPLES), Saying(DEGENERATE[name])
    model = method.learner.model
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for _ in range(2):
        rollout = method.play(EXAMPLES, policy)
        assert rollout.metrics["reward_model/loss_r"] == 0.0 and rollout.metrics["reward_std"] == pytest.approx(
            0, abs=1e-6
        )
    moved = {key for key, value in model.state_dict().items() if not value.equal(before[key])}
    assert moved == {"value_head.weight", "value_head.bias"}
    told = [
        record.getMessage() for record in caplog.records if "the reward model learns nothing" in record.getMessage()
    ]
    assert [text.split(":")[0] for text in told] == ["update 0", "update 1"]


@pytest.mark.parametrize(
    ("name", "cluster", "form"),
    [("constant", 0, 0), ("empty", 0, 0), ("copy", 0, 0), ("line", 0, 0), ("box", 1, 1)],
)
def test_votes_pay_for_one_answer_to_everything(name: str, cluster: float, form: float, grader: Grader) -> None:
    """By design: a vote agrees with itself. What it earns is more than an honest policy does, and `own_signal` is 0."""
    for run, earned in (("majority", cluster), ("cluster", cluster + 0.1 * form)):
        rollout, better = play(run, DEGENERATE[name], grader), play(run, honest, grader)
        assert {(row["cluster"], row["format"]) for row in rollout.records} == {(cluster, form)}
        assert rollout.metrics["reward"] == pytest.approx(earned)
        assert (rollout.metrics["reward"] > better.metrics["reward"]) == (name == "box")
        assert rollout.metrics["own_signal/rollout"] == 0.0 < better.metrics["own_signal/rollout"]


# ------------------------------------------------------------------------------------------------ beside honest completions


@pytest.mark.parametrize("name", [name for name in DEGENERATE if name != "box"])
@pytest.mark.parametrize("run", ["rlvr", "srrl", "cluster", "majority", "rubric"])
def test_beside_honest_completions_a_degenerate_one_is_pushed_down(run: str, name: str, grader: Grader) -> None:
    def say(role: str, sample: int, prompt: str) -> str:
        return DEGENERATE[name](role, sample, prompt) if sample == 2 and role == "attempt" else honest(role, 0, prompt)

    attempts = [turn for turn in sampled(play(run, say, grader)) if turn.role == "attempt"]
    for group in range(8):
        turns = attempts[group * SIZE : (group + 1) * SIZE]
        assert turns[2].advantage < -1 < 0 < turns[0].advantage == turns[1].advantage == turns[3].advantage  # type: ignore


def odd_one_out(prompt: str) -> str:
    """A vote for the output that no other one equals; N/A where there is none."""
    listed = re.findall(r"^(\d)\) (.*)$", prompt, re.MULTILINE)
    texts = [text for _, text in listed]
    return next((f"\\boxed{{{n}}}" for n, text in listed if texts.count(text) == 1), "\\boxed{N/A}")


@pytest.mark.parametrize("name", [name for name in DEGENERATE if name != "box"])
@pytest.mark.parametrize("run", ["spyrl", "spyrl-overseer"])
def test_a_player_that_writes_nothing_of_use_is_voted_for(run: str, name: str, grader: Grader) -> None:
    """Seat 2 has no output in any game: all votes are for it, and nobody of its game earns less."""

    def say(role: str, sample: int, prompt: str) -> str:
        if role == "detector":
            return odd_one_out(prompt)
        return DEGENERATE[name](role, sample, prompt) if sample == 2 else "so it is \\boxed{7}"

    rollout = play(run, say, grader)
    for example in EXAMPLES:
        rows = [row for row in rollout.records if row["prompt_id"] == example.id and row["role"] == "performer"]
        assert rows[2]["votes"] == (8 if run == "spyrl-overseer" else 4)
        others = [(row["reward"], row["advantage"]) for row in rows if row["slot"] != 2]
        assert all(rows[2]["reward"] < -0.2 < 0 < reward and rows[2]["advantage"] < a for reward, a in others)


def test_a_detector_that_always_votes_for_the_same_number_hits_by_chance(grader: Grader) -> None:
    """Orders differ by detector, so the number is every seat's equally often; no performer gains by it on average."""
    examples = [Example(f"e{n}", f"What is {n} + 1?") for n in range(300)]
    rollout = play("spyrl", lambda role, sample, prompt: "\\boxed{1}", grader, examples)
    assert rollout.metrics["detector/accuracy"] == pytest.approx(1 / 4, abs=0.04)  # 3 sigma of 1,200 votes
    assert rollout.metrics["reward/spy"] == pytest.approx(0, abs=0.02)


def test_to_fail_at_first_on_purpose_gains_nothing(grader: Grader) -> None:
    """A second attempt's reward is its own and its review's: the first attempt is judged by itself and pushed down."""

    def sandbag(role: str, sample: int, prompt: str) -> str:
        return "later" if role == "attempt" and sample == 1 else honest(role, 0, prompt)

    rollout = play("srrl", sandbag, grader)
    first = [row for row in rollout.records if row["role"] == "attempt" and row["slot"] == 1]
    assert len(first) == 8 and all(row["advantage"] < -1 for row in first)
    others = [turn for turn in sampled(rollout) if turn.role != "attempt"]
    assert len(others) == 16 and all(turn.dead for turn in others)  # all reviews succeeded: a group of one each


def test_a_review_is_paid_for_what_follows_whatever_it_says(grader: Grader) -> None:
    """By design, as in the paper; only one that says nothing is paid nothing. Its groups then have no signal."""

    def say(role: str, sample: int, prompt: str) -> str:
        return "the the" if role == "review" else "no" if role == "attempt" else honest(role, 0, prompt)

    rollout = play("srrl", say, grader)
    assert rollout.metrics["reward/review"] == 1.0 and rollout.metrics["reviews/untagged"] == 1.0
    assert all(turn.dead for turn in sampled(rollout))
