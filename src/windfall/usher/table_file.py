"""The route table as a file: written whole by the daemon, followed by the usher.

Decides how the table is kept: written beside, synced, renamed, so that a reader sees the old table or the new one; and
that a table which cannot be read, or is older than the one in use, changes nothing. Must not know what routes are for.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from windfall.hosting.routes import RouteTable

TABLE_NAME = "routes.json"

log = logging.getLogger(__name__)


class RouteWriter:
    """The daemon's end: writes each table under a version that is higher than any before it."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the usher's own, which is made if it is missing."""
        self._path = directory / TABLE_NAME

    def read(self) -> RouteTable:
        """The table that was written last; an empty one if there is none that can be read."""
        return _read(self._path) or RouteTable(0)

    def write(self, table: RouteTable) -> RouteTable:
        """Make this the table on disk, durably. Returns it with the version that it got.

        A table with the endpoints of the last one is not written again.
        """
        before = self.read()
        if before.version > 0 and before.endpoints == table.endpoints:
            return before
        table = RouteTable(max(before.version + 1, table.version), table.endpoints)
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        beside = self._path.with_name(f".{TABLE_NAME}.{os.getpid()}")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode(table))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return table


class TableFollower:
    """The usher's end: the last table that could be read."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / TABLE_NAME
        self._seen: tuple[int, ...] | None = None
        self.table = RouteTable(0)

    def changed(self) -> bool:
        """Look at the file; returns whether `table` is a newer one than before."""
        try:
            status = self._path.stat()
        except OSError:
            return False  # The last good table serves.
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if seen == self._seen:
            return False
        self._seen = seen
        table = _read(self._path)
        if table is None:
            log.warning("%s cannot be read; requests go where the table before it says", self._path)
            return False
        if table.version <= self.table.version:
            return False
        self.table = table
        return True


def _read(path: Path) -> RouteTable | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RouteTable)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
