"""Which processes belong to a session, and how they are ended.

A process belongs to it that descends from the session's keeper or from its command, is in the command's session, or
has the session's mark in its environment. Decides nothing else. Imported by the keeper: no more than it needs.
"""

from __future__ import annotations

import os
import signal
import time

from windfall.agent.processes import EXEC_VARIABLE, members, snapshot, variables_of

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: How long processes may take to end after SIGHUP and SIGTERM.
_GRACE_S = 1.0
_KILL_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.02


def processes_of(session: str, leader: tuple[int, int] | None) -> set[int]:
    """The processes of a session other than its keeper, which is the caller.

    `leader` is the command's process with its start time: its number may be another's by now.
    """
    own = os.getpid()
    processes = snapshot()
    roots = {own}
    if leader is not None and (leader[0] not in processes or processes[leader[0]].start_ticks == leader[1]):
        roots.add(leader[0])
    below = members(processes, roots)
    found = {stat.pid for group in below.values() for stat in group}
    mark = f"{EXEC_VARIABLE}={session}".encode()
    found.update(pid for pid in processes if pid not in found and mark in variables_of(pid))
    return {pid for pid in found if pid != own and processes[pid].state not in "ZX"}


def end_processes(session: str, leader: tuple[int, int] | None, kill: Callable[[int, int], None]) -> bool:
    """End all processes of a session, those that do not listen by SIGKILL; whether none is left."""
    began = time.monotonic()
    asked: set[int] = set()
    while found := processes_of(session, leader):
        lasted = time.monotonic() - began
        if lasted > _KILL_WITHIN_S:
            return False
        for pid in found:
            if lasted > _GRACE_S:
                kill(pid, signal.SIGKILL)
            elif pid not in asked:
                asked.add(pid)
                for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCONT):
                    kill(pid, number)
        time.sleep(_LOOK_EVERY_S)
    return True
