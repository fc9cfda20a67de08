"""SRRL's episodes by hand: a scripted policy says what it is told, and what it is asked is looked at."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from pydantic import ValidationError
from world import training

from judgefree.advantages import EPSILON
from judgefree.config import PromptFormat
from judgefree.episodes import Completion, Example, Prompt, Rollout, Turn
from judgefree.errors import JudgefreeError, PromptTooLong
from judgefree.methods import Setting
from judgefree.methods.srrl import Options, Srrl, guidelines, nearest
from judgefree.scoring.grader import Grader

TEXTS = {
    "feedback": "wrong", "feedback_solved": "right", "memory": "{review}\n",
    "review": "review\n{memory}{question}\n{attempt}\n{feedback}", "second": "{guidelines}\n{question}",
}  # fmt: skip
OPTIONS = {
    "gate": "per_rollout", "untagged": "whole", "prompts": "prompts/x.yaml", "distillation_weight": 1.0,
    "distillation": "token", "memory": {"rule": "latest", "size": 100},
}  # fmt: skip
FORMAT = PromptFormat(template="{question}", chat=False, answer="boxed")
Script = Mapping[tuple[str, str, int], str | Completion]  # by example, role and slot


class Scripted:
    """Prompts are numbered and kept as texts; a text that is not scripted is a right tag, or no answer."""

    def __init__(self, script: Script, limit: int = 10**9) -> None:
        self.script = script
        self.limit = limit
        self.texts: list[str] = []
        self.asked: dict[tuple[str | int, ...], str] = {}
        self.calls: list[int] = []

    def encode(self, question: str) -> list[int]:
        return self._number(f"<{question}>")

    def encode_message(self, text: str) -> list[int]:
        return self._number(text)

    def _number(self, text: str) -> list[int]:
        if len(text) > self.limit:
            raise PromptTooLong("too long")
        self.texts.append(text)
        return [len(self.texts) - 1]

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        self.calls.append(len(prompts))
        return [[self._say(prompt, i) for i in range(n)] for prompt in prompts]

    def _say(self, prompt: Prompt, sample: int) -> Completion:
        example, role, slot = prompt.key
        self.asked[prompt.key] = self.texts[prompt.ids[0]]
        place = (str(example), str(role), sample if role == "attempt" else int(slot))
        said = self.script.get(place, f"<prompt>care {example}{slot}</prompt>" if role == "review" else "none")
        return said if isinstance(said, Completion) else Completion([*range(3, 3 + len(said.split())), 1], said, "stop")

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def encode_chat(self, messages: Any) -> list[int]:
        raise NotImplementedError

    def score(self, turns: Sequence[Turn]) -> list[list[float]]:
        raise NotImplementedError

    def self_certainty(self, turns: Sequence[Turn]) -> list[float]:
        raise NotImplementedError


class Tired(Grader):
    """Gives up on 99."""

    def grade(self, rows: Sequence[tuple[str, str | None]]) -> Any:
        judged = super().grade(rows)
        return ["timeout" if answer == "99" else verdict for (_, answer), verdict in zip(rows, judged, strict=True)]


def srrl(size: int = 3, seed: int = 3, loss: dict[str, Any] | None = None, **options: Any) -> Srrl:
    """All answers here are numbers, so no grader's process is ever started."""
    settings = training(group_size=size, rollout_size=size * 2, loss=loss or {})
    return Srrl(Options(**{**OPTIONS, **options}), Setting(settings, FORMAT, Tired(1, 2.0), seed, TEXTS))


def box(answer: int) -> str:
    return f"so \\boxed{{{answer}}}"


# Question a (4): one of three attempts is right. Question b (7): none is.
EXAMPLES = [Example("a", "two plus two", "4"), Example("b", "three plus four", "7")]
SCRIPT = {
    **{("a", "attempt", i): box(n) for i, n in enumerate((4, 5, 6))},
    **{("b", "attempt", i): box(n) for i, n in enumerate((1, 2, 3))},
    ("a", "second", 1): box(4), ("a", "second", 2): box(0),
    ("b", "second", 0): box(7), ("b", "second", 1): box(7), ("b", "second", 2): box(0),
}  # fmt: skip


