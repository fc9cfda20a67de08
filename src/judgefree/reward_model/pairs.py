"""Preference pairs: a prompt, the response that was preferred and the one that was not, as a parquet file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from judgefree.episodes import stream_seed
from judgefree.errors import JudgefreeError

PAIRS = "pairs.parquet"
_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema([
    ("id", pa.string()), ("split", pa.string()), ("prompt", pa.list_(_MESSAGE)), ("chosen", pa.string()),
    ("rejected", pa.string()),
])  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """prompt: messages up to the user's last one."""

    id: str
    prompt: list[dict[str, str]]
    chosen: str
    rejected: str

    def conversations(self) -> list[list[dict[str, str]]]:
        """The chosen one, then the rejected one."""
        return [[*self.prompt, {"role": "assistant", "content": text}] for text in (self.chosen, self.rejected)]


def load_pairs(path: Path, split: str = "train") -> list[Pair]:
    """The pairs of a split. Raises JudgefreeError when the file is missing or holds none."""
    if not path.is_file():
        raise JudgefreeError(f"{path} is missing: there are no preference pairs to learn from",
                             "use a reward model that was trained on pairs, or a data set that has them")  # fmt: skip
    rows = pq.read_table(path).to_pylist()
    pairs = [Pair(row["id"], row["prompt"], row["chosen"], row["rejected"]) for row in rows if row["split"] == split]
    if not pairs:
        raise JudgefreeError(f"{path} holds no pair of split {split}", "use another data set")
    return pairs


def pairs_at(pairs: Sequence[Pair], step: int, count: int, seed: int) -> list[Pair]:
    """The `count` pairs of a step: pass after pass over all of them, each pass in an order of its own."""
    places = np.arange(step * count, (step + 1) * count)
    orders = {
        turn: np.random.default_rng(stream_seed(seed, "pairs", turn)).permutation(len(pairs))
        for turn in sorted({int(place) // len(pairs) for place in places})
    }
    return [pairs[int(orders[int(place) // len(pairs)][place % len(pairs)])] for place in places]
