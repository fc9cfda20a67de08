"""What a run measured, step by step: the rows of history.parquet, and which checkpoint the run hands on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VALIDATION = "validation/pass@1"
VALIDATION_TEXT = "validation/rouge_l"  # of a run whose task's answers are texts, in the place of the other
VALIDATIONS = (VALIDATION, VALIDATION_TEXT)
OWN_SIGNAL = "own_signal"  # at checkpoints: the mean of ROLLOUT_SIGNAL since the checkpoint before
ROLLOUT_SIGNAL = "own_signal/rollout"  # what a method without labels says of each rollout

# Trainer's and TRL's values that depend on the clock, repeat others, or count from the last resume (num_tokens): a history
# must be the same bytes on every machine, interrupted or not.
LEFT_OUT = (
    "step_time", "epoch", "runtime", "per_second", "total_flos", "train_loss", "num_input_tokens_seen", "num_tokens",
)  # fmt: skip


@dataclass
class History:
    """Rows by optimizer step. Row 0 is the policy the run starts from."""

    rows: dict[int, dict[str, float]] = field(default_factory=dict)

    def add(self, step: int, values: dict[str, float]) -> None:
        kept = {key: float(value) for key, value in values.items() if value is not None and not _left_out(key)}
        if kept:
            self.rows.setdefault(step, {}).update(kept)

    def best(self, metric: str) -> int | None:
        """The first step after 0 with the highest value of a metric; None where it was never measured."""
        measured = [(row[metric], -step) for step, row in self.rows.items() if step > 0 and metric in row]
        return -max(measured)[1] if measured else None

    def last(self, metric: str) -> float | None:
        values = [self.rows[step][metric] for step in sorted(self.rows) if metric in self.rows[step]]
        return values[-1] if values else None

    def mean_between(self, metric: str, after: int, until: int) -> float | None:
        """Mean of a metric over the steps in (after, until] that measured it."""
        values = [row[metric] for step, row in sorted(self.rows.items()) if after < step <= until and metric in row]
        return sum(values) / len(values) if values else None

    def to_text(self) -> str:
        return "".join(json.dumps({"step": step, **self.rows[step]}) + "\n" for step in sorted(self.rows))

    @classmethod
    def from_text(cls, text: str) -> "History":
        history = cls()
        for line in text.splitlines():
            row = json.loads(line)
            history.rows[int(row.pop("step"))] = row
        return history

    def save_parquet(self, path: Path) -> None:
        """One row per step, a column per metric in order of name, nulls where a step did not measure it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        steps = sorted(self.rows)
        names = sorted({name for row in self.rows.values() for name in row})
        columns = {"step": pa.array(steps, pa.int64())}
        columns |= {name: pa.array([self.rows[step].get(name) for step in steps], pa.float64()) for name in names}
        pq.write_table(pa.table(columns), path)


def signal_of(history: History, rule: str) -> str:
    """The metric by which a run's best checkpoint is known: validation where the rule says so, or where the method has no
    signal of its own."""
    own = any(OWN_SIGNAL in row for row in history.rows.values())
    return OWN_SIGNAL if own and rule != "validation" else validation_of(history.rows)


def validation_of(rows: Mapping[int, Mapping[str, float | None]]) -> str:
    """The metric that a run validates by, as its rows have it; pass@1 where nothing was measured."""
    return VALIDATION_TEXT if any(VALIDATION_TEXT in row for row in rows.values()) else VALIDATION


def selected_step(history: History, rule: str, last_step: int) -> int:
    """The step whose weights the run hands on: best validation, best own signal (first of equals), or the last."""
    metric = {"validation": validation_of(history.rows), "own_signal": OWN_SIGNAL}.get(rule)
    best = history.best(metric) if metric else None
    return last_step if best is None else best


def _left_out(key: str) -> bool:
    return any(part in key for part in LEFT_OUT)
