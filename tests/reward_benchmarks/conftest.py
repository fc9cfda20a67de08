"""Files in the layouts of the hub."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reward_sets import FILES, Rows

from judgefree.config_rewards import Place


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    """Writes a set's rows in the hub's layout, the whole fixture or those given, and says where."""
    monkeypatch.delenv("JUDGEFREE_MIRROR", raising=False)

    def written(name: str, rows: Rows | None = None) -> Place:
        file, whole = FILES[name]
        path = tmp_path / "sets" / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(whole if rows is None else rows), path)
        else:
            path.write_text(json.dumps(whole if rows is None else rows))
        return Place(id=f"./sets/{name}")

    return written
