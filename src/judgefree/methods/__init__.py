"""The methods by name, one file each. A new one is a file, its import here and a line in two tables
(docs/new-method.md)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from judgefree.config import PromptFormat, Run, Training
from judgefree.episodes import Method
from judgefree.errors import JudgefreeError
from judgefree.methods import rlif, rlvr, rubric, save, sft, spyrl, srrl
from judgefree.places import reward_model_in
from judgefree.refusals import refusals
from judgefree.scoring.grader import Grader
from judgefree.texts import JUDGE_TEXTS, Slots

SFT = "sft"  # imitation of demonstrations is TRL's SFTTrainer, not a game with a reward


@dataclass(frozen=True)
class Setting:
    """What a method is made with besides its own options. texts: those of its prompt file, by key; root: the project's
    folder; models: the folders that its options name, by name (`MODELS`)."""

    training: Training
    prompt: PromptFormat
    grader: Grader
    seed: int
    texts: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path()
    models: Mapping[str, Path] = field(default_factory=dict)


METHODS: dict[str, Callable[[Any, Setting], Method]] = {
    "rlif": rlif.Rlif, "rlvr": rlvr.Rlvr, "rubric": rubric.Rubric, "save": save.make, "spyrl": spyrl.Spyrl,
    "srrl": srrl.Srrl,
}  # fmt: skip
OPTIONS: dict[str, type[BaseModel]] = {
    SFT: sft.Options, "rlif": rlif.Options, "rlvr": rlvr.Options, "rubric": rubric.Options, "save": save.Options,
    "spyrl": spyrl.Options, "srrl": srrl.Options,
}  # fmt: skip
# What the prompt file (`options.prompts`) of a method must hold.
TEXTS: dict[str, Slots] = {"rubric": JUDGE_TEXTS, "spyrl": spyrl.TEXTS, "srrl": srrl.TEXTS}
MODELS: dict[str, str] = {"save": "reward_model"}  # the option that names a folder of models/ beside the start
# What a method adds to the published run: from a checkpoint's state, its options and models, below a folder.
EXPORTS: dict[str, Callable[[dict[str, Any], Any, Mapping[str, Path], Path], None]] = {"save": save.export}
GRADED = frozenset({"rlif", "rlvr", "srrl"})  # methods whose rewards compare answers as values, not as texts
OWN_SIGNALS = frozenset({"rlif"})  # methods whose rollouts have the metric `own_signal/rollout`: no gold answer is read


def options_of(name: str, run: Run) -> Any:
    """The run's options, checked by its method.

    Raises JudgefreeError for an unknown method or option, and for weights to be chosen by a signal it does not have.
    """
    key = run.path(name)
    if run.method not in OPTIONS:
        raise JudgefreeError(f"{key}.method: unknown method {run.method!r}", f"known: {', '.join(sorted(OPTIONS))}")
    if run.select == "own_signal" and run.method not in OWN_SIGNALS:
        raise JudgefreeError(
            f"{key}.select: method {run.method} measures no own_signal", "use select: validation or select: last"
        )
    try:
        return OPTIONS[run.method].model_validate(run.options)
    except ValidationError as error:
        lines = refusals(error, OPTIONS[run.method], f"{key}.options")
        known = ", ".join(OPTIONS[run.method].model_fields) or "none"
        raise JudgefreeError("; ".join(lines), f"options of {run.method}: {known}") from error


def models_of(run: Run, root: Path) -> dict[str, Path]:
    """The names in models/ that the run's options mention, beside the model it starts from, and where each is: the folder
    of an entry of reward_models, or what a run has made of one."""
    names = [run.options[MODELS[run.method]]] if run.method in MODELS else []
    return {name: reward_model_in(root / "models" / name) for name in names}
