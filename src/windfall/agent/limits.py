"""Keeps running attempts within their memory, vCPUs and log sizes, notes when their logs grow and keeps room for them;
all on timers, off the path of a start.

A very short job should pay for none of this, so a plain attempt is put into its cgroup only when it is
older than 100 ms: all its processes, again and again until no new one appears. Memory that was charged
before stays with the agent's own cgroup, and some machines let nobody write cgroups; so once a second the
resident memory of every attempt is also summed up, and one above its limit is killed. Must not know the
socket or the journal; it reports through the supervisor.
"""

from __future__ import annotations

import signal
import time
from collections import deque

from windfall.agent.attempt import Attempt
from windfall.agent.errors import CannotIsolate
from windfall.agent.messages import Enrolled
from windfall.agent.processes import members, resident_bytes, send, snapshot
from windfall.agent.speech import say
from windfall.agent.supervisor import Supervisor, now_ms
from windfall.agent.workers.hosts import worker_hosts

_ENROL_AFTER_S = 0.1
_SAMPLE_EVERY_S = 1.0
_LOG_TIMES_EVERY_S = 0.5
_MOST_ROUNDS = 8


class Limits:
    """The timers over running attempts."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._young: deque[tuple[float, Attempt]] = deque()
        self._grown: dict[str, Attempt] = {}
        self._sample_at = 0.0
        self._log_times_at = 0.0
        #: Whether log times could not be written when they were last.
        self._timeless = False
        self._cgroups_work = supervisor.machine.cgroups is not None

    def watch(self, attempt: Attempt) -> None:
        """Watch an attempt that an earlier agent started."""
        self._grown[attempt.token] = attempt

    def next_due(self) -> float | None:
        """Return when `tick` has something to do, on the monotonic clock; None while nothing runs."""
        due = []
        if self._young:
            due.append(self._young[0][0])
        if self._grown:
            due.append(min(self._sample_at, self._log_times_at))
        return min(due, default=None)

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        started = self._supervisor.newly_started
        while started:
            self._young.append((now + _ENROL_AFTER_S, started.popleft()))
        grown = []
        while self._young and self._young[0][0] <= now:
            attempt = self._young.popleft()[1]
            if attempt.running:
                grown.append(attempt)
        if grown:
            for attempt in grown:
                self._grown[attempt.token] = attempt
            self._enrol([attempt for attempt in grown if not attempt.enrolled])
        if not self._grown:
            return
        if now >= self._log_times_at:
            self._log_times_at = now + _LOG_TIMES_EVERY_S
            self._note_log_times()
        if now >= self._sample_at:
            self._sample_at = now + _SAMPLE_EVERY_S
            self._sample()

    def _enrol(self, attempts: list[Attempt]) -> None:
        if not self._cgroups_work or not attempts:
            return
        machine = self._supervisor.machine
        try:
            for attempt in attempts:
                intended = attempt.intended
                attempt.cgroup = machine.new_cgroup(intended.token, intended.memory_mib, intended.vcpus)
            self._move(attempts)
        except CannotIsolate as error:
            # What worked at the start does not any more; the sampler goes on.
            self._cgroups_work = False
            say(f"{error}; memory is watched once a second instead")
            return
        for attempt in attempts:
            attempt.enrolled = True
            attempt.story.isolation = f"{attempt.story.isolation} + {machine.cgroup_words}"
            self._supervisor.outbox.append(Enrolled(attempt.token, attempt.story.isolation))

    def _move(self, attempts: list[Attempt]) -> None:
        moved: set[int] = set()
        by_pid = {attempt.pid: attempt for attempt in attempts}
        for _ in range(_MOST_ROUNDS):
            new = 0
            for pid, stats in members(snapshot(), by_pid).items():
                pids = [stat.pid for stat in stats if stat.pid not in moved]
                group = by_pid[pid].cgroup
                if group is not None and pids:
                    group.enrol(pids)
                moved.update(pids)
                new += len(pids)
            if not new:
                return

    def _note_log_times(self) -> None:
        at = now_ms()
        for token, attempt in list(self._grown.items()):
            if not attempt.running:
                del self._grown[token]
                continue
            attempt.log_room.keep()
            attempt.log_limit.keep()
            try:
                attempt.log_times.note(at)
                self._timeless = False
            except OSError as error:
                if not self._timeless:  # Once, not twice a second for every attempt.
                    say(f"{token}: no log times: {error}")
                self._timeless = True

    def _sample(self) -> None:
        running = {
            attempt.pid: attempt
            for attempt in self._grown.values()
            if attempt.running and not attempt.launcher.keeps_limits
        }
        processes = snapshot()
        hosts = worker_hosts(running.values(), processes)
        keepers = {pid for attempt in running.values() for pid in attempt.keepers}
        grouped = members(processes, running.keys() | hosts.values() | keepers)
        for pid, attempt in running.items():
            limit_bytes = attempt.intended.memory_mib << 20
            over = attempt.over_memory or _killed_for_memory(attempt)
            if not over and limit_bytes > 0:
                host = hosts.get(attempt.token, 0)
                hosted = [stat for stat in grouped.get(host, ()) if stat.pid != host]
                own = (*grouped.get(pid, ()), *hosted)
                over = resident_bytes(own, limit_bytes) > limit_bytes
                entered = [stat for at in attempt.keepers for stat in grouped.get(at, ()) if stat.pid != at]
                if entered and not over and resident_bytes((*own, *entered), limit_bytes) > limit_bytes:
                    for stat in entered:
                        send(stat.pid, signal.SIGKILL)
            if over:
                attempt.over_memory = True
                attempt.launcher.signal_all(attempt, signal.SIGKILL, processes)


def _killed_for_memory(attempt: Attempt) -> bool:
    """Whether the kernel has killed a process of the job for memory: of those in its cgroup, commands that people run
    inside it go first."""
    if attempt.cgroup is None or not attempt.cgroup.out_of_memory():
        return False
    if attempt.keepers or time.monotonic() < attempt.entered_until:
        attempt.cgroup.forgive()
        return False
    return True
