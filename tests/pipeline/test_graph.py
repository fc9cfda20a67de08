"""dvc.yaml and the keys name all code that a stage runs: what a command's modules import is followed and compared."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from judgefree.evaluation.stage import _CODE
from judgefree.methods import MODELS, OPTIONS
from judgefree.reward_training.build import CODE
from judgefree.training.run import REWARD_CODE, SHARED_CODE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "judgefree"

# Code that a stage imports and that cannot change what it makes.
ANYWHERE = {
    "config.py": "settings reach a stage through resolved/, which is a dependency",
    "config_data.py": "as config.py",
    "config_benchmarks.py": "as config.py",
    "config_judges.py": "as config.py",
    "config_reward_models.py": "as config.py",
    "config_rewards.py": "as config.py",
    "config_texts.py": "as config.py",
    "pinned.py": "refuses settings; what was read, and where, stands in what is made",
    "params.py": "as config.py",
    "params_benchmarks.py": "as config.py",
    "places.py": "where a model lies; what lies there is a dependency",
    "errors.py": "what is said when nothing is made",
    "processes.py": "how long a process lives",
    "cli.py": "starts a stage; what it passes on stands in resolved/",
    "registry": "shows what is made and makes none of it",
}
# The list of all methods: a run uses one of them, and a new one changes no other run. `resolve` lets methods check their
# options and leaves these as they are.
METHODS = "methods/__init__.py"
# Modules whose functions' own imports are for one command; others that use the module do without.
FOR_ONE = {"evaluation/stage.py": "evaluate", "check.py": "check"}


def imports(tree: ast.AST, functions: bool = True) -> Iterator[str]:
    """Names of judgefree's modules that a piece of code imports, without those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("judgefree"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("judgefree"):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        elif functions or not isinstance(node, ast.FunctionDef):
            yield from imports(node, functions)


def file_of(module: str) -> Path | None:
    """None for a name inside a module, and for a package that holds no code."""
    path = ROOT / "src" / module.replace(".", "/")
    if path.is_dir():
        init = path / "__init__.py"
        return init if len(ast.parse(init.read_text()).body) > 1 else None
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else None


def code_of(stage: str, method: str | None = None) -> set[str]:
    """Files below the package that the stage's command runs, but for those that cannot change its result."""
    cli = ast.parse((PACKAGE / "cli.py").read_text())
    (command,) = (node for node in cli.body if isinstance(node, ast.FunctionDef) and node.name == stage)
    waiting = [*imports(command), *([f"judgefree.methods.{method}"] if method else [])]
    found: set[str] = set()
    while waiting:
        path = file_of(waiting.pop())
        if path is None or (name := path.relative_to(PACKAGE).as_posix()) in found or covered(name, ANYWHERE):
            continue
        found.add(name)
        if name != METHODS:
            waiting += imports(ast.parse(path.read_text()), FOR_ONE.get(name, stage) == stage)
    if stage == "train":  # its supervised.py imports the one method that it is for
        found -= {METHODS, *(f"methods/{other}.py" for other in OPTIONS if other != method)}
    return found


def covered(name: str, by: Collection[str]) -> bool:
    return any(name == entry or name.startswith(f"{entry}/") for entry in by)


def train_stage(method: str) -> str:
    """Methods that are given a reward model have a stage of their own."""
    return "train_save" if method in MODELS else "train"


def stages() -> dict[str, Any]:
    return dict(YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())["stages"])


def deps_of(stage: dict[str, Any]) -> set[str]:
    source = "src/judgefree/"
    return {dep.removeprefix(source) for dep in stage.get("do", stage)["deps"] if dep.startswith(source)}


@pytest.mark.parametrize("name", sorted(set(stages()) - {"train", "train_save"}))
def test_a_stage_depends_on_the_code_it_runs(name: str) -> None:
    stage = stages()[name]
    needed = code_of(stage.get("do", stage)["cmd"].split()[3].replace("-", "_"))
    assert needed and not {file for file in needed if not covered(file, deps_of(stage))}
    files = {dep for dep in deps_of(stage) if dep.endswith(".py")}
    assert not {file for file in files - needed if not covered(file, ANYWHERE)}  # else it would run again for nothing


@pytest.mark.parametrize("method", sorted(OPTIONS))
def test_training_depends_on_the_code_it_runs(method: str) -> None:
    needed = code_of("train", method)
    deps = {dep.replace("${item.method}", method) for dep in deps_of(stages()[train_stage(method)])}
    key = {*SHARED_CODE, f"methods/{method}.py"} | ({REWARD_CODE} if method in MODELS else set())
    assert "training/trainer.py" in needed and f"methods/{method}.py" in needed
    assert not {file for file in needed if not covered(file, deps)}
    assert not {file for file in needed if not covered(file, key)}
    assert deps == key


def test_the_key_of_an_evaluation_names_the_code_it_runs() -> None:
    arranges = {"evaluation/stage.py"}  # names, seals and publishes what the others compute
    assert not {file for file in code_of("evaluate") - arranges if not covered(file, _CODE)}


def test_the_key_of_a_reward_model_names_the_code_it_runs() -> None:
    assert deps_of(stages()["reward_model"]) == set(CODE)
    assert not {file for file in code_of("reward_model") if not covered(file, CODE)}


def test_what_is_named_is_there() -> None:
    for name, stage in stages().items():
        named = {dep.replace("${item.method}", method) for dep in deps_of(stage) for method in OPTIONS}
        assert not {file for file in named if not (PACKAGE / file).exists()}, name
    assert all((PACKAGE / file).exists() for file in {*SHARED_CODE, *_CODE})
