"""A scripted policy that plays the spy game: it says what it is told, and what it is asked is looked at."""

import re
from collections.abc import Sequence
from typing import Any

from world import training

from judgefree.config import PromptFormat
from judgefree.episodes import Completion, Example, Prompt, Rollout
from judgefree.errors import PromptTooLong
from judgefree.methods import Setting
from judgefree.methods.spyrl import Options, Spyrl
from judgefree.scoring.grader import Grader

TEXTS = {
    "civilian": "{source}\nwrite, all of it", "spy": "{source}\nwrite, {percent} % hidden",
    "detector": "{source}\nwho?\n{outputs}", "output": "{number}) {text}", "placeholder": "(no answer)",
}  # fmt: skip
HYSTERESIS = {"rule": "hysteresis", "start": "detection", "accuracy_high": 0.9, "na_low": 0.1, "error_high": 0.4,
              "na_high": 0.5, "decay": 0.9, "min_stay": 2, "patience": 3}  # fmt: skip
OPTIONS: dict[str, Any] = {
    "prompts": "prompts/x.yaml", "detectors": "players", "information_loss": {"unit": "words", "share": 0.5}, "beta": 0.1,
    "lam": 0.1, "baseline": {"rule": "update_first", "decay": 0.9}, "detection_reward": "plain",
    "schedule": {"rule": "detection"},
}  # fmt: skip
EXAMPLES = [Example(f"e{n}", f"w{n} x{n} y{n} z{n}", f"gold {n}", f"shown {n}") for n in range(4)]
PERFORMING, DETECTION, JOINT = ({"rule": rule} for rule in ("performing", "detection", "joint"))


class Scripted:
    """A performer answers `Answer: sees <number of words it sees>`; a detector votes for the output that saw least, sees
    none or says what `says` has for it, by example and seat. Prompts are numbered and kept as texts."""

    def __init__(self, says: dict[tuple[str, str, int], str] | None = None, limit: int = 10**9) -> None:
        self.says = says or {}
        self.limit = limit
        self.texts: list[str] = []
        self.asked: dict[tuple[str | int, ...], str] = {}
        self.calls: list[tuple[int, int]] = []

    def encode_message(self, text: str) -> list[int]:
        if len(text) > self.limit:
            raise PromptTooLong(f"{len(text)} is too long")
        self.texts.append(text)
        return [len(self.texts) - 1]

    def sample(self, prompts: Sequence[Prompt], n: int) -> list[list[Completion]]:
        self.calls.append((len(prompts), n))
        return [[self._say(prompt, i) for i in range(n)] for prompt in prompts]

    def _say(self, prompt: Prompt, sample: int) -> Completion:
        example, role, slot = prompt.key
        text = self.asked[prompt.key] = self.texts[prompt.ids[0]]
        place = (str(example), str(role), int(slot) + sample)
        if place in self.says:
            said = self.says[place]
        elif role == "performer":
            said = f"thinking\nAnswer: sees {4 - text.count('*')}"
        else:
            least = min(re.findall(r"^(\d)\) (?:\| )?sees (\d)$", text, re.MULTILINE), key=lambda one: one[1])
            said = f"\\boxed{{{least[0]}}}"
        return Completion([*range(3, 3 + len(said.split())), 1], said, "stop")

    def gather(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def encode(self, question: str) -> list[int]:
        raise NotImplementedError

    encode_chat = score = self_certainty = encode


def spyrl(size: int = 4, seed: int = 3, answer: str = "line", **options: Any) -> Spyrl:
    form = PromptFormat(template="{question}", chat=False, answer=answer, measure="rouge")  # type: ignore[arg-type]
    given = {key: value for key, value in {**OPTIONS, **options}.items() if value is not None}
    settings = training(group_size=size, rollout_size=size * 4)
    return Spyrl(Options.model_validate(given), Setting(settings, form, Grader(1, 2.0), seed, TEXTS))


def played(
    says: dict[tuple[str, str, int], str] | None = None, limit: int = 10**9, **options: Any
) -> tuple[Rollout, Scripted, Spyrl]:
    method, policy = spyrl(**options), Scripted(says, limit)
    return method.play(EXAMPLES, policy), policy, method


def of(rollout: Rollout, role: str, example: str) -> list[dict[str, Any]]:
    return [row for row in rollout.records if row["role"] == role and row["prompt_id"] == example]


def spies(rollout: Rollout) -> dict[str, int]:
    return {row["prompt_id"]: row["spy"] for row in rollout.records}


def ballots(*seats: int | str | None, order: dict[int, list[int]]) -> dict[tuple[str, str, int], str]:
    """What the detectors of e0 say so that they vote for these seats: each has an order of its own."""
    return {
        ("e0", "detector", i): f"\\boxed{{{order[i].index(seat) + 1 if isinstance(seat, int) else seat}}}"
        for i, seat in enumerate(seats)
    }


def orders(method: Spyrl, rollout: int = 0) -> dict[int, list[int]]:
    (game,) = method.environment.inject(EXAMPLES[:1], rollout)
    return {i: method.environment.order(game, i) for i in range(method.environment.rules.players)}
