"""Reads the file into which the warden writes how orphaned attempts ended. The writer is in warden.py,
which imports nothing.

One line per process: `pid start_ticks wait_status at_ms`. Writer and reader hold a lock on the file,
because the agent empties it once all of it is in its journal. Must not know attempts.
"""

from __future__ import annotations

import fcntl
import os
from typing import NamedTuple


class OrphanExit(NamedTuple):
    """How one process ended that was not the agent's child any more."""

    pid: int
    start_ticks: int
    wait_status: int
    at: int


class ExitsFile:
    """The agent's view of the warden's file."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._read_bytes = 0

    def read_new(self) -> list[OrphanExit]:
        """Return the lines that were not returned before."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        try:
            size = os.fstat(self._fd).st_size
            if size <= self._read_bytes:
                return []
            content = os.pread(self._fd, size - self._read_bytes, self._read_bytes)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._read_bytes += content.rfind(b"\n") + 1
        return parse_exits(content)

    def empty(self) -> None:
        """Drop all lines unless some are unread; to be called when the journal holds what they said."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            if os.fstat(self._fd).st_size == self._read_bytes:
                os.ftruncate(self._fd, 0)
                self._read_bytes = 0
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def parse_exits(content: bytes) -> list[OrphanExit]:
    """Parse complete lines; what is torn or strange is left out."""
    found = []
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        fields = line.split()
        if len(fields) == 4 and all(field.isdigit() for field in fields):
            found.append(OrphanExit(*(int(field) for field in fields)))
    return found
