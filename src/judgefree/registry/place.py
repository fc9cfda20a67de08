"""Where MLflow's store lies, who may write to it, and what mends it after its folder was moved or copied.

Its absolute paths stand in five columns of the database and in the MLmodel file of every logged model. Nothing here
imports MLflow.
"""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

from filelock import FileLock, Timeout

from judgefree.errors import JudgefreeError

EXPERIMENT = "judgefree"
LOCK_SECONDS = 600.0  # a registration copies the weights while it holds its task's lock
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def database(root: Path) -> Path:
    return root / "mlruns" / "mlflow.db"


def artifacts_uri(root: Path) -> str:
    return (root.resolve() / "mlruns" / "artifacts").as_uri()


def local_path(uri: str) -> Path:
    """The folder that an artifact address of this store names."""
    return Path(url2pathname(urlparse(uri).path))


@contextmanager
def locked(root: Path, name: str) -> Iterator[None]:
    """Hold `mlruns/.<name>.lock`. Raises JudgefreeError when another process keeps it for LOCK_SECONDS."""
    path = root / "mlruns" / f".{name}.lock"
    lock = FileLock(path, timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout as error:
        raise JudgefreeError(
            f"another judgefree command has held {path} for {LOCK_SECONDS:.0f} seconds",
            "wait until it ends; the lock goes with its process",
        ) from error
    try:
        yield
    finally:
        lock.release()


def moved_from(root: Path) -> str | None:
    """The artifact folder that the database names, as a URI, where that is not the one beside it; None where all is
    well or nothing was logged yet. Raises sqlite3.DatabaseError for a file that is no database."""
    if not database(root).is_file():
        return None
    with closing(sqlite3.connect(f"{database(root).resolve().as_uri()}?mode=ro", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'experiments'").fetchone():
            return None
        row = connection.execute("SELECT artifact_location FROM experiments WHERE name = ?", (EXPERIMENT,)).fetchone()
    return row[0] if row and row[0] != artifacts_uri(root) else None


def repair(root: Path) -> int:
    """Write the present place into the store; returns how many values and files changed. The database as it was is kept
    as mlflow.db.bak. To be called under the store's lock, with no server running on the store."""
    if (old := moved_from(root)) is None:
        return 0
    shutil.copy2(database(root), database(root).with_suffix(".db.bak"))
    old_root, new_root = old.removesuffix("/mlruns/artifacts"), artifacts_uri(root).removesuffix("/mlruns/artifacts")
    changed = 0
    for file in (root / "mlruns" / "artifacts" / "models").glob("*/artifacts/MLmodel"):
        text = file.read_text(encoding="utf-8")
        fresh = re.sub(re.escape(old_root) + "(?=/)", lambda _: new_root, text)
        if fresh != text:
            file.write_text(fresh, encoding="utf-8")
            changed += 1
    # Plain paths, too: MLflow names its own Default experiment by one.
    prefixes = [(old_root, new_root), (str(local_path(old_root)), str(local_path(new_root)))]
    with closing(sqlite3.connect(database(root))) as connection, connection:  # one transaction, the last thing done
        for table, column in COLUMNS:
            for before, after in prefixes:
                done = connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                    (after, len(before) + 1, len(before) + 1, f"{before}/"),
                )
                changed += done.rowcount
    return changed
