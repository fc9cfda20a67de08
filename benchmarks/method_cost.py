"""What a method costs beside another: seconds a rollout by part, on the same weights, in one process.

    python benchmarks/method_cost.py PROJECT RUN [RUN ...] [--rollouts N] [--threads N] [--account]

PROJECT is a folder with resolved settings, data and start models, such as `.work/reproduce` after `make reproduce` or a
profile's folder after `dvc repro`; nothing in it is changed. Every run plays and learns N rollouts with its own settings but
a learning rate that moves no weight, so each has the same work every time. Runs take turns, rollout by rollout.

Parts: sampling; scoring (old and reference log-probs, self-certainty); the method's own part (everything else in
`Method.play`: prompts, grading, memory, advantages, records); update (batches, forward, backward, optimizer). Figures are
medians without each run's first rollout; the ratio is to the first run named.

--account adds what each run needs in a process of its own, for two rollouts: floating-point operations of the second one
(PyTorch's counter: matrix products and attention), the bytes of all tensors that are held between rollouts (weights and
optimizer moments; gradients are not), and the peak of the process's memory.
"""

import argparse
import gc
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback

from judgefree import methods
from judgefree.data.splits import load_split
from judgefree.scoring.grader import Grader
from judgefree.training.arguments import episode_arguments
from judgefree.training.engines import make_engine
from judgefree.training.run import Job, load_policy, read_job
from judgefree.training.trainer import EpisodeTrainer

UNMOVED = 1e-12  # learning rate
PARTS = ("sampling", "scoring", "own", "update")


class Clock:
    """Seconds spent below each name since the last `take`; what runs inside another name counts for itself only."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.inner = [0.0]

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.inner.append(0.0)
            start = time.perf_counter()
            result = function(*args, **kwargs)
            seconds = time.perf_counter() - start
            self.spent[name] = self.spent.get(name, 0.0) + seconds - self.inner.pop()
            self.inner[-1] += seconds
            return result

        return call

    def take(self) -> dict[str, float]:
        taken, self.spent = self.spent, {}
        return taken


class Stopwatch(TrainerCallback):
    """Seconds of all optimizer steps, without the loop around them, which begins anew for every rollout here."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begun = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds += time.perf_counter() - self.begun


class Course:
    """One run's trainer, and what each rollout so far has cost."""

    def __init__(self, job: Job, grader: Grader, folder: Path) -> None:
        self.job, self.clock, self.watch = job, Clock(), Stopwatch()
        self.rows: list[int] = []
        self.rollouts: list[dict[str, float]] = []
        training = job.training.model_copy(
            update={"learning_rate": UNMOVED, "schedule": "constant", "warmup_share": 0.0, "weight_decay": 0.0,
                    "steps": job.training.updates_per_rollout, "save_every": job.training.updates_per_rollout}
        )  # fmt: skip
        setting = methods.Setting(
            training, job.prompt, grader, job.run.seed, texts=job.texts, root=job.root, models=job.models
        )
        method = methods.METHODS[job.run.method](methods.options_of(job.name, job.run), setting)
        method.play = self.clock.timed("own", method.play)  # type: ignore[method-assign]
        args = episode_arguments(training, folder / job.name, job.run.seed)
        args.save_strategy = "no"
        tokenizer = AutoTokenizer.from_pretrained(job.start, local_files_only=True, padding_side="left")
        self.trainer = EpisodeTrainer(
            load_policy(job.start, training), method=method, examples=load_split(job.data, "train"), training=training,
            prompt=job.prompt, seed=job.run.seed, make_engine=make_engine, on_rollout=self._count, args=args,
            tokenizer=tokenizer, callbacks=[self.watch],
        )  # fmt: skip
        self.trainer.remove_callback(PrinterCallback)
        policy = self.trainer.policy
        policy.engine = self.clock.timed("sampling", policy.engine)
        self.trainer._score = self.clock.timed("scoring", self.trainer._score)  # type: ignore[method-assign]

    def _count(self, step: int, rollout: Any) -> None:
        self.rows.append(sum(not turn.dead or self.job.training.loss.kl_weight > 0 for turn in rollout.turns))

    def play(self) -> None:
        """One rollout and its updates."""
        self.watch.seconds = 0.0
        self.trainer.train()
        total, spent = self.watch.seconds, self.clock.take()
        self.rollouts.append({**spent, "update": total - sum(spent.values()), "whole": total})

    def median(self, part: str) -> float:
        return statistics.median(rollout.get(part, 0.0) for rollout in self.rollouts[1:])


@dataclass(frozen=True)
class Account:
    """flops: of one rollout and its updates; held: bytes of tensors between rollouts; peak: bytes of the process."""

    flops: int
    held: int
    peak: int


def account(project: Path, name: str, threads: int) -> Account:
    """Of one run, in this process, which must not have done anything else."""
    torch.set_num_threads(threads)
    job = read_job(name, project)
    with tempfile.TemporaryDirectory() as folder, Grader(job.grading["workers"], job.grading["timeout_s"]) as grader:
        course = Course(job, grader, Path(folder))
        course.play()
        with FlopCounterMode(display=False) as counter:
            course.play()
        gc.collect()
        tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
        storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return Account(counter.get_total_flops(), sum(storages.values()), peak_memory())


def peak_memory() -> int:
    """Bytes, of this process alone: `ru_maxrss` of one that was spawned begins at its parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    assert found, "Linux tells it"
    return int(found[1]) * 1024


def accounts(project: Path, names: list[str], threads: int) -> list[Account]:
    """One process after the other."""
    found = []
    for name in names:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            found.append(pool.submit(account, project, name, threads).result())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--rollouts", type=int, default=8, help="of each run, the first not counted (default: 8)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--account", action="store_true", help="also operations, bytes held and peak memory of each run"
    )
    options = parser.parse_args()
    if options.rollouts < 2:
        parser.error("--rollouts: the first is not counted, so 2 or more")
    torch.set_num_threads(options.threads)
    jobs = [read_job(name, options.project) for name in options.runs]
    grading = jobs[0].grading
    with tempfile.TemporaryDirectory() as folder, Grader(grading["workers"], grading["timeout_s"]) as grader:
        courses = [Course(job, grader, Path(folder)) for job in jobs]
        for _ in range(options.rollouts):
            for course in courses:
                course.play()
    for course in courses:
        parts = ", ".join(f"{part} {1000 * course.median(part):.0f}" for part in PARTS)
        share = course.median("own") / course.median("whole")
        ratio = course.median("whole") / courses[0].median("whole")
        rows = statistics.median(course.rows[1:])
        print(f"{course.job.name}: {1000 * course.median('whole'):.0f} ms a rollout ({parts}); {rows:g} rows with a "
              f"gradient, {course.job.training.updates_per_rollout} updates; own part {share:.1%}; "
              f"{ratio:.2f} times {courses[0].job.name}")  # fmt: skip
    if options.account:
        del courses
        counted = accounts(options.project, options.runs, options.threads)
        for name, one in zip(options.runs, counted, strict=True):
            first = counted[0]
            print(f"{name}: {one.flops / 1e12:.3f} TFLOP a rollout ({one.flops / first.flops:.2f} times), "
                  f"{one.held / 2**30:.2f} GiB held between rollouts ({one.held / first.held:.2f} times), "
                  f"peak {one.peak / 2**30:.2f} GiB ({one.peak / first.peak:.2f} times)")  # fmt: skip


if __name__ == "__main__":
    main()
