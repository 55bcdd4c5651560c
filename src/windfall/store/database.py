"""What SQLite and PostgreSQL must be able to do so that one store can be written over both.

All SQL of the store uses `?` for a parameter; a dialect turns it into its own. Must not know any table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from windfall.store.tables import Row, Table

T = TypeVar("T")


class SqlSession(Protocol):
    """One transaction on one connection."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Carry out one statement and answer all its rows."""

    def rows_among(
        self, sql: str, column: str, values: Sequence[Any], parameters: Sequence[Any] = ()
    ) -> list[Row]:
        """Carry out `sql`, whose `{among}` (before any `?`) becomes "`column` is one of `values`".

        Without values nothing is asked and no row answered.
        """

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows, or change those that are there; no key may occur twice."""

    def remove(self, table: Table, keys: Sequence[Row]) -> None:
        """Remove the rows with these keys; a missing one is not an error."""


class Database(Protocol):
    """A database that can be asked and changed from any thread."""

    @property
    def where(self) -> str:
        """Where it is, for messages; without a password."""

    def read(self, question: Callable[[SqlSession], T]) -> T:
        """Ask in one snapshot, beside the writer; may be asked again on another connection if one broke."""

    def write(self, action: Callable[[SqlSession], T]) -> T:
        """Change in one transaction, one at a time; answers when it is durable, or raises CommitFailed."""

    def verify(self) -> None:
        """Raise StoreReplaced if another database, or none, is where this one was opened; cheap."""

    def close(self) -> None:
        """Let go of all connections; waits for a commit that is under way."""
