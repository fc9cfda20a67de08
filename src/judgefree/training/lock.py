"""One trainer at a time in a run's work folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from judgefree.errors import MayPass


@contextmanager
def alone_in(work: Path) -> Iterator[None]:
    """Hold `<work>.lock`, an OS lock that ends with its process. Raises MayPass when another process holds it.

    The file stays: removing it would let two processes hold a lock of the same name.
    """
    path = work.with_name(f"{work.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = file.read() or "unknown"
            raise MayPass(
                f"process {owner} trains in {work} already",
                f"wait until it has ended, or stop it (`kill {owner}`: it saves first), then repeat",
            ) from error
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
