"""A connection beside those of the store, for one purpose: made when first used, and again when it broke.

Must not know any table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psycopg

from windfall.store.errors import CannotOpen, CommitFailed
from windfall.store.postgres.database import Connection

T = TypeVar("T")


class DedicatedConnection:
    """One connection, used by one caller at a time."""

    def __init__(self, connect: Callable[[], Connection], patience_s: Callable[[], float]) -> None:
        """`patience_s` is how long a statement, or a lock that it waits for, may take."""
        self._connect = connect
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def use(self, action: Callable[[Connection], T]) -> T:
        """Let `action` use the connection; CommitFailed means that nobody knows whether it was done."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                    patience_ms = max(1, int(self._patience_s() * 1000))
                    self._connection.execute(f"SET statement_timeout = {patience_ms}".encode())
                return action(self._connection)
            except (psycopg.Error, CannotOpen) as error:
                self._drop()
                raise CommitFailed(f"PostgreSQL did not answer: {error}") from error

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
