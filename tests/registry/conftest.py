"""Projects with real models, reports and a real SQLite store, without training: answers are right where a test says."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from judgefree.bases.build import build_base
from judgefree.files import MANIFEST, key_of, pretty_json, read_json, seal, write_atomic
from judgefree.registry.facts import model_sha256
from judgefree.registry.states import run_keys
from judgefree.registry.store import open_store
from judgefree.training.monitor import collapse_facts

ROOT = Path(__file__).parents[2]
ITEMS = 300
BASE = {"kind": "scratch", "vocabulary": "arithmetic", "hidden_size": 16, "intermediate_size": 16, "layers": 1,
        "heads": 2, "max_length": 64, "max_value": 20}  # fmt: skip
SUITE = {"dataset": "arithmetic", "max_completion_tokens": 8, "batch_rows": 64, "pass_at": []}
PROMPT = {"template": "{question}", "chat": True, "answer": "marker", "stop": []}
FACTS = {
    "grading_timeout_s": 2.0,
    "prompt": PROMPT,
    "suite": SUITE,
    "test_sha256": "",
    "code_sha256": "0",
    "threads": 1,
}


@dataclass
class Project:
    """A project folder; the methods do what stages would have done."""

    root: Path

    def base(self, name: str = "tiny", seed: int = 0) -> None:
        build_base(name, {"base": {**BASE, "seed": seed}}, self.root)

    def run(
        self, name: str, *, weights: int, validation: float = 0.5, status: str = "finished", settings: Any = None,
        rows: dict[int, dict[str, float | None]] | None = None, key: str | None = None,
    ) -> None:  # fmt: skip
        """models/<name>: the base with weights from another seed, as if training had made them."""
        build_base(name, {"base": {**BASE, "seed": weights}}, self.root)
        folder = self.root / "models" / name
        history = rows or {
            0: {"validation/pass@1": 0.1},
            1: {"reward": 0.25},
            2: {"reward": 0.5, "validation/pass@1": validation},
        }
        names = sorted({metric for row in history.values() for metric in row})
        columns = {"step": list(history)} | {n: [row.get(n) for row in history.values()] for n in names}
        pq.write_table(pa.table(columns), folder / "history.parquet")
        (folder / "records").mkdir()
        record = {"step": 0, "prompt_id": "train-000000", "role": "attempt", "text": "#### 3", "reward": float("nan")}
        pq.write_table(pa.Table.from_pylist([record]), folder / "records" / "steps-0000000.parquet")
        seal(folder, {
            "kind": "run", "key": key or self.key(name, weights), "method": "rlvr", "dataset": "arithmetic",
            "seed": 0, "start_from": "tiny", "select": "validation", "selected_step": 2, "steps": 2, "status": status,
            "collapse": collapse_facts(history),
            "settings": settings or {"training": {"learning_rate": 2e-4}},
            "data_sha256": {"train.parquet": self.split_sha256("train"), "validation.parquet": "b" * 64},
        })  # fmt: skip

    def key(self, name: str, weights: int) -> str:
        """Of a run that params.yaml has: its present key, once a setting of its own stands for its weights."""
        params = self.settings()
        if name not in params["runs"]:
            return key_of("run", name, weights)
        params["runs"][name]["training"] = {"learning_rate": weights / 1000}
        self.write(params)
        return str(run_keys(self.root)[name])

    def report(
        self, name: str, right: Sequence[bool], *, verdict: str = "wrong", length: int = 6, suite: Any = None,
        ungraded: float = 0.0,
    ) -> None:  # fmt: skip
        """reports/runs/<name>/arithmetic: test items answered right where `right` says, else with that verdict."""
        folder = self.root / "reports" / "runs" / name / "arithmetic"
        shutil.rmtree(folder.parent, ignore_errors=True)
        test = pd.read_parquet(self.root / "data" / "arithmetic" / "test.parquet").head(len(right))
        items = pd.DataFrame({
            "id": test["id"], "question": test["question"], "gold": test["answer"], "text": "#### 1", "answer": "1",
            "verdict": ["correct" if one else verdict for one in right], "correct": list(right), "length": length,
            "finish_reason": "stop", "n_samples": 0, "n_correct": 0, "n_ungraded": 0,
        })  # fmt: skip
        write_atomic(folder / "items.parquet", items.to_parquet(index=False))
        unparsed = float((items["verdict"] == "unparsed").mean())
        metrics = {"items": len(right), "pass@1": sum(right) / len(right), "length": float(length), "unparsed": unparsed,
                   "truncated": 0.0, "ungraded": ungraded}  # fmt: skip
        write_atomic(folder / "metrics.json", pretty_json(metrics))
        facts = {**FACTS, "suite": suite or SUITE, "test_sha256": self.split_sha256("test"),
                 "model_sha256": model_sha256(self.root, name)}  # fmt: skip
        seal(folder, {"key": key_of(facts, items.to_csv()), **facts})
        seal(folder.parent, {"model": name})

    def split_sha256(self, split: str) -> str:
        return str(read_json(self.root / "data" / "arithmetic" / MANIFEST)["files"][f"{split}.parquet"]["sha256"])

    def settings(self) -> Any:
        return YAML(typ="safe", pure=True).load((self.root / "params.yaml").read_text())

    def write(self, params: Any) -> None:
        with (self.root / "params.yaml").open("w") as file:
            YAML(typ="safe", pure=True).dump(params, file)

    def params(self, runs: Sequence[str] = ("rlvr",), suite: Any = None, **gates: Any) -> None:
        """params.yaml of the tiny profile with the given runs, suite and gates."""
        params = YAML(typ="safe", pure=True).load((ROOT / "profiles" / "tiny.yaml").read_text())
        run = {"method": "rlvr", "dataset": "arithmetic", "start_from": "tiny", "seed": 0, "select": "validation",
               "suites": ["arithmetic"]}  # fmt: skip
        params["runs"] = {name: {**run} for name in runs}
        params["suites"]["arithmetic"] = suite or SUITE
        params["prompts"]["arithmetic"] = PROMPT
        params["compare"] = {"resamples": 500, "seed": 0, "confidence": 0.95}
        params["gates"] = {**params["gates"], "measure": "pass@1", "min_items": 100, **gates}
        self.write(params)


@pytest.fixture(scope="session")
def blank_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's schema, which takes seconds to make, and nothing in it."""
    path = tmp_path_factory.mktemp("blank") / "mlflow.db"
    mlflow.set_tracking_uri(f"sqlite:///{path}")
    mlflow.MlflowClient().search_experiments()
    return path


