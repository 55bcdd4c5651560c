"""Processes that outlived their parent inside an attempt and became children of the agent.

Decides whose they are: those of an attempt that has not ended are left alone (a daemon that a job started), those of
an ended one are killed. An attempt can have orphans before the agent has heard that it was started: a short script is
quicker than its spawner. A process that hides its descent (own session, other environment) is held against
all attempts that ran when it was first seen, and is killed when the last of them has ended. Must not know
the journal or messages.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Protocol

from windfall.agent.processes import OrphanWatch, attempt_token, read_stat


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
