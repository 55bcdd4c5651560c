"""How an attempt's process comes into being, is signalled and ends: one protocol, and its plainest implementation.

The others are containers (container/launcher.py) and children of warm workers (workers/pool.py). Nothing outside of
them asks which one an attempt has. Must not know the journal, the socket or which stage an attempt is at.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Protocol

from windfall.agent.attempt import Attempt
from windfall.agent.directories import PrivateDirectories
from windfall.agent.events import AgentEvent, Failed
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited, Lost
from windfall.agent.orphans import Orphans
from windfall.agent.preparation import prepare
from windfall.agent.processes import ProcessStat, members, send, signal_together
from windfall.agent.spawner import Launch

OUT_OF_MEMORY = "OutOfMemoryError: Container killed due to memory usage"
_OUT_OF_MEMORY_CODE = 137

React = Callable[[AgentEvent], None]
Leave = Callable[[Attempt, Exited | Lost], None]


class Launcher(Protocol):
    """One way in which attempts run."""

    #: Whether an engine keeps its attempts within their limits, so that nobody else need watch them.
    keeps_limits: bool
    #: Whether what its attempts leave belongs to a user of their image, who may be anybody.
    has_foreign_files: bool

    def is_ready(self, attempt: Attempt) -> bool:
        """Tell whether it can be started now; it is asked again until it can."""

    def launch(self, attempt: Attempt) -> Launch:
        """Return the process to start; raises AgentError or OSError."""

    def not_launched(self, attempt: Attempt, reason: str, at: int) -> None:
        """No process could be started."""

    def spawned(self, attempt: Attempt) -> None:
        """Its process exists, and is in the journal."""

    def adopted(self, attempt: Attempt) -> None:
        """Its process, which an earlier agent started, still runs."""

    def exited(self, attempt: Attempt, code: int, at: int) -> None:
        """Its process has ended."""

    def lost(self, attempt: Attempt, at: int) -> None:
        """Its process is gone, and nobody knows how it ended."""

    def signal_all(
        self, attempt: Attempt, number: signal.Signals, processes: Mapping[int, ProcessStat]
    ) -> int:
        """Signal every process of it as if at one moment, and return how many there were."""

    def signal_process(self, attempt: Attempt, pid: int, number: signal.Signals) -> None:
        """Signal one of its `targets`."""

    def targets(
        self, attempt: Attempt, processes: Mapping[int, ProcessStat], *, spare_monitor: bool
    ) -> set[int]:
        """Return its processes, or those of them that a signal is meant for."""

    def entrance(self, attempt: Attempt) -> dict[str, str] | None:
        """Return what leads inside, for a session; None where its namespaces are those of its process."""

    def release(self, attempt: Attempt) -> None:
        """It has ended, or was never started."""

    def forget(self, token: str) -> None:
        """Remove what only this launcher keeps of it."""


class ProcessLauncher:
    """Attempts that are processes of this machine, with a sandbox or without."""

    keeps_limits = has_foreign_files = False

    def __init__(
        self, machine: Machine, directories: PrivateDirectories, orphans: Orphans, react: React, leave: Leave
    ) -> None:
        self._machine = machine
        self._directories = directories
        self._orphans = orphans
        self._react = react
        self._leave = leave

    def is_ready(self, _attempt: Attempt) -> bool:
        """Nothing is waited for."""
        return True

    def launch(self, attempt: Attempt) -> Launch:
        """Return the job's own process."""
        assert attempt.story.order is not None
        return prepare(attempt, attempt.story.order, self._machine, self._directories)

    def not_launched(self, attempt: Attempt, reason: str, at: int) -> None:
        """Refuse it."""
        self._react(Failed(attempt.token, reason, at))

    def spawned(self, attempt: Attempt) -> None:
        """Nothing is left to do."""

    def adopted(self, attempt: Attempt) -> None:
        """Find its limits again; without any it is put under new ones."""
        machine = self._machine
        if machine.cgroups is None:
            return
        group = machine.cgroups.group(attempt.token)
        if group.exists():
            attempt.cgroup, attempt.enrolled = group, True
            if machine.cgroup_words not in attempt.story.isolation:
                attempt.story.isolation = f"{attempt.story.isolation} + {machine.cgroup_words}"

    def exited(self, attempt: Attempt, code: int, at: int) -> None:
        """Kill what it left, then report."""
        self._leave(attempt, self.end_of(attempt, code, at))

    def end_of(self, attempt: Attempt, code: int, at: int, *, over_memory: bool = False) -> Exited:
        """Kill what its main process left, and return how it ended."""
        spawned = attempt.spawned
        assert spawned is not None
        reason = None
        group = attempt.cgroup
        if group is not None:
            if group.out_of_memory():
                attempt.over_memory = True
            for pid in group.pids() - {spawned.pid}:
                send(pid, signal.SIGKILL)
        if attempt.over_memory or over_memory:
            code, reason = _OUT_OF_MEMORY_CODE, OUT_OF_MEMORY
        return Exited(attempt.token, code, reason, spawned.at, at, attempt.story.isolation)

    def lost(self, attempt: Attempt, at: int) -> None:
        """Report that."""
        self._leave(attempt, Lost(attempt.token, at))

    def signal_all(
        self, attempt: Attempt, number: signal.Signals, processes: Mapping[int, ProcessStat]
    ) -> int:
        """Signal all its processes as if at one moment."""
        targets = self.targets(attempt, processes, spare_monitor=number != signal.SIGKILL)
        return signal_together(targets, number)

    def signal_process(self, _attempt: Attempt, pid: int, number: signal.Signals) -> None:
        """Signal one of its processes."""
        send(pid, number)

    def targets(
        self, attempt: Attempt, processes: Mapping[int, ProcessStat], *, spare_monitor: bool
    ) -> set[int]:
        """Return what descends from its process or lies in its cgroup."""
        pid = attempt.pid
        targets = {stat.pid for stat in members(processes, {pid}).get(pid, [])}
        targets.update(self._orphans.of(attempt.token))
        if attempt.cgroup is not None:
            targets.update(attempt.cgroup.pids())
        if attempt.intended.sandboxed and spare_monitor:
            # The monitor would die and leave the job without its exit code; the init of the namespace
            # ignores it anyway.
            targets -= {stat.pid for stat in processes.values() if stat.ppid == pid} | {pid}
        return targets

    def entrance(self, _attempt: Attempt) -> dict[str, str] | None:
        """Lead in by the namespaces of its process."""
        return None

    def release(self, attempt: Attempt) -> None:
        """Nothing is held for it."""

    def forget(self, token: str) -> None:
        """Nothing is kept of it."""