@pytest.fixture
def root(tmp_path: Path, blank_database: Path) -> Path:
    """A project folder whose store has its schema."""
    (tmp_path / "project" / "mlruns").mkdir(parents=True)
    shutil.copy(blank_database, tmp_path / "project" / "mlruns" / "mlflow.db")
    return tmp_path / "project"


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/arithmetic with test and train rows of plain sums."""
    folder = tmp_path_factory.mktemp("data") / "arithmetic"
    folder.mkdir()
    for split in ("train", "test"):
        rows = [{"id": f"{split}-{i:06d}", "question": f"{i % 9} + {i % 7} = ?", "answer": str(i % 9 + i % 7),
                 "demonstration": "", "solution": None} for i in range(ITEMS)]  # fmt: skip
        frame = pd.DataFrame(rows).astype({"solution": "string"})
        frame.to_parquet(folder / f"{split}.parquet", index=False)
    seal(folder, {"kind": "arithmetic", "key": "by hand"})
    return folder


@pytest.fixture
def project(root: Path, data: Path) -> Project:
    """One base, evaluated with a fifth of the items right, and no run."""
    shutil.copytree(data, root / "data" / "arithmetic")
    made = Project(root)
    made.params()
    made.base()
    made.report("tiny", right(0.2))
    return made


def right(share: float, items: int = ITEMS) -> list[bool]:
    """The first items of the share are right, so that a model with a higher share is right wherever the other is."""
    return [place < round(share * items) for place in range(items)]


@pytest.fixture
def shares() -> Callable[..., list[bool]]:
    return right


@pytest.fixture
def store(root: Path) -> Any:
    return open_store(root)


@pytest.fixture
def forked() -> Callable[..., list[Any]]:
    """Call a function on each argument, all at once in processes of their own; their results in no order. Only for a
    store that this process has not opened."""
    context = multiprocessing.get_context("fork")

    def call(function: Callable[[Any], Any], arguments: Sequence[Any], exitcode: int = 0) -> list[Any]:
        results = context.SimpleQueue()
        processes = [context.Process(target=lambda one=one: results.put(function(one))) for one in arguments]
        for process in processes:
            process.start()
        for process in processes:
            process.join(200)
        assert [process.exitcode for process in processes] == [exitcode] * len(processes)
        return [] if exitcode else [results.get() for _ in processes]

    return call


@pytest.fixture
def python() -> Callable[..., "subprocess.Popen[str]"]:
    """Start Python on a script with arguments, in a process of its own."""

    def start(script: str, *arguments: object) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", script, *map(str, arguments)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start