def played(script: Script = SCRIPT, limit: int = 10**9, **options: Any) -> tuple[Rollout, Scripted, Srrl]:
    method, policy = srrl(**options), Scripted(script, limit)
    return method.play(EXAMPLES, policy), policy, method


def of(rollout: Rollout, role: str) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["prompt_id"], row["slot"]): row for row in rollout.records if row["role"] == role}


def sampled(rollout: Rollout) -> list[Turn]:
    return [turn for turn in rollout.turns if turn.imitation_weight == 0]


def rewards(rollout: Rollout, role: str) -> dict[str, float]:
    return {f"{example}{slot}": row["reward"] for (example, slot), row in of(rollout, role).items()}


# ------------------------------------------------------------------------------------------------------- gate and rewards


def test_an_episode_by_hand() -> None:
    rollout, policy, _ = played()
    assert policy.calls == [2, 5, 5]
    assert rewards(rollout, "attempt") == {"a0": 1, "a1": 0, "a2": 0, "b0": 0, "b1": 0, "b2": 0}
    assert rewards(rollout, "review") == rewards(rollout, "second") == {"a1": 1, "a2": 0, "b0": 1, "b1": 1, "b2": 0}
    third, half = math.sqrt(1 / 3) + EPSILON, math.sqrt(1 / 2) + EPSILON  # stds of 1, 0, 0 and of 1, 0
    pair, three = [0.5 / half, -0.5 / half], [1 / 3 / third, 1 / 3 / third, -2 / 3 / third]
    expected = [2 / 3 / third, -1 / 3 / third, -1 / 3 / third, *pair, *pair, 0, 0, 0, *three, *three]
    turns = sampled(rollout)
    assert [turn.advantage for turn in turns] == pytest.approx(expected)
    assert [row["advantage"] for row in rollout.records] == [turn.advantage for turn in turns]
    assert [turn.dead for turn in turns] == [False] * 7 + [True] * 3 + [False] * 6
    roles = {turn.group: turn.role for turn in rollout.turns}
    assert roles == {f"{e}/{role}": role for role in ("attempt", "review", "second", "distilled") for e in "ab"}
    assert len({frozenset(row) for row in rollout.records}) == 1  # equal columns


def test_turns_keep_what_the_engine_said() -> None:
    cut = [Completion([5, 6], "no", "length", [-0.1 * n, -0.2]) for n in range(3)]
    script = {**SCRIPT, ("a", "attempt", 1): cut[0], ("a", "review", 1): cut[1], ("a", "second", 1): cut[2]}
    turns = [turn for turn in played(script)[0].turns if turn.finish_reason == "length"]
    assert [turn.role for turn in turns] == ["attempt", "review", "second"]
    assert [turn.sampling_logprobs for turn in turns] == [completion.logprobs for completion in cut]


@pytest.mark.parametrize(
    ("gate", "reviewed"),
    [("per_rollout", "a1 a2 b0 b1 b2"), ("all_failed", "b0 b1 b2"), ("always", "a0 a1 a2 b0 b1 b2")],
)
def test_gates(gate: str, reviewed: str) -> None:
    rollout, policy, _ = played(gate=gate)
    assert list(rewards(rollout, "review")) == list(rewards(rollout, "second")) == reviewed.split()
    assert rollout.metrics["reviews/gated"] == len(reviewed.split()) / 6
    if gate == "always":
        assert policy.asked["a", "review", 0].endswith("\nright") and policy.asked["a", "review", 1].endswith("\nwrong")


def test_nothing_is_reviewed_where_all_is_right() -> None:
    right = {("a", "attempt", i): box(4) for i in range(3)} | {("b", "attempt", i): box(7) for i in range(3)}
    rollout, policy, method = played(right)
    assert policy.calls == [2, 0, 0] and len(rollout.turns) == len(rollout.records) == 6
    assert method.memory == [] and rollout.metrics["reviews/gated"] == 0
    assert not {"reward/second", "reward/review", "reviews/untagged"} & set(rollout.metrics)


