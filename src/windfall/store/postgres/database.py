"""PostgreSQL as a Database: one writer connection, a few readers, and new ones when the server dropped them.

Must not know any table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from windfall.store.errors import CannotOpen, CommitFailed, ReadFailed
from windfall.store.readers import Readers
from windfall.store.tables import Row, Table

T = TypeVar("T")
Connection = psycopg.Connection[Row]

#: What the URL may say otherwise: a server that is cut off, rather than down, must be noticed within seconds.
_CONNECTING = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
#: What the URL cannot change: everything that is stored is UTF-8, whatever the locale of the server or of this process.
_ENCODING = {"client_encoding": "UTF8"}
#: The encodings of a database that keep every character. SQL_ASCII stores bytes as they come.
_WHOLE_ENCODINGS = ("UTF8", "SQL_ASCII")
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
#: Whatever the server's default is, an acknowledged round survives a power cut; stricter settings stay.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)


def in_dialect(sql: str) -> str:
    """The store's `?` as psycopg's `%s`; no statement of ours has either sign in another sense."""
    return sql.replace("?", "%s")


class PostgresSession:
    """One transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Carry out one statement and answer all its rows."""
        cursor = self._connection.execute(in_dialect(sql).encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def rows_among(
        self, sql: str, column: str, values: Sequence[Any], parameters: Sequence[Any] = ()
    ) -> list[Row]:
        """Carry out a statement about rows whose column has one of these values."""
        if not values:
            return []
        kind = "bigint" if isinstance(values[0], int) else "text"
        return self.rows(sql.format(among=f"{column} = ANY (?::{kind}[])"), (list(values), *parameters))

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows, or change those that are there, in one statement.

        They travel as one JSON text: four times as fast as an array a column, each value adapted alone.
        """
        shape = ", ".join(f"{column} {kind}" for column, kind in table.columns.items())
        self.rows(
            f"INSERT INTO {table.name} ({table.named}) "  # noqa: S608 (names of our own columns)
            f"SELECT {table.named} FROM json_to_recordset(?::json) AS given ({shape}) {table.on_conflict}",
            (msgspec.json.encode([dict(zip(table.columns, row, strict=True)) for row in rows]).decode(),),
        )

    def remove(self, table: Table, keys: Sequence[Row]) -> None:
        """Remove the rows with these keys."""
        where = " AND ".join(f"{column} = ?" for column in table.key)
        with self._connection.cursor() as cursor:
            sql = f"DELETE FROM {table.name} WHERE {where}"  # noqa: S608 (names of our own columns)
            cursor.executemany(in_dialect(sql).encode(), keys)


class WriteGuard(Protocol):
    """Who may write, where several could."""

    def prepare(self, connection: Connection) -> None:
        """Make a new connection into the writer's."""

    def check(self, session: PostgresSession) -> None:
        """Raise Superseded, in the transaction that is about to write, unless this daemon may."""

    def settled(self) -> None:
        """Hear that the transaction was acknowledged."""


class PostgresDatabase:
    """One database on a server."""

    def __init__(self, url: str) -> None:
        try:
            settings = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise CannotOpen(f"the PostgreSQL URL cannot be read: {error}") from error
        self._conninfo = make_conninfo("", **{**_CONNECTING, **settings, **_ENCODING})
        #: For messages; without the password.
        self.where = (
            f"PostgreSQL database {settings.get('dbname', '')} on {settings.get('host', 'the local socket')}"
        )
        self._lock = threading.Lock()
        self._closed = False
        self._guard: WriteGuard | None = None
        self._writer: Connection | None = self.connect()
        self._readers = Readers(self.connect)

    def set_guard(self, guard: WriteGuard) -> None:
        """Let this one be asked before every write from now on."""
        with self._lock:
            self._guard = guard
            self._drop()

    def read(self, question: Callable[[PostgresSession], T]) -> T:
        """Ask in one snapshot; once more on a new connection when the old one turns out to be broken."""
        try:
            return self._read(question)
        except psycopg.OperationalError:
            self._readers.forget()
        except psycopg.Error as error:
            raise ReadFailed(f"{self.where} could not be read: {error}") from error
        try:
            return self._read(question)
        except psycopg.Error as error:
            raise ReadFailed(f"{self.where} could not be read: {error}") from error

    def write(self, action: Callable[[PostgresSession], T]) -> T:
        """Change in one transaction; answers when the server has it on its disk."""
        with self._lock:
            try:
                connection = self._begun()
                session = PostgresSession(connection)
                if self._guard is not None:
                    self._guard.check(session)
                answer = action(session)
                connection.execute("COMMIT")
                if self._guard is not None:
                    self._guard.settled()
            except (psycopg.Error, CannotOpen) as error:
                self._undo()
                raise CommitFailed(f"the round was not acknowledged by {self.where}: {error}") from error
            except BaseException:
                self._undo()
                raise
            return answer

    def verify(self) -> None:
        """Nothing to do: a server that has another store is met by the lease (leadership.py)."""

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            self._closed = True
            self._drop()
        self._readers.close()

    def migrate(self, steps: Callable[[Connection], None]) -> None:
        """Let migrations use the writer's connection, with transactions of their own."""
        with self._lock:
            assert self._writer is not None
            try:
                steps(self._writer)
            except psycopg.Error as error:
                raise CannotOpen(f"{self.where} could not be brought up to date: {error}") from error

    def _read(self, question: Callable[[PostgresSession], T]) -> T:
        with self._readers.borrowed() as connection:
            connection.execute(_BEGIN_READING)
            answer = question(PostgresSession(connection))
            connection.execute("COMMIT")
            return answer

    def _begun(self) -> Connection:
        """A connection with a transaction begun; a new one when the server dropped the idle old one."""
        if self._closed:
            raise CannotOpen("the store is closed")
        if self._writer is not None:
            try:
                self._writer.execute("BEGIN")
                return self._writer
            except psycopg.OperationalError:
                self._drop()
        self._writer = self.connect()
        if self._guard is not None:
            self._guard.prepare(self._writer)
        self._writer.execute("BEGIN")
        return self._writer

    def _undo(self) -> None:
        """Roll back; a connection that cannot even do that is not used again."""
        if self._writer is None:
            return
        try:
            self._writer.rollback()
        except psycopg.Error:
            self._drop()

    def _drop(self) -> None:
        if self._writer is not None:
            with suppress(psycopg.Error):
                self._writer.close()
            self._writer = None

    def connect(self) -> Connection:
        """A new connection; CannotOpen says why there is none."""
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True)
            connection.execute(_DURABLE)
        except psycopg.Error as error:
            raise CannotOpen(
                f"{self.where} does not answer: {error}. Is the server up, and the URL right?"
            ) from error
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in _WHOLE_ENCODINGS:
            connection.close()
            raise CannotOpen(
                f"{self.where} has the encoding {encoding}, which cannot hold every character; create the database"
                " with `createdb --encoding UTF8 --template template0 NAME`"
            )
        return connection
