"""Processes and cgroups that an earlier agent left and that belong to no attempt which is known to run.

An agent whose journal was damaged or lost does not know all that it started, and the daemon starts such attempts anew:
what is left of the first ones must have ended by then. Decides whose a process is, by the mark in its environment, by
descent and by cgroup. Must not know the journal or messages.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Container, Set

from windfall.agent.cgroups import AttemptCgroup, CgroupTree
from windfall.agent.processes import attempt_token, members, read_stat, send, snapshot
from windfall.agent.speech import say

#: How long killed processes may take to end.
_END_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.02


def stop_strays(
    agent_id: str, live: Set[str], roots: Container[int], cgroups: CgroupTree | None
) -> dict[str, int]:
    """Kill what belongs to attempts that are not `live`, and wait until it has ended.

    `roots` are the main processes of what may run: whatever is below one of them is left alone, also a warm worker,
    which has a mark of its own. The answer is how many processes of each token were killed.
    """
    killed: dict[str, int] = {}
    seen: set[tuple[int, int]] = set()
    deadline = time.monotonic() + _END_WITHIN_S
    while found := _find(agent_id, live, roots, cgroups):
        for pid, (token, start_ticks) in found.items():
            send(pid, signal.SIGKILL)
            if (pid, start_ticks) not in seen:
                seen.add((pid, start_ticks))
                killed[token] = killed.get(token, 0) + 1
        if time.monotonic() >= deadline:
            say(
                f"processes of earlier attempts do not end: {', '.join(map(str, sorted(found)))}; end them by hand"
            )
            break
        time.sleep(_LOOK_EVERY_S)
    return killed


def _find(
    agent_id: str, live: Set[str], roots: Container[int], cgroups: CgroupTree | None
) -> dict[int, tuple[str, int]]:
    """The strays by pid, each with its token (empty where only its cgroup shows it) and start time."""
    processes = snapshot()
    spared = {stat.pid for below in members(processes, roots).values() for stat in below} | {os.getpid()}
    found = {}
    for pid, stat in processes.items():
        token = None if pid in spared or stat.state == "Z" else attempt_token(pid, agent_id)
        if token is not None and token not in live:
            found[pid] = token
    for leader, below in members(processes, dict(found)).items():
        for stat in below:
            found.setdefault(stat.pid, found[leader])
    for group in [] if cgroups is None else cgroups.others(live):
        for pid in group.pids():
            found.setdefault(pid, "")
    stats = ((read_stat(pid), token) for pid, token in found.items() if pid not in spared)
    return {
        stat.pid: (token, stat.start_ticks) for stat, token in stats if stat is not None and stat.state != "Z"
    }


def empty_groups(cgroups: CgroupTree | None, live: Set[str]) -> list[AttemptCgroup]:
    """The cgroups without a process that no live attempt has."""
    if cgroups is None:
        return []
    return [group for group in cgroups.others(live) if not group.pids()]