def test_what_is_asked() -> None:
    """The attempt's prompt is the task's own, so is the second's around guidelines and question; the review's is not."""
    _, policy, _ = played()
    assert policy.asked["a", "attempt", 0] == "<two plus two>"
    assert policy.asked["a", "review", 1] == f"review\ntwo plus two\n{box(5)}\nwrong"
    assert policy.asked["a", "second", 1] == "<care a1\ntwo plus two>"


def test_slots_that_a_completion_plants_stay_text() -> None:
    planted = "{question} {feedback} {memory} {attempt} \\1"
    script = {**SCRIPT, ("a", "attempt", 1): planted, ("a", "review", 1): "<prompt>{question}{guidelines}</prompt>"}
    _, policy, method = played(script)
    assert policy.asked["a", "review", 1] == f"review\ntwo plus two\n{planted}\nwrong"
    assert policy.asked["a", "second", 1] == "<{question}{guidelines}\ntwo plus two>"
    again = Scripted({**SCRIPT})
    method.memory = method.memory[:1]
    method.play(EXAMPLES, again)
    assert again.asked["b", "review", 0] == f"review\n{{question}}{{guidelines}}\nthree plus four\n{box(1)}\nwrong"


def test_what_the_grader_gave_up_on_is_no_reward() -> None:
    """An attempt is then not reviewed, whatever the gate; a second attempt leaves its review without a reward."""
    script = {**SCRIPT, ("a", "attempt", 1): box(99), ("b", "second", 1): box(99)}
    for gate in ("per_rollout", "always"):
        rollout, _, method = played(script, gate=gate)
        assert ("a", 1) not in of(rollout, "review") and math.isnan(of(rollout, "attempt")["a", 1]["reward"])
        assert math.isnan(of(rollout, "review")["b", 1]["reward"])
        lost = [turn for turn, row in zip(sampled(rollout), rollout.records, strict=True) if math.isnan(row["reward"])]
        assert len(lost) == 3 and all(turn.dead and turn.advantage == 0 for turn in lost)
        assert [past["review"] for past in method.memory] == ["care b0"]
        assert rollout.metrics["reward"] == pytest.approx(1 / 5) and rollout.metrics["reward/missing"] == 1 - 5 / 6
    unknown = {**SCRIPT, **{("b", "attempt", i): box(99) for i in range(3)}, ("a", "attempt", 0): box(99)}
    rollout, _, _ = played(unknown, gate="all_failed")
    assert list(rewards(rollout, "review")) == ["a1", "a2"]  # as far as is known all failed


# ------------------------------------------------------------------------------------------------------------ guidelines


@pytest.mark.parametrize(
    ("review", "found"),
    [
        ("I see. <prompt> count </prompt> bye", "count"),
        ("<prompt>one</prompt><prompt>two\nlines</prompt>", "two\nlines"),
        ("<prompt>closed</prompt> and <prompt>never closed", "closed"),
        ("<prompt>never <prompt>inner</prompt>", "inner"),
        ("<prompt>one</prompt> <prompt> </prompt>", "one"),
        ("no tag", None), ("<prompt>", None), ("</prompt>x<prompt>", None), ("<PROMPT>x</PROMPT>", None), ("", None),
    ],
)  # fmt: skip
def test_guidelines(review: str, found: str | None) -> None:
    assert guidelines(review) == found


def test_reviews_without_a_tag() -> None:
    script = {**SCRIPT, ("a", "review", 1): "just care", ("b", "review", 2): "   "}
    rollout, policy, method = played(script)
    assert policy.asked["a", "second", 1] == "<just care\ntwo plus two>"
    assert ("b", 2) not in of(rollout, "second") and of(rollout, "review")["b", 2]["reward"] == 0
    assert [past["review"] for past in method.memory] == ["just care", "care b0", "care b1"]
    assert rollout.metrics["reviews/untagged"] == 2 / 5
    dropped, _, method = played(script, untagged="drop")
    assert list(rewards(dropped, "second")) == ["a2", "b0", "b1"]
    assert rewards(dropped, "review") == {"a1": 0, "a2": 0, "b0": 1, "b1": 1, "b2": 0}
    assert [past["review"] for past in method.memory] == ["care b0", "care b1"]
    assert dropped.metrics["reviews/untagged"] == 2 / 5 and dropped.metrics["rollout/too_long"] == 0


