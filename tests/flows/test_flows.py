"""Flows against a Prefect server: outcomes, retries, cancels, two at once, and no server at all."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from microproject import LONG, REPOSITORY, write
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter
from prefect.states import State
from ruamel.yaml import YAML
from test_process import wait_for, working_in

from flows.prepare import prepare
from flows.register import register
from flows.train import train
from judgefree.check import write_resolved
from judgefree.errors import JudgefreeError
from tasks.stage import StageFailed

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("prefect_api")]
Project = Callable[..., Path]

TRIES = """
import pathlib, sys
tries = pathlib.Path("tries")
tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
print("judgefree: the hub does not answer\\n  fix: wait", file=sys.stderr)
if len(tries.read_text()) < 2:
    sys.exit({status})
pathlib.Path("train.out").write_text("made")
"""


def logged(state: State[Any]) -> list[str]:
    run = state.state_details.flow_run_id
    with get_client(sync_client=True) as client:
        return [log.message for log in client.read_logs(LogFilter.model_validate({"flow_run_id": {"any_": [run]}}))]


def artifact(key: str) -> Any:
    from prefect.artifacts import Artifact

    found = Artifact.get(key)
    assert found is not None
    return json.loads(found.data) if str(found.data).startswith(("[", "{")) else found.data


@pytest.fixture
def flow_process(prefect_api: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `python -m flows.<name>` in a project, as a person does."""
    started = []

    def start(name: str, root: Path, **environment: str) -> subprocess.Popen[bytes]:
        settings = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}", "PREFECT_API_URL": prefect_api}
        with (root / "flow.log").open("wb") as log:
            started.append(subprocess.Popen(
                [sys.executable, "-m", f"flows.{name}"], cwd=root, env={**settings, **environment}, stdout=log, stderr=log
            ))  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_stages_are_made_once(project: Project) -> None:
    root = project(a=write("a"), b=write("b"))
    state = train(str(root), return_state=True)
    assert state.is_completed()
    assert [(row["stage"], row["outcome"]) for row in artifact("stages-train")] == [("a", "made"), ("b", "made")]
    wait_for(lambda: {"making a", "making b"} <= set(logged(state)))
    (root / "b.py").write_text(write("b") + "# changed\n")
    assert train(str(root), return_state=True).is_completed()
    assert [(row["stage"], row["outcome"]) for row in artifact("stages-train")] == [("a", "unchanged"), ("b", "made")]


READS = """
import hashlib, json, pathlib
files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in pathlib.Path("own").glob("*.jsonl")}
source = {"kind": "folder", "id": "./own", "patterns": ["*.jsonl"], "files": files}
pathlib.Path("data/own").mkdir(parents=True)
pathlib.Path("data/own/manifest.json").write_text(json.dumps({"sources": {"train": source}}))
"""


def test_what_dvc_does_not_see_is_made_again(project: Project) -> None:
    """Rows in a folder that only params.yaml names: another file, then other content."""
    root = project(reads=READS)
    (root / "own").mkdir()
    (root / "own" / "a.jsonl").write_text("1")
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load((root / "params.yaml").read_text())
    params["data"]["own"] = {"kind": "gsm8k", "id": "./own", "revision": "0" * 40, "seed": 0, "validation": 5,
                             "quality": params["data"]["arithmetic"]["quality"]}  # fmt: skip
    reads = {"cmd": f"{sys.executable} reads.py", "deps": ["reads.py"], "outs": ["data/${item}"]}
    for name, content in {
        "params.yaml": params, "dvc.yaml": {"stages": {"prepare": {"foreach": ["own"], "do": reads}}},
    }.items():  # fmt: skip
        with (root / name).open("w") as file:
            yaml.dump(content, file)
    write_resolved(root)
    outcomes = []
    for change in (None, None, "b.jsonl", "a.jsonl", None):
        if change:
            (root / "own" / change).write_text("2")
        assert prepare(str(root), return_state=True).is_completed()
        outcomes += [(row["stage"], row["outcome"]) for row in artifact("stages-prepare")]
    assert outcomes == [("prepare@own", outcome) for outcome in ("made", "unchanged", "made", "made", "unchanged")]


def test_a_fault_that_may_pass_is_tried_again(project: Project) -> None:
    root = project(train=TRIES.format(status=75))
    assert train(str(root), return_state=True).is_completed()
    assert (root / "tries").read_text() == "xx"


def test_refused_input_is_not(project: Project) -> None:
    root = project(train=TRIES.format(status=2))
    with pytest.raises(StageFailed, match="status 2: judgefree: the hub does not answer\n  fix: wait$"):
        train(str(root))
    assert (root / "tries").read_text() == "x"


def test_time_out_saves_and_is_not_tried_again(project: Project) -> None:
    root = project({"timeout_s": {"prepare": 9, "train": 4, "evaluate": 9, "registry": 9}}, train=LONG)
    with pytest.raises(StageFailed, match=r"train was stopped after 4 s \(pipeline.timeout_s"):
        train(str(root))
    assert (root / "saved").exists() and working_in(root) == []


def test_refused_parameters(project: Project) -> None:
    root = project(a=write("a"))
    (root / "params.yaml").write_text("threads: 0\n")
    with pytest.raises(JudgefreeError, match="params.yaml is refused"):
        train(str(root))


def test_a_task_that_is_refused_keeps_no_other_from_its_verdict(project: Project) -> None:
    root = project({"retries": 0}, a=write("a"))
    params = YAML(typ="safe", pure=True).load((root / "params.yaml").read_text())
    for section in ("data", "prompts"):
        params[section]["words"] = params[section]["arithmetic"]
    params["suites"]["words"] = {**params["suites"]["arithmetic"], "dataset": "words"}
    params["bases"]["tiny"]["suites"].append("words")
    params["runs"]["other"] = {**params["runs"]["warmup"], "dataset": "words"}
    with (root / "params.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(params, file)
    with pytest.raises(StageFailed) as caught:
        register(str(root))
    first, second = re.findall(r"^register@(\w+) failed with status 2: judgefree: no model of", str(caught.value), re.M)
    assert (first, second) == ("arithmetic", "words")


def test_kill_9_leaves_no_child_and_the_next_run_goes_on(project: Project, flow_process: Callable[..., Any]) -> None:
    root = project({"lock_wait_s": 20}, prepare=LONG + write("prepare"))
    process = flow_process("prepare", root)
    wait_for((root / "started").exists, 60)
    process.kill()
    state = prepare(str(root), return_state=True)
    assert state.is_completed() and (root / "prepare.out").exists()
    wait_for(lambda: "going on from the checkpoint" in logged(state))
    assert working_in(root) == []


def test_sigterm_with_no_server_set_up(project: Project, flow_process: Callable[..., Any]) -> None:
    """The stage saves, neither it nor the temporary server is left, and the next run goes on. Meanwhile a second flow
    is skipped."""
    root = project(train=LONG + write("train"))
    process = flow_process("train", root, PREFECT_API_URL="")
    wait_for((root / "started").exists, 100)
    second = train(str(root), return_state=True)
    assert second.is_cancelled()
    assert f"skipped: another flow works in this project: process {process.pid} (" in str(second.message)

    family = psutil.Process(process.pid).children(recursive=True)
    assert any("prefect" in " ".join(one.cmdline()) for one in family)
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    assert (root / "saved").exists() and not (root / "train.out").exists()
    assert [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
    assert not any(json.loads((root / ".dvc" / "tmp" / "rwlock").read_text()).values())

    assert train(str(root), return_state=True).is_completed()
    assert (root / "train.out").read_text() == "train"
