"""Whether a start that an agent died in has come to anything.

Between the line that announces a start and the one that names its process an agent may be killed. The process, if it
came to be, became a child of the warden then: it is there, or the warden has written down that it ended. So what has
left no trace was never begun, and can be started without being run twice. Must not know attempts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from enum import Enum

from windfall.agent.exits import OrphanExit
from windfall.agent.processes import read_stat, snapshot


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
