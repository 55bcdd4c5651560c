"""SQLite as a Database: one writer used by one thread at a time, and readers that never wait for it.

WAL mode lets readers read beside the writer; synchronous=FULL makes a commit survive a power cut. SQLite goes on with a
file that was removed or replaced: every commit succeeds and is gone with the process. So the numbers that the file
system has for the file and its write-ahead log are compared with every commit, which costs microseconds. Must not know
any table.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from windfall.store.errors import CannotOpen, CommitFailed, ReadFailed, StoreReplaced
from windfall.store.readers import Readers
from windfall.store.tables import Row, Table

T = TypeVar("T")

#: How long to wait for another process that holds the file (a backup, a curious sqlite3 shell).
BUSY_TIMEOUT_S = 5.0
_LOCKED_AGAIN_S = 0.02


class SqliteSession:
    """One transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Carry out one statement and answer all its rows."""
        return self._connection.execute(sql, parameters).fetchall()

    def rows_among(
        self, sql: str, column: str, values: Sequence[Any], parameters: Sequence[Any] = ()
    ) -> list[Row]:
        """Carry out a statement about rows whose column has one of these values."""
        if not values:
            return []
        among = f"{column} IN (SELECT value FROM json_each(?))"  # noqa: S608 (a column of ours)
        return self.rows(sql.format(among=among), (msgspec.json.encode(values).decode(), *parameters))

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows, or change those that are there."""
        marks = ", ".join("?" * len(table.columns))
        # All names are the table's own.
        sql = f"INSERT INTO {table.name} ({table.named}) VALUES ({marks}) {table.on_conflict}"  # noqa: S608
        self._connection.executemany(sql, rows)

    def remove(self, table: Table, keys: Sequence[Row]) -> None:
        """Remove the rows with these keys."""
        where = " AND ".join(f"{column} = ?" for column in table.key)
        sql = f"DELETE FROM {table.name} WHERE {where}"  # noqa: S608 (names of our own columns)
        self._connection.executemany(sql, keys)


class SqliteDatabase:
    """One file."""

    def __init__(self, path: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.Lock()
        self._closed = False
        self._writer: sqlite3.Connection | None = self._connect_writer()
        self._readers = Readers(self._connect_reader)
        self._place: FilePlace | None = None

    @property
    def where(self) -> str:
        """Where it is, for messages."""
        return str(self.path)

    def recognise(self, is_ours: Callable[[sqlite3.Connection], bool]) -> None:
        """Hold on to the file that is open now; `is_ours` tells on a new connection whether it has this store."""

        def asked() -> bool:
            connection = self._connect_reader()
            try:
                return is_ours(connection)
            finally:
                connection.close()

        with self._lock:
            self._place = FilePlace(self.path, asked)

    def verify(self) -> None:
        """Raise StoreReplaced if the file is gone or another; never waits for a commit, which looks itself."""
        if self._lock.acquire(blocking=False):
            try:
                self._verify()
            finally:
                self._lock.release()

    def _verify(self) -> None:
        if self._place is not None and not self._closed:
            self._place.verify()

    def read(self, question: Callable[[SqliteSession], T]) -> T:
        """Ask in one snapshot."""
        try:
            with self._readers.borrowed() as connection:
                connection.execute("BEGIN")
                answer = question(SqliteSession(connection))
                connection.execute("COMMIT")
                return answer
        except (sqlite3.Error, OverflowError) as error:
            raise ReadFailed(f"{self.path} could not be read: {error}") from error

    def write(self, action: Callable[[SqliteSession], T]) -> T:
        """Change in one transaction; answers when it is on the disk."""
        with self._lock:
            try:
                self._verify()
                connection = self._open_writer()
                connection.execute("BEGIN IMMEDIATE")
                answer = action(SqliteSession(connection))
                connection.execute("COMMIT")
                # Looked at once more: what was committed into a file that is gone is not durable.
                if self._place is not None:
                    self._place.on_written()
            except (sqlite3.Error, OverflowError, CannotOpen) as error:
                self._undo()
                raise CommitFailed(_advice(self.path, error)) from error
            except BaseException:
                self._undo()
                raise
            return answer

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._readers.close()

    def migrate(self, steps: Callable[[sqlite3.Connection], None]) -> None:
        """Let migrations use the writer's connection, with transactions of their own."""
        with self._lock:
            try:
                steps(self._open_writer())
            except sqlite3.Error as error:
                self._undo()
                raise CannotOpen(f"{self.path} could not be brought up to date: {error}") from error
            except BaseException:
                self._undo()
                raise

    def _open_writer(self) -> sqlite3.Connection:
        if self._closed:
            raise CannotOpen("the store is closed")
        if self._writer is None:
            self._writer = self._connect_writer()
            if self._place is not None:
                self._place.on_reopened()
        return self._writer

    def _undo(self) -> None:
        """Roll back; a connection that cannot even do that is not used again."""
        if self._writer is None:
            return
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self._writer.close()
            self._writer = None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            # Never makes a file: where there is none any more, an empty one would hide that.
            f"file:{quote(str(self.path))}?mode=rw",
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        # Pages read once stay at hand: 16 MiB a connection.
        connection.execute("PRAGMA cache_size = -16384")
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _write_ahead(self, connection: sqlite3.Connection) -> str:
        """Switch to a write-ahead log and answer the mode that is now in force.

        SQLite does not wait for others in this one statement, so that several who open a new file at once meet here.
        """
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(_LOCKED_AGAIN_S)
            else:
                return str(mode)

    def _connect_writer(self) -> sqlite3.Connection:
        connection = None
        try:
            # Jobs' environments may hold secrets; the files that SQLite puts beside it get the same mode.
            self.path.touch(mode=0o600, exist_ok=True)
            connection = self._connect()
            mode = self._write_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            # Move the log into the file every 16 MiB rather than every 4: it stalls the commit that does it.
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
            connection.execute("PRAGMA journal_size_limit = 67108864")
        except (OSError, sqlite3.Error) as error:
            if connection is not None:
                connection.close()
            raise CannotOpen(
                f"{self.path} cannot be opened as a SQLite database: {error}. Its folder must exist and be "
                "writable, and the file must be none of another program"
            ) from error
        if mode != "wal":
            connection.close()
            raise CannotOpen(
                f"{self.path} is on a file system without shared memory (a network share?); use a local disk"
            )
        return connection


def _advice(path: Path, error: Exception) -> str:
    text = f"the round was not written to {path}: {error}; nothing of it was kept"
    if "full" in str(error):
        return f"{text}. Free some space on that disk"
    if "locked" in str(error):
        return f"{text}. End the other program that has the file locked"
    return text


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


def _number(status: os.stat_result) -> tuple[int, int]:
    """What tells the file from all others of this machine."""
    return status.st_dev, status.st_ino


def _age(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size
