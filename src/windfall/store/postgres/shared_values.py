"""Values that all daemons of a store share, as rows of one table. Must not know what they mean."""

from __future__ import annotations

from collections.abc import Sequence

from windfall.store.coordination import SharedValue
from windfall.store.errors import StoreReplaced
from windfall.store.postgres.database import Connection, PostgresDatabase
from windfall.store.postgres.dedicated_connection import DedicatedConnection

_PATIENCE_S = 10.0
_REPLACED = "the database now holds another store than the one that was opened"

#: Each writes only into the store that was opened: its place may have got another one, whose keys are none of ours.
_PUT = """
INSERT INTO shared_values AS it (name, value, version, set_at)
SELECT %s, %s, 1, %s FROM leadership WHERE identity = %s
ON CONFLICT (name) DO UPDATE SET value = excluded.value, version = it.version + 1, set_at = excluded.set_at
RETURNING 1
"""
_PUT_FIRST = """
INSERT INTO shared_values (name, value, version, set_at)
SELECT %s, %s, 1, %s FROM leadership WHERE identity = %s
ON CONFLICT DO NOTHING RETURNING 1
"""
_PUT_AFTER = """
UPDATE shared_values SET value = %s, version = version + 1, set_at = %s
WHERE name = %s AND version = %s AND EXISTS (SELECT 1 FROM leadership WHERE identity = %s)
RETURNING 1
"""
_READ = "SELECT name, value, version, set_at FROM shared_values WHERE name = ANY (%s)"


class PostgresSharedValues:
    """The shared values in one database."""

    def __init__(self, database: PostgresDatabase, identity: str) -> None:
        """`identity` is that of the store that was opened."""
        self._identity = identity
        self._dedicated = DedicatedConnection(database.connect, lambda: _PATIENCE_S)

    def versions(self) -> dict[str, int]:
        """The version of each value, removed ones included; StoreReplaced where another store is there now."""

        def look(connection: Connection) -> dict[str, int]:
            if connection.execute(b"SELECT identity FROM leadership").fetchone() != (self._identity,):
                raise StoreReplaced(_REPLACED)
            return dict(connection.execute(b"SELECT name, version FROM shared_values").fetchall())

        return self._dedicated.use(look)

    def read(self, names: Sequence[str]) -> dict[str, SharedValue]:
        """Values by name; names that never had one are left out."""
        if not names:
            return {}
        rows = self._dedicated.use(
            lambda connection: connection.execute(_READ.encode(), (list(names),)).fetchall()
        )
        return {
            name: SharedValue(None if value is None else bytes(value), version, set_at)
            for name, value, version, set_at in rows
        }

    def put(self, name: str, value: bytes | None, set_at: int, before: int | None = None) -> bool:
        """Set a value, or remove it with None; with `before` only if it has that version still."""

        def act(connection: Connection) -> bool:
            if before is None:
                done = connection.execute(_PUT.encode(), (name, value, set_at, self._identity))
            elif before == 0:
                done = connection.execute(_PUT_FIRST.encode(), (name, value, set_at, self._identity))
            else:
                done = connection.execute(_PUT_AFTER.encode(), (value, set_at, name, before, self._identity))
            is_done = done.fetchone() is not None
            if before is None and not is_done:
                raise StoreReplaced(_REPLACED)
            return is_done

        return self._dedicated.use(act)

    def close(self) -> None:
        """Let go of the connection."""
        self._dedicated.close()
