"""Attempts that were asked to end, and the signals that are due to them.

Two ways to ask. A stop: SIGTERM to every process now, SIGKILL after the grace. A notice (an interruption): the
place is taken away at a deadline, so processes that listen get SIGTERM at once, the others work on and get it
shortly before the end; a wrapper shell without a trap must not die before the training that it waits for has
saved. Decides when which signal is due; must not know the socket, nor how a record is kept.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from windfall.agent.attempt import Attempt
from windfall.agent.processes import ProcessStat, catches, snapshot
from windfall.agent.records import Noticed, Told

#: How much of a notice is kept for the final flush, and how long before the end every process gets SIGTERM.
_FLUSH_SHARE, _FLUSH_MOST_MS = 0.2, 20_000
_LAST_CALL_SHARE, _LAST_CALL_MOST_MS = 0.1, 5_000
#: Looking through all processes has a price, and a notice lasts for minutes.
_SEEK_LISTENERS_EVERY_S = 0.5


class NoticePlan(NamedTuple):
    """When signals are due to an attempt that has notice, in milliseconds since the epoch."""

    last_call_at: int
    kill_at: int


def plan_notice(noticed: Noticed, *, staged: bool) -> NoticePlan:
    """Divide the time up to the deadline; only a staged attempt needs some of it after its process has gone."""
    window_ms = max(0, noticed.deadline_at - noticed.at)
    flush_ms = min(_FLUSH_MOST_MS, int(window_ms * _FLUSH_SHARE)) if staged else 0
    kill_at = noticed.deadline_at - flush_ms
    return NoticePlan(kill_at - min(_LAST_CALL_MOST_MS, int(window_ms * _LAST_CALL_SHARE)), kill_at)


class Stops:
    """The attempts that are being stopped or have notice, until they have ended."""

    def __init__(self, note: Callable[[Attempt, Told], None]) -> None:
        self._note = note
        self._attempts: dict[str, Attempt] = {}

    def __bool__(self) -> bool:
        return bool(self._attempts)

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """SIGTERM now (as soon as there is a process), SIGKILL when the grace is over."""
        deadline = time.monotonic() + max(0.0, grace_s)
        attempt.kill_at = deadline if attempt.kill_at is None else min(attempt.kill_at, deadline)
        attempt.grace_s = grace_s
        self._attempts[attempt.token] = attempt

    def interrupt(self, attempt: Attempt) -> None:
        """Follow the plan of the attempt's notice; the notice is part of its story."""
        self._attempts[attempt.token] = attempt

    def over(self, attempt: Attempt) -> None:
        """There is nothing more to signal."""
        self._attempts.pop(attempt.token, None)

    def press(self) -> None:
        """Send what is due; called again and again until the attempts have ended."""
        due = [attempt for attempt in self._attempts.values() if attempt.running]
        if not due:
            return
        processes: dict[int, ProcessStat] | None = None
        for attempt in due:
            step = self._step(attempt)
            if step is None:
                continue
            processes = snapshot() if processes is None else processes
            if step == "kill":
                attempt.launcher.signal_all(attempt, signal.SIGKILL, processes)
            elif step == "terminate":
                attempt.terminated = attempt.launcher.signal_all(attempt, signal.SIGTERM, processes) > 0
            else:
                self._signal_listeners(attempt, processes)

    def _step(self, attempt: Attempt) -> str | None:
        if attempt.kill_at is not None and time.monotonic() >= attempt.kill_at:
            return "kill"
        noticed = attempt.story.noticed
        now = time.time_ns() // 1_000_000
        plan = None
        if noticed is not None:
            plan = plan_notice(noticed, staged=attempt.story.accepted is not None)
            if now >= plan.kill_at:
                return "kill"
        if attempt.terminated:
            return None
        if attempt.grace_s is not None or (plan is not None and now >= plan.last_call_at):
            return "terminate"
        if time.monotonic() < attempt.listeners_sought_at + _SEEK_LISTENERS_EVERY_S:
            return None
        return "listeners"

    def _signal_listeners(self, attempt: Attempt, processes: dict[int, ProcessStat]) -> None:
        """SIGTERM, once each, to the processes that asked for it; one that begins to listen later gets it then."""
        attempt.listeners_sought_at = time.monotonic()
        fresh = []
        for pid in attempt.launcher.targets(attempt, processes, spare_monitor=True):
            name = (pid, processes[pid].start_ticks if pid in processes else 0)
            if name not in attempt.told and catches(pid, signal.SIGTERM):
                fresh.append(name)
        if not fresh:
            return
        attempt.told |= frozenset(fresh)
        self._note(attempt, Told(attempt.token, sorted(attempt.told)))
        for pid, _ in fresh:
            attempt.launcher.signal_process(attempt, pid, signal.SIGTERM)
