"""A few read connections, kept for the next reader: reading neither waits for the writer nor reconnects.

Not bound to threads: worker threads come and go, and their connections would be left open behind them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from windfall.store.errors import ReadFailed

#: More readers than this at once open a connection each and close it afterwards.
KEPT = 4


class Closable(Protocol):
    """Any connection."""

    def close(self) -> None:
        """Let go of it."""


C = TypeVar("C", bound=Closable)


class Readers(Generic[C]):
    """Idle read connections."""

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._idle: list[C] = []
        self._lock = threading.Lock()
        self._open = True

    @contextmanager
    def borrowed(self) -> Iterator[C]:
        """A connection for the time of one question; after an error it is not used again."""
        with self._lock:
            if not self._open:
                raise ReadFailed("the store is closed")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._put_back(connection)

    def _put_back(self, connection: C) -> None:
        with self._lock:
            if self._open and len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def forget(self) -> None:
        """Close the idle connections: one of them was broken, so the others may be."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close the idle connections, and the borrowed ones when they come back."""
        with self._lock:
            self._open = False
        self.forget()
