"""Whether the file of an open SQLite database is still at its place.

SQLite goes on with a file that was removed or replaced: every commit succeeds and is gone with the process. Decides by
the numbers that the file system has for the file and its write-ahead log, which costs microseconds, so that it is asked
with every commit. Must not know any table.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from windfall.store.errors import StoreReplaced

_WRITE_AHEAD = "-wal"


class FilePlace:
    """One file that is open, and its write-ahead log."""

    def __init__(self, path: Path, is_ours: Callable[[], bool]) -> None:
        """`is_ours` reads the file anew and tells whether it holds what was opened."""
        self._path = path
        self._is_ours = is_ours
        self._log_path = path.with_name(f"{path.name}{_WRITE_AHEAD}")
        self._file = self._look()
        self._log = self._look_at_log()

    def verify(self) -> None:
        """Raise StoreReplaced unless the file is the one that was opened."""
        before = self._file
        self.on_written()
        # This process writes only before it calls `on_written`: somebody else has, and may have put anything there.
        if _age(self._file) != _age(before) and not self._still_ours():
            self._file = before
            raise self._replaced("was written over with something else")

    def on_written(self) -> None:
        """Hear that this process has committed, which may have moved the log into the file."""
        file, log = self._look(), self._look_at_log()
        if _number(file) != _number(self._file):
            raise self._replaced("was replaced by another file")
        # The log comes with the first commit, and from then on only its content changes.
        if self._log is not None and log != self._log:
            raise self._replaced(f"lost its write-ahead log {self._log_path}, which has the latest commits,")
        self._file, self._log = file, log

    def on_reopened(self) -> None:
        """Hear that this process has opened the file anew: SQLite may have begun another log."""
        self._log = None

    def _look(self) -> os.stat_result:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            raise self._replaced("was removed") from None
        except OSError as error:
            raise self._replaced(f"cannot be reached any more ({error.strerror})") from None
        if status.st_size == 0:
            raise self._replaced("was emptied")
        return status

    def _look_at_log(self) -> tuple[int, int] | None:
        try:
            return _number(self._log_path.stat())
        except OSError:
            return None

    def _still_ours(self) -> bool:
        try:
            return self._is_ours()
        except sqlite3.Error:
            return False

    def _replaced(self, what: str) -> StoreReplaced:
        return StoreReplaced(f"the store {self._path} {what} while it was in use")


def _number(found: os.stat_result) -> tuple[int, int]:
    """What tells the file from all others of this machine."""
    return found.st_dev, found.st_ino


def _age(found: os.stat_result) -> tuple[int, int]:
    return found.st_mtime_ns, found.st_size
