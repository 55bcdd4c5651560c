"""Processes that are not children of the daemon: started so that they outlive it, found again, and ended.

Identifies a process by its pid and when it began, because a pid alone may have been reused. Must not know what the
processes are for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

#: The shell exits at once, so the process is not a child of the daemon, and the next daemon need not reap it.
_DETACHED = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo "$!"'
_POLL_S = 0.05


def start_detached(command: list[str], environment: Mapping[str, str], directory: Path, log: Path) -> int:
    """Start a process that is not our child, with its output in a log; returns its pid."""
    started = subprocess.run(
        ["/bin/sh", "-c", _DETACHED, "sh", log, *command],
        stdout=subprocess.PIPE,
        cwd=directory,
        env=dict(environment),
        start_new_session=True,
        check=True,
    )
    return int(started.stdout)


def started_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None if it has ended or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def lives(pid: int, ticks: int) -> bool:
    """Whether the process that began then still runs."""
    return pid > 0 and started_ticks(pid) == ticks


def end_detached(pid: int, ticks: int, grace_s: float) -> None:
    """Ask the process to end, and kill it when the grace is over."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not lives(pid, ticks):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + grace_s
        while lives(pid, ticks) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
