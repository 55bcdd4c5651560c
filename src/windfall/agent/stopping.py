"""Attempts that were asked to end, and the signals that are due to them.

Two ways to ask. A stop: SIGTERM to every process now, SIGKILL after the grace. A notice (an interruption): the
place is taken away at a deadline, so processes that listen get SIGTERM at once, the others work on and get it
shortly before the end; a wrapper shell without a trap must not die before the training that it waits for has
saved. Decides when which signal is due; must not know the socket, nor how a record is kept.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from windfall.agent.attempt import Attempt
from windfall.agent.orphans import Orphans
from windfall.agent.processes import ProcessStat, catches, members, snapshot
from windfall.agent.stages import Noticed, Stopping, Told
from windfall.agent.workers.hosts import contained_keeper, worker_pids

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

    def __init__(self, orphans: Orphans, note: Callable[[Attempt, Told], None]) -> None:
        self._orphans = orphans
        self._note = note
        self._attempts: dict[str, Attempt] = {}

    def __bool__(self) -> bool:
        return bool(self._attempts)

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """SIGTERM now (as soon as there is a process), SIGKILL when the grace is over."""
        deadline = time.monotonic() + max(0.0, grace_s)
        attempt.kill_at = deadline if attempt.kill_at is None else min(attempt.kill_at, deadline)
        attempt.grace_s = grace_s
        attempt.story.add(Stopping())
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
                self.signal_all(attempt, signal.SIGKILL, processes)
            elif step == "terminate":
                attempt.terminated = self.signal_all(attempt, signal.SIGTERM, processes) > 0
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
        for pid in self._targets(attempt, processes, spare_monitor=True):
            name = (pid, processes[pid].start_ticks if pid in processes else 0)
            if name not in attempt.told and catches(pid, signal.SIGTERM):
                fresh.append(name)
        if not fresh:
            return
        attempt.told |= frozenset(fresh)
        self._note(attempt, Told(attempt.token, sorted(attempt.told)))
        for pid, _ in fresh:
            reached = send(pid, signal.SIGTERM)
            if not reached and pid == attempt.container_pid:
                tell_keeper(attempt, signal.SIGTERM)  # Not our process to signal: its engine may.

    def signal_all(self, attempt: Attempt, number: signal.Signals, processes: dict[int, ProcessStat]) -> int:
        """Signal every process of an attempt as if at one moment, and return how many there were.

        A shell whose child is killed goes on to its next command, and may end with 0 as if all had been well. So
        the processes that the signal will end are halted before the first one is sent.
        """
        if attempt.intended.container or contained_keeper(attempt, processes):
            return tell_keeper(attempt, number)
        targets = self._targets(attempt, processes, spare_monitor=number != signal.SIGKILL)
        halted = [pid for pid in targets if number == signal.SIGKILL or not catches(pid, number)]
        for pid in halted:
            send(pid, signal.SIGSTOP)
        for pid in targets:
            send(pid, number)
        if number != signal.SIGKILL:
            for pid in halted:
                send(pid, signal.SIGCONT)
        return len(targets)

    def _targets(
        self, attempt: Attempt, processes: dict[int, ProcessStat], *, spare_monitor: bool
    ) -> set[int]:
        if attempt.intended.container or contained_keeper(attempt, processes):
            inside = attempt.container_pid or 0
            return {stat.pid for stat in members(processes, {inside}).get(inside, [])}
        pid = attempt.pid
        targets = {stat.pid for stat in members(processes, {pid}).get(pid, [])}
        targets.update(self._orphans.of(attempt.token))
        targets.update(worker_pids(attempt.story.hosted, processes, spare_keeper=spare_monitor))
        if attempt.cgroup is not None:
            targets.update(attempt.cgroup.pids())
        if attempt.intended.sandboxed and spare_monitor:
            # The monitor would die and leave the job without its exit code; the init of the namespace
            # ignores it anyway.
            targets -= {stat.pid for stat in processes.values() if stat.ppid == pid} | {pid}
        return targets


def tell_keeper(attempt: Attempt, number: signal.Signals) -> int:
    """Have the keeper of a container stop or kill it, and return whether it could be told.

    A keeper that has not yet written a line has no handlers either: a signal would end it and not the container. That
    of a warm worker has them before its first child.
    """
    number = signal.SIGUSR1 if number == signal.SIGKILL else number
    if attempt.story.hosted is not None:
        return int(send(attempt.story.hosted.pid, number))
    if attempt.container is None or attempt.container.keeper != attempt.pid:
        return 0
    return int(send(attempt.pid, number))


def send(pid: int, number: signal.Signals) -> bool:
    """Signal a process that may have ended meanwhile; whether it could be."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
