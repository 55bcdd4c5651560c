"""Processes of attempts that nobody looks after, and whose they are.

Orphans outlived their parent inside an attempt and became children of the agent: those of an attempt that has not ended
are left alone (a daemon that a job started), those of an ended one are killed. An attempt can have orphans before the
agent has heard that it was started: a short script is quicker than its spawner. A process that hides its descent (own
session, other environment) is held against all attempts that ran when it was first seen, and is killed when the last of
them has ended.

Strays were left by an earlier agent, and belong to no attempt which is known to run: a journal that was damaged or lost
does not name all that was started, and the daemon starts such attempts anew. What is left of the first ones must have
ended by then. Must not know the journal or messages.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Container, Mapping, Set
from typing import Protocol

from windfall.agent.cgroups import AttemptCgroup, CgroupTree
from windfall.agent.processes import OrphanWatch, attempt_token, members, read_stat, send, snapshot
from windfall.agent.speech import say


class _Owner(Protocol):
    @property
    def token(self) -> str: ...
    @property
    def starting(self) -> bool: ...
    @property
    def gone(self) -> bool: ...


class Orphans:
    """The orphans that were seen, each with the tokens of the attempts that it may belong to."""

    def __init__(self, agent_id: str, watch: OrphanWatch | None = None) -> None:
        self._agent_id = agent_id
        self._watch = OrphanWatch() if watch is None else watch
        self._suspects: dict[int, frozenset[str]] = {}
        self._spared: set[int] = set()

    def spare(self, pid: int) -> None:
        """Leave a companion of the agent alone: it was started by the main thread, as orphans seem to be."""
        self._spared.add(pid)

    def surely_has(self, pid: int) -> bool:
        """Tell whether this child is an orphan and cannot be a process that the agent just started."""
        return self._watch.exact and pid in self._watch.pids()

    def on_collected(self, pid: int) -> None:
        """Forget a process that has ended."""
        self._suspects.pop(pid, None)
        self._spared.discard(pid)

    def of(self, token: str) -> list[int]:
        """Return the orphans that certainly belong to an attempt."""
        return [pid for pid, tokens in self._suspects.items() if tokens == {token}]

    def kill_those_of_ended(self, own: Mapping[int, _Owner], attempts: Mapping[str, _Owner]) -> None:
        """Kill every orphan of which no possible owner runs."""
        for pid in self._watch.pids():
            if pid in self._spared:
                continue
            tokens = self._suspects.get(pid)
            if tokens is None:
                tokens = self._suspects[pid] = _possible_owners(pid, own, attempts, self._agent_id)
            elif len(tokens) > 1 and (token := attempt_token(pid, self._agent_id)) is not None:
                # A process that is just becoming another program has no environment for a moment.
                tokens = self._suspects[pid] = frozenset({token})
            if not any(token in attempts and not attempts[token].gone for token in tokens):
                # It is a child that nobody else collects, so the pid cannot have been given to another
                # process.
                with contextlib.suppress(PermissionError):
                    os.kill(pid, signal.SIGKILL)


def _possible_owners(
    pid: int, own: Mapping[int, _Owner], attempts: Mapping[str, _Owner], agent_id: str
) -> frozenset[str]:
    stat = read_stat(pid)
    if stat is not None and stat.session in own:
        return frozenset({own[stat.session].token})
    token = attempt_token(pid, agent_id)
    if token is not None:
        return frozenset({token})
    if stat is not None and stat.state == "Z":
        return frozenset()
    starting = (attempt.token for attempt in attempts.values() if attempt.starting)
    return frozenset({*(owner.token for owner in own.values()), *starting})


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
