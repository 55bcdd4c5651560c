"""What became of the processes of an earlier agent: how they ended, and whether a start came to anything.

The warden writes how orphaned attempts ended, one line per process: `pid start_ticks wait_status at_ms`. The writer is
in warden.py, which imports nothing. Writer and reader hold a lock on the file, because the agent empties it once all of
it is in its journal.

Between the line of the journal that announces a start and the one that names its process an agent may be killed. The
process, if it came to be, became a child of the warden then: it is there, or the warden has written down that it ended.
So what has left no trace was never begun, and can be started without being run twice. Must not know attempts.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from windfall.agent.processes import read_stat, snapshot


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


class Trace(Enum):
    """What is known of starts whose process nobody has named."""

    NONE = "none of them has begun"
    #: Something that may be one of them is just becoming what it will be, or is just ending.
    UNCLEAR = "look again in a moment"
    SOME = "one of them may have begun, and ended"


def trace_of_starts(
    since_ticks: int,
    explained: Callable[[int, int], bool],
    token_of: Callable[[int], str | None],
    sought: Iterable[str],
    exits: Callable[[], Iterable[OrphanExit]],
) -> Trace:
    """Look for processes that started since and that nothing `explained` (by pid and start time) accounts for.

    `exits` is what the warden has written, read when it is called: after the processes. The warden holds the lock on
    that file while it reaps a process, so a process that is gone by then is in it.
    """
    warden = _warden(since_ticks)
    if warden is None:
        return Trace.SOME  # Whose child it has become, and who has seen it end, is not known.
    sought = set(sought)
    here, now = os.getpid(), read_stat(os.getpid())
    until_ticks = now.start_ticks if now is not None else since_ticks
    for stat in snapshot().values():
        if stat.ppid != warden or stat.pid == here or not since_ticks <= stat.start_ticks <= until_ticks:
            continue
        if explained(stat.pid, stat.start_ticks):
            continue
        token = None if stat.state == "Z" else token_of(stat.pid)
        if token is None or token in sought:
            return Trace.UNCLEAR
    ended = (line for line in exits() if since_ticks <= line.start_ticks <= until_ticks)
    return Trace.SOME if any(not explained(line.pid, line.start_ticks) for line in ended) else Trace.NONE


def _warden(since_ticks: int) -> int | None:
    """The warden of this agent, if it was there already then."""
    parent = os.getppid()
    stat = read_stat(parent)
    is_warden = os.environ.get("WINDFALL_WARDEN") == str(parent)
    return parent if is_warden and stat is not None and stat.start_ticks < since_ticks else None
