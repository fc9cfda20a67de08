"""Completions for people to read: parquet files beside the checkpoints while a run goes, canonical ones at its end."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


class Records:
    """Collects the records of rollouts; `flush` writes those since the last checkpoint.

    A file is named by its last step; those past the checkpoint from which a run goes on are removed by `cut`, since the
    same rollouts will be made again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pending: list[dict[str, Any]] = []

    def add(self, step: int, rows: list[dict[str, Any]]) -> None:
        self.pending.extend({"step": step, **row} for row in rows)

    def flush(self, step: int) -> None:
        if self.pending:
            self.folder.mkdir(parents=True, exist_ok=True)
            target = self.folder / f"until-{step:07d}.parquet"
            temporary = target.with_suffix(".tmp")
            pq.write_table(pa.Table.from_pylist(self.pending), temporary)
            temporary.replace(target)
            self.pending = []

    def cut(self, step: int) -> None:
        self.pending = []
        for file in self.folder.glob("until-*.parquet"):
            if int(file.stem.removeprefix("until-")) > step:
                file.unlink()

    def publish(self, target: Path, every: int) -> None:
        """Write all records in order of step, one file per `every` steps, whatever the checkpoints were."""
        files = sorted(self.folder.glob("until-*.parquet"))
        if not files:
            return
        target.mkdir(parents=True)
        table = pa.concat_tables([pq.read_table(file) for file in files], promote_options="default")
        steps = table.column("step").to_pylist()
        for start in range(0, max(steps) + 1, every):
            rows = [i for i, step in enumerate(steps) if start <= step < start + every]
            if rows:
                pq.write_table(table.take(rows).combine_chunks(), target / f"steps-{start:07d}.parquet")
