"""How a long run shows that it lives: a bar on a terminal, a line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Steps done, reward or loss, tokens per second and time left. `tokens` tells how many were sampled so far."""

    def __init__(self, title: str, tokens: Callable[[], int]) -> None:
        self.title = title
        self.tokens = tokens
        self.bar: Bar | None = None
        self.task: Any = None
        self.began = self.last_line = 0.0
        self.first = self.steps = 0

    def start(self, step: int, steps: int) -> None:
        self.began = self.last_line = time.monotonic()
        self.first, self.steps = step, steps
        console = Console(stderr=True)
        if console.is_terminal:
            self.bar = Bar(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                TextColumn("{task.fields[facts]}"), console=console,
            )  # fmt: skip
            self.bar.start()
            self.task = self.bar.add_task(self.title, total=steps, completed=step, facts="")

    def update(self, step: int, row: dict[str, float]) -> None:
        now = time.monotonic()
        facts = " ".join(f"{name} {row[name]:.3f}" for name in ("reward", "loss") if name in row)
        if self.tokens():
            facts += f" {self.tokens() / max(now - self.began, 1e-9):.0f} tokens/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, facts=facts)
        elif now - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = now
            left = (now - self.began) / max(step - self.first, 1) * (self.steps - step)
            print(f"{self.title}: step {step}/{self.steps} {facts}, {left:.0f} s left", file=sys.stderr, flush=True)

    def stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