def test_prompts_that_are_too_long_are_not_played() -> None:
    """A limit of 60 characters: one review's prompt is longer, and another's second."""
    script = {**SCRIPT, ("a", "attempt", 1): "x" * 60, ("b", "review", 0): f"<prompt>{'y' * 60}</prompt>"}
    rollout, policy, _ = played(script, limit=60)
    assert policy.calls == [2, 4, 3]
    assert list(rewards(rollout, "review")) == ["a2", "b0", "b1", "b2"]
    assert math.isnan(of(rollout, "review")["b", 0]["reward"])  # nobody tried its guidelines
    assert list(rewards(rollout, "second")) == ["a2", "b1", "b2"]
    assert rollout.metrics["rollout/too_long"] == 2 and rollout.metrics["rollout/completions"] == 6 + 4 + 3
    with pytest.raises(PromptTooLong):  # a question of the data set is not left out in silence
        played(limit=5)


def test_memory_that_does_not_fit_is_left_out_so_that_it_can_be_renewed() -> None:
    method, policy = srrl(), Scripted({**SCRIPT, ("a", "attempt", 1): box(5) + "!" * 30}, limit=70)
    method.memory = [{"example": "m", "question": "q", "review": "z" * 25}]
    shown = {f"{e}{s}": row["memory"] for (e, s), row in of(method.play(EXAMPLES, policy), "review").items()}
    assert shown == {"a1": None, **dict.fromkeys(("a2", "b0", "b1", "b2"), "z" * 25)}
    assert policy.asked["a", "review", 1] == f"review\ntwo plus two\n{box(5)}{'!' * 30}\nwrong"
    assert [past["review"] for past in method.memory[1:]] == ["care a1", "care b0", "care b1"]


# ------------------------------------------------------------------------------------------------------------- imitation


def imitated(rollout: Rollout) -> list[Turn]:
    return [turn for turn in rollout.turns if turn.imitation_weight > 0]


def test_right_second_attempts_are_imitated_on_the_bare_question() -> None:
    long = Completion([3, 4, 5, 6, 1], box(4), "stop")
    cut = Completion([3] * 12, box(7), "length")
    script = {**SCRIPT, ("a", "second", 1): long, ("b", "second", 1): cut}
    rollout, policy, method = played(script, distillation_weight=0.5)
    turns = imitated(rollout)
    assert [(policy.texts[turn.prompt_ids[0]], turn.completion_ids) for turn in turns] == [
        ("<two plus two>", [3, 4, 5, 6, 1]), ("<three plus four>", [3, 4, 1]),
    ]  # fmt: skip
    assert {turn.imitation_weight for turn in turns} == {0.5} and {turn.role for turn in turns} == {"distilled"}
    assert [f"{e}{s}" for (e, s), row in of(rollout, "second").items() if row["distilled"]] == ["a1", "b0"]
    assert of(rollout, "second")["b", 1]["reward"] == 1 and len(method.memory) == 3  # right all the same
    assert rollout.metrics["rollout/distilled"] == 2
    assert sum(row["distilled"] for row in rollout.records) == 2


def test_every_imitated_completion_weighs_alike_under_sequence() -> None:
    """Lengths 5 and 3 under lambda 0.5: 0.5 * 4 / 5 and 0.5 * 4 / 3 per token, 2 each and 4 = 0.5 * 8 together."""
    script = {**SCRIPT, ("a", "second", 1): Completion([3, 4, 5, 6, 1], box(4), "stop"), ("b", "second", 1): box(0)}
    turns = imitated(played(script, distillation_weight=0.5, distillation="sequence")[0])
    assert [turn.imitation_weight for turn in turns] == pytest.approx([0.4, 2 / 3])
    with pytest.raises(JudgefreeError, match="use distillation: token"):
        srrl(loss={"aggregation": "grpo"}, distillation="sequence")


def test_without_distillation() -> None:
    rollout, _, method = played(distillation_weight=0.0, distillation=None)
    assert imitated(rollout) == [] and len(rollout.turns) == 16 and len(method.memory) == 3
    assert rollout.metrics["rollout/distilled"] == 0


