"""The containers of warm workers, as the agent has them: how one is ordered, how far it is, whether it still runs.

A worker's own keeper removes its container. Where that was killed, the process that keeps the container does; where
that was killed too, this has it removed. Decides when a container is known to be gone, and holds back what must wait
for it: the end of a child whose work would go on, so that it is never done twice. Must not know which child gets which
worker.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from windfall.agent.attempt import Attempt
from windfall.agent.container.launcher import ContainerLauncher
from windfall.agent.container.orders import keeper_launch, read_state, write_orders
from windfall.agent.container.state import KeeperState
from windfall.agent.launchers import Leave
from windfall.agent.machine import Machine
from windfall.agent.messages import Exited, Start
from windfall.agent.processes import read_stat
from windfall.agent.spawner import Launch
from windfall.agent.workers.commands import worker_orders
from windfall.jobs.workers import Worker

#: How long a keeper may take to remove its container; one without a keeper is removed at once.
_REMOVE_AFTER_S = 15.0
LOOK_EVERY_S = 0.05
#: What a child ends with whose worker was killed, or whose worker's keeper was.
_KILLED_CODE = 137
#: How long a process may take from its last word to its end.
_DYING_S = 0.25


class _Held(NamedTuple):
    """The end of a child that may have to wait."""

    attempt: Attempt
    result: Exited
    since: float


class WorkerBoxes:
    """The containers of all warm workers of this agent."""

    def __init__(self, machine: Machine, containers: ContainerLauncher, leave: Leave) -> None:
        self._machine = machine
        self._leave = leave
        self._containers = containers
        #: Containers that should be gone, by the worker's name: since when, and whether the engine was asked.
        self._seen: dict[str, tuple[float, bool]] = {}
        self._held: list[_Held] = []

    def order(self, stand_in: Attempt, start: Start, worker: Worker) -> Launch:
        """Write down what a worker's container is to be, and return what keeps it; raises AgentError."""
        write_orders(stand_in, start, self._machine, worker_orders(worker))
        return keeper_launch(stand_in.intended, self._machine)

    def state(self, name: str) -> KeeperState:
        """Return how far the container of a worker is."""
        return read_state(self._machine, name)

    def lingers(self, name: str) -> bool:
        """Tell whether a container that should be gone is not, or is still being removed; after a while it is."""
        state, now = self.state(name), time.monotonic()
        runs, kept = first_process(state) is not None, _is_there(state.keeper)
        if not runs and not kept and (state.ended_at is not None or not state.container):
            self._seen.pop(name, None)
            return False
        since, asked = self._seen.setdefault(name, (now, False))
        is_late = now >= since + _REMOVE_AFTER_S
        if is_late or (not kept and not asked):
            self._seen[name] = now, True
            self._containers.remove_leftovers([name])
        return runs or (kept and not is_late)

    def forget(self, name: str) -> None:
        """Drop the files of a worker that is gone."""
        self._containers.forget(name)

    def close(self, attempt: Attempt, result: Exited) -> None:
        """Report a child's end: at once, or when a container that lost its keeper is gone."""
        self._close(_Held(attempt, result, time.monotonic()))

    def tick(self) -> None:
        """Report the ends that nothing holds back any more."""
        held, self._held = self._held, []
        for one in held:
            self._close(one)

    def _close(self, held: _Held) -> None:
        hosted = held.attempt.story.hosted
        if hosted is not None and hosted.container and held.result.exit_code == _KILLED_CODE:
            if not _is_there(hosted.pid, hosted.start_ticks):
                waits = self.lingers(hosted.container)
            else:
                # Its keeper may have said so, or be dying this very moment.
                waits = time.monotonic() < held.since + _DYING_S and self._runs(hosted.container)
            if waits:
                self._held.append(held)
                return
        self._leave(held.attempt, held.result)

    def _runs(self, name: str) -> bool:
        return first_process(self.state(name)) is not None

    @property
    def holds(self) -> bool:
        """Whether `tick` has something to look at."""
        return bool(self._held)


def first_process(state: KeeperState) -> int | None:
    """Return the first process of a container that runs."""
    return state.pid if state.pid is not None and _is_there(state.pid, state.pid_ticks) else None


def _is_there(pid: int, start_ticks: int | None = None) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.state != "Z" and start_ticks in (None, stat.start_ticks)
