"""The worked example of docs/new-method.md, as it stands on the page, plays and learns on a real policy."""

import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from harness import load
from world import training

from judgefree.config import PromptFormat
from judgefree.episodes import Example
from judgefree.methods import Setting
from judgefree.scoring.grader import Grader
from judgefree.training.arguments import episode_arguments
from judgefree.training.engines import make_engine
from judgefree.training.trainer import EpisodeTrainer

PAGE = Path(__file__).parents[1] / "docs" / "new-method.md"


@pytest.fixture(scope="module")
def example() -> Any:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code.count("\n") <= 150
    module = types.ModuleType("majority_vote")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    return module


def test_it_is_installed_as_the_page_says(tmp_path: Path) -> None:
    """The package with the file in its place and the three edits: a process of its own imports and finds it."""
    text = PAGE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    imports, method, options = re.findall(r"```\n(from judgefree.*?)\nMETHODS +(.*?)\nOPTIONS +(.*?)\n```", text)[0]
    package = tmp_path / "judgefree"
    shutil.copytree(PAGE.parents[1] / "src" / "judgefree", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "methods" / "majority_vote.py").write_text(code)
    known = package / "methods" / "__init__.py"
    lines = known.read_text()
    lines = re.sub(r"^from judgefree\.methods import .*$", imports, lines, flags=re.MULTILINE)
    lines = re.sub(r"^(METHODS.*= \{)", rf"\1{method}, ", lines, flags=re.MULTILINE)
    known.write_text(re.sub(r"^(OPTIONS.*= \{)", rf"\1{options}, ", lines, flags=re.MULTILINE))
    program = "from judgefree import methods; print(sorted(methods.METHODS), 'majority_vote' in methods.OPTIONS)"
    found = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(tmp_path)}, text=True,
                           capture_output=True)  # fmt: skip
    assert found.stdout.strip() == "['majority_vote', 'rlif', 'rlvr', 'rubric', 'save', 'spyrl', 'srrl'] True", (
        found.stderr
    )


def test_majority_by_hand(example: Any) -> None:
    assert example.majority(["4", None, "5", "4"]) == "4"
    assert example.majority(["5", "4", "4", "5"]) == "5"  # a tie goes to the first
    assert example.majority([None, None]) is None


def test_it_trains(example: Any, tiny: Path, tmp_path: Path) -> None:
    settings = training(steps=2, save_every=2, micro_batches=1)
    prompt = PromptFormat(template="{question}", chat=False, answer="marker")
    model, tokenizer = load(tiny)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rollouts: list[Any] = []
    args = episode_arguments(settings, tmp_path, 0)
    args.save_strategy = "no"
    with Grader(1, 2.0) as grader:
        method = example.MajorityVote(example.Options(), Setting(settings, prompt, grader, 0))
        trainer = EpisodeTrainer(
            model, method=method, examples=[Example(f"e{i}", "w1 w2") for i in range(8)], training=settings, prompt=prompt,
            seed=0, make_engine=make_engine, on_rollout=lambda step, rollout: rollouts.append(rollout), args=args,
            tokenizer=tokenizer,
        )  # fmt: skip
        trainer.train()
    assert len(rollouts) == 2 and all(len(rollout.turns) == 16 for rollout in rollouts)
    # random words hold a marked answer now and then; the first of its group is the majority, so some groups teach
    assert any(not turn.dead for rollout in rollouts for turn in rollout.turns)
    assert not all(value.equal(before[name]) for name, value in model.state_dict().items())