# ---------------------------------------------------------------------------------------------------------------- memory


def test_memory_is_read_as_it_stood_and_appended_in_row_order() -> None:
    method, first, second = srrl(), Scripted(SCRIPT), Scripted(SCRIPT)
    rollout = method.play(EXAMPLES, first)
    assert all(row["memory"] is None for row in rollout.records)
    assert method.memory == [
        {"example": "a", "question": "two plus two", "review": "care a1"},
        {"example": "b", "question": "three plus four", "review": "care b0"},
        {"example": "b", "question": "three plus four", "review": "care b1"},
    ]
    rollout = method.play(EXAMPLES, second)
    assert {row["memory"] for row in of(rollout, "review").values()} == {"care b1"}
    assert second.asked["a", "review", 1] == f"review\ncare b1\ntwo plus two\n{box(5)}\nwrong"
    assert "care b1" not in second.asked["a", "second", 1]  # a second attempt sees its own review only
    assert len(method.memory) == 6 and rollout.metrics["memory/size"] == 6
    assert method.state_dict() == {"memory": method.memory, "rollouts": 2}


def test_the_oldest_leave_first() -> None:
    method = srrl(memory={"rule": "latest", "size": 4})
    for letter in "xy":
        method.play(EXAMPLES, Scripted({**SCRIPT, ("a", "review", 1): f"<prompt>{letter}</prompt>"}))
    assert [past["review"] for past in method.memory] == ["care b1", "y", "care b0", "care b1"]


def test_without_memory() -> None:
    method = srrl(memory=None)
    for _ in range(2):
        rollout = method.play(EXAMPLES, Scripted(SCRIPT))
    assert method.memory == [] and all(row["memory"] is None for row in rollout.records)
    assert rollout.metrics["memory/size"] == 0


STORED = [("3 + 4 = ?", "add"), ("9 - 2 = ?", "take"), ("3 + 4 = ?", "add again"), ("how many cows", "count")]


@pytest.mark.parametrize(
    ("question", "review"),
    [("3 + 4 = ?", "add again"), ("8 - 1 = ?", "take"), ("how many pigs", "count"), ("how MANY", "count"),
     ("none of these", "count")],
)  # fmt: skip
def test_the_nearest_question_counts_operators_and_ties_go_to_the_newest(question: str, review: str) -> None:
    assert STORED[nearest([asked for asked, _ in STORED], [question])[0]][1] == review
    method, policy = srrl(memory={"rule": "nearest", "size": 9}), Scripted(SCRIPT)
    method.memory = [{"example": "m", "question": asked, "review": said} for asked, said in STORED]
    method.play([Example("a", question, "4"), EXAMPLES[1]], policy)
    assert policy.asked["a", "review", 1].startswith(f"review\n{review}\n{question}")


def test_nearest_by_hand() -> None:
    """Document frequencies of a, b, c among three texts: 2, 2, 1; idf = ln(4 / (1 + df)) + 1."""
    assert nearest(["a b", "b c", "a"], ["c", "a", "b a"]) == [1, 2, 0]
    assert nearest(["a"], []) == []


def test_random_memory_is_repeatable_and_differs_by_place_and_rollout() -> None:
    def shown(seed: int, rollouts: int) -> list[str]:
        method = srrl(seed=seed, memory={"rule": "random", "size": 50})
        method.memory = [{"example": "m", "question": "q", "review": f"r{i}"} for i in range(50)]
        method.rollouts = rollouts
        return [row["memory"] for row in of(method.play(EXAMPLES, Scripted(SCRIPT)), "review").values()]

    assert shown(3, 0) == shown(3, 0)
    assert len(set(shown(3, 0))) > 1
    assert shown(3, 0) != shown(3, 1) and shown(3, 0) != shown(4, 0)


