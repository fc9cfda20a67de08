"""Answers of endpoints that were paid for, on disk: a key names the whole request, and no failure is ever kept."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from judgefree.errors import JudgefreeError

_WAIT_S = 60  # for another process that writes


@dataclass(frozen=True)
class Answer:
    """A reply that holds a verdict or a score, and the tokens that it took, those of unreadable ones before it included."""

    text: str
    prompt_tokens: int
    completion_tokens: int


class Answers:
    """A SQLite file that several processes may use at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, key: str) -> Answer | None:
        with self._open() as connection:
            row = connection.execute("SELECT text, read, written FROM answers WHERE key = ?", (key,)).fetchone()
        return Answer(*row) if row else None

    def keep(self, key: str, answer: Answer) -> None:
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (key, *astuple(answer)))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A transaction. Raises JudgefreeError where the file cannot be used."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_WAIT_S)
            try:
                with connection:
                    connection.execute(
                        "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, text TEXT, read INT, written INT)"
                    )
                    yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise JudgefreeError(
                f"{self.path}, where judges' answers are kept, cannot be used: {error}",
                "free disk space; if the file is damaged, remove it: what it held is asked, and paid for, again",
            ) from error
