"""Verdicts on maths answers, in a pool of worker processes that can be killed.

Most rows never reach the pool: equal canonical keys are correct, two numbers (or other exact constants) with different
keys are wrong, and both are decided here, exactly. The rest goes to math-verify, which is built on sympy and may raise,
or run for ever on a short formula; so it runs in processes of its own, one row at a time, and a row that takes too long
has its process killed. Time is the process's CPU time, so that a busy machine changes no verdict and a resumed training
no reward; the clock on the wall is a second, wider limit. A row that raised or ran out of time has its own verdict; it
is never counted as a wrong answer.

math-verify is given both answers as LaTeX, gold first, and may not fall back to comparing texts where parsing fails.
"""

import atexit
import logging
import math
import os
import re
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Literal

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from judgefree.errors import JudgefreeError
from judgefree.processes import Spawn, die_with
from judgefree.scoring.answers import canonical_key, is_formula, is_settled

Verdict = Literal["correct", "wrong", "unparsed", "timeout", "error"]

# NaN: nothing is known, which is no reward and not a wrong answer
REWARD = {"correct": 1.0, "wrong": 0.0, "unparsed": 0.0, "timeout": math.nan, "error": math.nan}

_WORKER_MEMORY = 3 << 30  # bytes of address space; a power tower would take all there is
_WALL_FACTOR = 4  # a row's limit by the clock over its limit in CPU time

# Short formulas that sympy would expand into very long numbers: towers of digits, powers and factorials of large ones.
_COSTLY = re.compile(
    r"\^\s*[({]*\s*-?[0-9.]+\s*[)}]*\s*\^|\^\s*[({]*\s*[0-9]{5,}|[0-9]{5,}\s*[)}]*\s*!|![\s)}]*!|\^\s*[({]*\s*[0-9]+\s*!"
)


class Grader:
    """Grades answers with `workers` processes; one whose row takes longer than `timeout_s` seconds is killed.

    Use it as a context manager, from any thread. The processes (`workers` and a spare one) start with the first row
    that needs them, stay in the caller's process group, ignore its signals and die with the caller.
    """

    def __init__(self, workers: int, timeout_s: float) -> None:
        self._workers = workers
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pool: ProcessPool | None = None
        self._closed = threading.Event()

    def __enter__(self) -> "Grader":
        return self

    @property
    def workers(self) -> int:
        """Processes that work at a time, also for scoring of another kind beside the grader."""
        return self._workers

    def __exit__(self, *_: object) -> None:
        self.close()

    def grade(self, rows: Sequence[tuple[str, str | None]]) -> list[Verdict]:
        """One verdict per (gold, answer), in order.

        unparsed: no answer, or one that cannot be read. timeout: the comparison did not end in time, or certainly would
        not (a power tower). error: the grader failed, or the gold answer cannot be read. Raises JudgefreeError if no
        worker can be started.
        """
        pairs = [(gold, answer or "") for gold, answer in rows]
        verdicts = [settle(*pair) for pair in pairs]
        hard = list(dict.fromkeys(pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict is None))
        late = dict(zip(hard, self._run(_compare, hard), strict=True))
        return [verdict or late[pair] for pair, verdict in zip(pairs, verdicts, strict=True)]

    def parses(self, golds: Sequence[str]) -> list[bool]:
        """Whether each gold answer can be graded against: by its key alone, or in the pool for formulas beyond it."""
        keys = [canonical_key(gold) for gold in golds]
        hard = [gold for gold, key in zip(golds, keys, strict=True) if key and is_formula(key)]
        late = iter(self._run(_readable, [(gold,) for gold in hard]))
        return [key is not None and (not is_formula(key) or next(late) == "correct") for key in keys]

    def close(self) -> None:
        """End the processes. Grading afterwards is an error."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed.set()
            if self._pool is not None:
                self._pool.stop()
                self._pool.join()
                self._pool = None

    def _run(self, function: Callable[..., Verdict], rows: Sequence[tuple[str, ...]]) -> list[Verdict]:
        futures: list[ProcessFuture[Verdict]] = []
        if not rows:
            return []
        pool = self._started()
        for i, row in enumerate(rows):
            if i >= self._workers:
                wait(futures[i - self._workers : i - self._workers + 1])
            arguments = (function, self._timeout_s, *row)
            futures.append(pool.schedule(_limited, args=arguments, timeout=_WALL_FACTOR * self._timeout_s))
        return [_outcome(future) for future in futures]

    def _started(self) -> ProcessPool:
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("the grader is closed")
            if self._pool is None or not self._pool.active:
                # one more than work at a time: it takes the next row while a killed one is being replaced
                count = self._workers + 1
                pool = ProcessPool(count, initializer=_enter_worker, initargs=(os.getpid(),), context=Spawn())
                started = threading.Event()

                # Linux ends a child when the *thread* that made it ends, and grade may be called from a short-lived one
                def keep() -> None:
                    try:
                        pool.schedule(os.getpid)
                    finally:
                        started.set()
                    self._closed.wait()

                threading.Thread(target=keep, name="grader", daemon=True).start()
                started.wait()
                self._pool = pool
                atexit.register(self.close)
            return self._pool


def _outcome(future: ProcessFuture[Verdict]) -> Verdict:
    try:
        return future.result()
    except TimeoutError:
        return "timeout"
    except ProcessExpired as ended:
        return "timeout" if ended.exitcode == -signal.SIGPROF else "error"
    except BrokenProcessPool as error:
        raise JudgefreeError(
            f"the grading processes cannot run: {error}", "free memory or process slots, then repeat"
        ) from error


def settle(gold: str, answer: str) -> Verdict | None:
    """The verdict where exact keys decide it, None where math-verify has to. Pure and quick."""
    key = canonical_key(answer)
    if key is None:
        return "unparsed"
    gold_key = canonical_key(gold)
    if gold_key is None:
        return "error"
    if key == gold_key:
        return "correct"
    if is_settled(key) and is_settled(gold_key):
        return "wrong"
    if _COSTLY.search(gold) or _COSTLY.search(answer):
        return "timeout"
    return None


# ------------------------------------------------------------------------------------------ inside a worker process


def _enter_worker(parent: int) -> None:
    """Die with the parent but leave its signals to it, keep silent, bound the memory, and load sympy before a row's
    time runs."""
    die_with(parent)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    logging.disable(logging.CRITICAL)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_WORKER_MEMORY, hard))
    _compare(r"\cot x", r"\frac{\cos x}{\sin x}")


def _limited(function: Callable[..., Verdict], cpu_s: float, *row: str) -> Verdict:
    """The kernel ends this process, even in the middle of a long multiplication, when the row has used its CPU time."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        return function(*row)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _parse(answer: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    latex = "$" + answer.replace("\\$", "").replace("$", "") + "$"
    return parse(
        latex, [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None, raise_on_error=True
    )


def _compare(gold: str, answer: str) -> Verdict:
    from math_verify import verify

    try:
        if not (gold_parsed := _parse(gold)):
            return "error"
        if not (answer_parsed := _parse(answer)):
            return "unparsed"
        equal = verify(
            gold_parsed, answer_parsed, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True
        )
    except Exception:  # sympy and the parser raise whatever they meet; the verdict is what counts it
        return "error"
    return "correct" if equal else "wrong"


def _readable(gold: str) -> Verdict:
    try:
        return "correct" if _parse(gold) else "unparsed"
    except Exception:  # as above
        return "error"