@pytest.mark.parametrize("rule", ["latest", "random", "nearest"])
def test_a_saved_state_goes_on_as_if_it_had_not_been_saved(rule: str) -> None:
    whole, half = (srrl(memory={"rule": rule, "size": 4}) for _ in range(2))
    whole.play(EXAMPLES, Scripted(SCRIPT))
    half.load_state_dict(whole.state_dict())
    saved = half.state_dict()
    went_on = [method.play(EXAMPLES, Scripted(SCRIPT)) for method in (whole, half)]
    assert went_on[0] == went_on[1] and whole.state_dict() == half.state_dict()
    assert len(saved["memory"]) == 3  # what was saved is not written to afterwards


# ------------------------------------------------------------------------------------------------------- two processes


RAGGED = {**SCRIPT, ("a", "second", 1): Completion([3, 4, 5, 6, 1], box(4), "stop")}


class Shared(Scripted):
    """One of two processes, as threads: `gather` waits for the other and joins what both give, by rank."""

    def __init__(self, rank: int, barrier: Barrier, given: dict[int, list[Any]]) -> None:
        super().__init__(RAGGED)
        self.rank, self.barrier, self.given = rank, barrier, given

    def gather(self, values: Sequence[Any]) -> list[Any]:
        self.given[self.rank] = list(values)
        self.barrier.wait(10)
        joined = self.given[0] + self.given[1]
        self.barrier.wait(10)
        return joined


@pytest.mark.parametrize("options", [{}, {"distillation": "sequence", "memory": {"rule": "nearest", "size": 4}}])
def test_two_processes_remember_and_measure_what_one_does(options: dict[str, Any]) -> None:
    alone, barrier = srrl(**options), Barrier(2)
    given: dict[int, list[Any]] = {}
    both, policies = [srrl(**options), srrl(**options)], [Shared(rank, barrier, given) for rank in (0, 1)]
    for _ in range(2):
        whole = alone.play(EXAMPLES, Scripted(RAGGED))
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(lambda i: both[i].play(EXAMPLES[i : i + 1], policies[i]), (0, 1)))
        assert [part.metrics for part in parts] == [whole.metrics] * 2
        assert [one.memory for one in both] == [alone.memory] * 2
        assert [row for part in parts for row in part.records] == whole.records
        turns = [[replace(turn, prompt_ids=[]) for turn in one.turns] for one in (whole, *parts)]
        assert turns[1] + turns[2] == turns[0]  # the same rows in the same order: they are shared out among updates
    assert len(alone.memory) == (6 if not options else 4)


# --------------------------------------------------------------------------------------------------- metrics and options


def test_metrics_by_hand() -> None:
    """Attempts and seconds say two words and the end token; the reviews "<prompt>care a1</prompt>" too."""
    metrics = played({**SCRIPT, ("b", "attempt", 2): "no answer"})[0].metrics
    assert metrics == {
        "reward": pytest.approx(1 / 6), "reward_std": pytest.approx(math.sqrt(1 / 3) / 2), "reward/missing": 0,
        "completions/unparsed_ratio": pytest.approx(1 / 6), "reward/second": pytest.approx(3 / 5),
        "reward/review": pytest.approx(3 / 5), "reviews/gated": pytest.approx(5 / 6), "reviews/untagged": 0,
        "rollout/completions": 16, "rollout/completions/attempt": 6, "rollout/completions/review": 5,
        "rollout/completions/second": 5, "rollout/tokens": 48, "rollout/tokens/attempt": 18,
        "rollout/tokens/review": 15, "rollout/tokens/second": 15, "rollout/too_long": 0, "rollout/distilled": 3,
        "memory/size": 3,
    }  # fmt: skip


def test_the_monitor_watches_the_attempts() -> None:
    assert played()[0].watched == "attempt"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": "never"}, "gate"), ({"untagged": "keep"}, "untagged"), ({"distillation_weight": -1}, "greater than"),
        ({"distillation": None}, "distillation is given exactly when"),
        ({"distillation_weight": 0}, "distillation is given exactly when"),
        ({"memory": {"rule": "best", "size": 1}}, "rule"), ({"memory": {"rule": "latest", "size": 0}}, "size"),
        ({"memory": {"rule": "latest"}}, "size"), ({"tau": 1}, "tau"),
    ],
)  # fmt: skip
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Options.model_validate({**OPTIONS, **options})
