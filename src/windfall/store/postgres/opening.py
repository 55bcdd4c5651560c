"""Opens the shared store and applies its migrations, one transaction each."""

from __future__ import annotations

from collections.abc import Sequence

from windfall.store.coordination import Coordination
from windfall.store.errors import OtherStore
from windfall.store.migrations import APPLIED, NOTE, RECORD, Migration, migrations_in, pending
from windfall.store.postgres.database import Connection, PostgresDatabase, in_dialect
from windfall.store.postgres.inbox import PostgresInbox
from windfall.store.postgres.leadership import PostgresLeadership
from windfall.store.postgres.shared_values import PostgresSharedValues
from windfall.store.sql_store import SqlStore

#: Daemons that start at the same time migrate one after the other; the number is arbitrary, but ours.
_LOCK = 0x77696E6466616C6C


def open_postgres(
    url: str, migrations: Sequence[Migration] | None = None, *, expected: str | None = None
) -> SqlStore:
    """The store in a database, whose tables are made if they are not there and nobody expects a certain store."""
    database = PostgresDatabase(url)
    steps = migrations_in("windfall.store.postgres") if migrations is None else migrations
    identity = ""

    def bring_up_to_date(connection: Connection) -> None:
        nonlocal identity
        if expected is not None and (actual := _identity(connection)) != expected:
            raise OtherStore(database.where, actual)
        _migrate(connection, steps, database.where)
        identity = _identity(connection) or ""

    try:
        database.migrate(bring_up_to_date)
    except BaseException:
        database.close()
        raise
    leadership, inbox = PostgresLeadership(database, identity), PostgresInbox(database)
    shared = PostgresSharedValues(database, identity)

    def close() -> None:
        leadership.close()
        inbox.close()
        shared.close()

    return SqlStore(database, identity, Coordination(leadership, inbox, shared, close))


def _identity(connection: Connection) -> str | None:
    """The name of the store; None where there is none."""
    if connection.execute("SELECT to_regclass('leadership')").fetchone() == (None,):
        return None
    row = connection.execute("SELECT identity FROM leadership").fetchone()
    return None if row is None else str(row[0])


def _migrate(connection: Connection, migrations: Sequence[Migration], where: str) -> None:
    """Apply what is missing; when nothing is, nothing is written and nobody is waited for."""
    if not pending(migrations, _applied(connection), where):
        return
    # The lock is taken before the transactions and not inside one: a transaction that had begun while another
    # daemon made the tables might still remember that there are none.
    connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        for migration in pending(migrations, _applied(connection), where):
            with connection.transaction():
                connection.execute(RECORD.encode())
                connection.execute(migration.sql.encode())
                connection.execute(in_dialect(NOTE).encode(), (migration.number, migration.name))
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _applied(connection: Connection) -> list[int]:
    if connection.execute("SELECT to_regclass('schema_migrations')").fetchone() == (None,):
        return []
    return [number for (number,) in connection.execute(APPLIED.encode())]
