"""Opens the embedded store and applies its migrations, one transaction each."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from windfall.store.errors import CannotOpen, OtherStore
from windfall.store.migrations import APPLIED, NOTE, RECORD, Migration, migrations_in, pending
from windfall.store.sql_store import SqlStore
from windfall.store.sqlite.database import BUSY_TIMEOUT_S, SqliteDatabase

_IDENTITY = "SELECT identity FROM store_identity"


def open_sqlite(
    path: Path,
    migrations: Sequence[Migration] | None = None,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    *,
    expected: str | None = None,
) -> SqlStore:
    """The store in a file, which is made if it is not there and nobody expects a certain one."""
    # Absolute, so that no name is special to SQLite: it knows `:memory:` and the empty one.
    path = path.absolute()
    if expected is not None and not _has_content(path):
        raise OtherStore(str(path), None)
    database = SqliteDatabase(path, busy_timeout_s)
    steps = migrations_in("windfall.store.sqlite") if migrations is None else migrations
    identity = ""

    def bring_up_to_date(connection: sqlite3.Connection) -> None:
        nonlocal identity
        if expected is not None and (actual := _identity(connection)) != expected:
            raise OtherStore(str(path), actual)
        _migrate(connection, steps, str(path))
        identity = _identity(connection) or _name(connection)
        # From the log into the file itself: what is at that place can then be recognised (SqliteDatabase.verify).
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    try:
        database.migrate(bring_up_to_date)
        database.recognise(lambda connection: _identity(connection) == identity)
    except BaseException:
        database.close()
        raise
    return SqlStore(database, identity)


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CannotOpen(f"{path} cannot be opened as a SQLite database: {error.strerror}") from error


def _identity(connection: sqlite3.Connection) -> str | None:
    """The name of the store; None where there is none, or one of a Windfall that gave no names."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'store_identity'").fetchone():
        return None
    row = connection.execute(_IDENTITY).fetchone()
    return None if row is None else str(row[0])


def _name(connection: sqlite3.Connection) -> str:
    """Name a store that has no name yet. Not a migration: an earlier Windfall can go on with the file."""
    connection.execute("BEGIN IMMEDIATE")
    identity = _identity(connection)
    if identity is None:
        identity = uuid.uuid4().hex
        connection.execute("CREATE TABLE IF NOT EXISTS store_identity (identity TEXT NOT NULL)")
        connection.execute("INSERT INTO store_identity (identity) VALUES (?)", (identity,))
    connection.execute("COMMIT")
    return identity


def _migrate(connection: sqlite3.Connection, migrations: Sequence[Migration], where: str) -> None:
    """Apply what is missing; when nothing is, nothing is written and no lock is taken."""
    while pending(migrations, _applied(connection, where), where):
        connection.execute("BEGIN IMMEDIATE")
        # Looked up again under the lock: another process may have done it meanwhile.
        missing = pending(migrations, _applied(connection, where), where)
        if missing:
            connection.execute(RECORD)
            for statement in statements(missing[0].sql):
                connection.execute(statement)
            connection.execute(NOTE, (missing[0].number, missing[0].name))
        connection.execute("COMMIT")


def _applied(connection: sqlite3.Connection, where: str) -> list[int]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "schema_migrations" in tables:
        return [number for (number,) in connection.execute(APPLIED)]
    if tables:
        raise CannotOpen(f"{where} is the database of another program; give another file")
    return []


def statements(sql: str) -> Iterator[str]:
    """The statements of a script. SQLite's own way to run a script would commit what came before it."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
