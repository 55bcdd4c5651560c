"""Opens the embedded store and applies its migrations, one transaction each."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from windfall.store.errors import CannotOpen
from windfall.store.migrations import APPLIED, NOTE, RECORD, Migration, migrations_in, pending
from windfall.store.sql_store import SqlStore
from windfall.store.sqlite.database import BUSY_TIMEOUT_S, SqliteDatabase


def open_sqlite(
    path: Path, migrations: Sequence[Migration] | None = None, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> SqlStore:
    """The store in a file, which is made if it is not there."""
    # Absolute, so that no name is special to SQLite: it knows `:memory:` and the empty one.
    database = SqliteDatabase(path.absolute(), busy_timeout_s)
    known = migrations_in("windfall.store.sqlite") if migrations is None else migrations
    try:
        database.migrate(lambda connection: _migrate(connection, known, str(database.path)))
    except BaseException:
        database.close()
        raise
    return SqlStore(database)


def _migrate(connection: sqlite3.Connection, known: Sequence[Migration], where: str) -> None:
    """Apply what is missing; when nothing is, nothing is written and no lock is taken."""
    while pending(known, _applied(connection, where), where):
        connection.execute("BEGIN IMMEDIATE")
        # Looked up again under the lock: another process may have done it meanwhile.
        missing = pending(known, _applied(connection, where), where)
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
