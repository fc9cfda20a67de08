"""What a failed stage says, what is worth another try, and the order of stages."""

from collections.abc import Callable
from pathlib import Path

import pytest

from judgefree.errors import JudgefreeError
from tasks.graph import kind_of, stages
from tasks.stage import failure

REFUSED = """Running stage 'train@rlvr':
> python -m judgefree train rlvr
judgefree: data/arithmetic/train.parquet is not what was written
  fix: restore it with `dvc checkout`
ERROR: failed to reproduce 'train@rlvr': failed to run: python -m judgefree train rlvr, exited with {status}""".splitlines()
BUSY = """ERROR: failed to reproduce 'train@rlvr': '/here/models/rlvr' is busy, it is being blocked by:
  (PID 77): dvc repro

If there are no processes with such PIDs, you can manually remove '/here/.dvc/tmp/rwlock' and try again.""".splitlines()


@pytest.mark.parametrize(("status", "may_pass"), [(2, False), (1, False), (75, True), (143, False)])
def test_failure_has_the_stages_own_message_and_status(status: int, may_pass: bool) -> None:
    error = failure("train@rlvr", [line.format(status=status) for line in REFUSED], 255)
    assert str(error) == (
        f"train@rlvr failed with status {status}: judgefree: data/arithmetic/train.parquet is not what was written\n"
        "  fix: restore it with `dvc checkout`"
    )
    assert error.may_pass is may_pass


def test_a_lock_of_another_process_may_pass() -> None:
    error = failure("train@rlvr", BUSY, 255)
    assert error.may_pass and "(PID 77): dvc repro" in str(error)
    lock = "ERROR: Unable to acquire lock. Most likely another DVC process is running or was terminated abruptly."
    assert failure("train@rlvr", [lock], 255).may_pass
    said = ["judgefree: the lane is busy, it is being blocked by rows", REFUSED[-1].format(status=2)]
    assert not failure("train@rlvr", said, 255).may_pass


def test_a_command_without_dvc() -> None:
    error = failure("sync", ["judgefree: this folder was moved", "  fix: run `judgefree doctor --fix`"], 2)
    assert str(error).endswith("judgefree: this folder was moved\n  fix: run `judgefree doctor --fix`")
    assert not error.may_pass


@pytest.mark.parametrize(
    ("stage", "kind"),
    [("resolve", "prepare"), ("base@tiny", "prepare"), ("prepare@arithmetic", "prepare"), ("train@rlvr", "train"),
     ("reward_model@save", "train"), ("pin", "evaluate"), ("evaluate_base@tiny", "evaluate"), ("compare", "evaluate")],
)  # fmt: skip
def test_kinds(stage: str, kind: str) -> None:
    assert kind_of(stage) == kind


@pytest.mark.pipeline
def test_order_is_the_graphs(project: Callable[..., Path]) -> None:
    root = project(a="", b="", c="", compare="")
    graph = (root / "dvc.yaml").read_text()
    for stage, needs in (("a", "c"), ("c", "b")):
        graph = graph.replace(f"deps: [{stage}.py]", f"deps: [{stage}.py, {needs}.out]")
    (root / "dvc.yaml").write_text(graph)
    assert stages(root, "train") == ["b", "c", "a"] and stages(root, "evaluate") == ["compare"]
    (root / "dvc.yaml").write_text(graph.replace("deps: [b.py]", "deps: [b.py, a.out]"))
    with pytest.raises(JudgefreeError, match="mend dvc.yaml"):
        stages(root, "train")
