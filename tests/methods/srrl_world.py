"""SRRL with a scripted policy: it says what it is told, and what it is asked is kept."""

from collections.abc import Mapping, Sequence
from typing import Any

from world import training

from judgefree.config import PromptFormat
from judgefree.episodes import Completion, Example, Prompt, Rollout, Turn
from judgefree.errors import PromptTooLong
from judgefree.methods import Setting
from judgefree.methods.srrl import Options, Srrl
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
