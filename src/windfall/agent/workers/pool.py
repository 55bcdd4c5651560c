"""The launcher of children of warm workers: which child runs in which worker, and when a worker must go.

A child gets an idle worker of its own array that has exactly its GPUs, or a new one. A worker goes when it was idle
for long, when its child was stopped, when another job gets one of its GPUs, or when what runs needs the memory that it
holds; in the last two cases that job waits until the worker is really gone. Decides that; must not know the journal's
file, the socket of the daemon, or how a keeper is spoken to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping

from windfall.agent.attempt import Attempt
from windfall.agent.cgroups import AttemptCgroup
from windfall.agent.companions import OnReadable
from windfall.agent.container.launcher import ContainerLauncher, inside_of, tell_keeper
from windfall.agent.directories import PrivateDirectories
from windfall.agent.errors import CannotEnter
from windfall.agent.launchers import Leave, ProcessLauncher
from windfall.agent.log_room import open_log
from windfall.agent.machine import Machine
from windfall.agent.messages import Lost, Message, Start
from windfall.agent.preparation import intend, job_umask, job_user, prepare
from windfall.agent.processes import AGENT_VARIABLE, TOKEN_VARIABLE, ProcessStat, send, signal_together
from windfall.agent.records import Hosted
from windfall.agent.sandbox import DEFAULT_PATH
from windfall.agent.spawner import Launch
from windfall.agent.speech import say
from windfall.agent.stages import Story
from windfall.agent.workers.boxes import LOOK_EVERY_S, WorkerBoxes, first_process
from windfall.agent.workers.coming import ComingWorkers, NoWorker
from windfall.agent.workers.commands import CLIENT, suits, task_line, worker_start
from windfall.agent.workers.hosts import contained_keeper, worker_pids
from windfall.agent.workers.process import WorkerProcess, new_cgroup

#: A worker that was told to end and is still there after this time is killed.
_END_WITHIN_S = 6.0
#: A container may take longer, where its engine does.
_END_CONTAINER_WITHIN_S = 60.0
#: How often a keeper is asked that could not report its container's progress itself.
_LOOK_AT_COMING_S = 0.5
#: What a sandboxed worker's shell does with its standard input, which was its script: descriptor 4 has the tasks.
_FEED = "<&4 4<&-"


class _Kept:
    """A worker that has a child, and what it is to be told when the child's own process is known."""

    def __init__(self, worker: WorkerProcess, line: bytes, client: socket.socket, log_fd: int) -> None:
        self.worker = worker
        self.line = line
        self.client = client
        self.log_fd = log_fd

    def close(self) -> None:
        """Let go of what the worker has by now, or will never get."""
        self.line = b""
        self.client.close()
        if self.log_fd >= 0:
            os.close(self.log_fd)
            self.log_fd = -1


class WarmWorkers:
    """All warm workers of this agent, and the attempts that run in them.

    The process of such an attempt stands for what a worker does; all else about it is as with any process.
    """

    keeps_limits = has_foreign_files = False

    def __init__(
        self,
        machine: Machine,
        directories: PrivateDirectories,
        on_readable: OnReadable,
        spare: Callable[[int], None],
        note: Callable[[Attempt, Hosted], None],
        live_memory_mib: Callable[[], int],
        discard: Callable[[AttemptCgroup], None],
        processes: ProcessLauncher,
        containers: ContainerLauncher,
        tell: Callable[[Message], None],
        leave: Leave,
    ) -> None:
        self._machine = machine
        self._directories = directories
        self._on_readable = on_readable
        self._spare = spare
        self._note = note
        self._live_memory_mib = live_memory_mib
        self._discard = discard
        self._processes = processes
        self._containers = containers
        self._leave = leave
        self._boxes = WorkerBoxes(machine, containers, leave)
        self._coming = ComingWorkers(self._boxes, tell)
        self._all: list[WorkerProcess] = []
        #: By the token of the attempt that a worker is kept for or works for.
        self._kept: dict[str, _Kept] = {}
        #: Workers whose keeper is gone and whose container is not.
        self._left: list[WorkerProcess] = []

    # --- starting ------------------------------------------------------------------------------------

    def makes_room(self, attempt: Attempt) -> bool:
        """Tell whether any attempt may start now as far as workers go; those in its way are ended.

        It asks again when they are gone.
        """
        order = attempt.story.order
        if not self._all or order is None or order.token in self._kept or order.token in self._coming:
            return True
        chosen = self._find_free(order)
        ready = True
        for worker in self._all:
            if worker is chosen or not set(worker.suits.gpu_ids) & set(order.gpu_ids):
                continue
            if worker.free:
                worker.end()
            ready = ready and not worker.unsettled
        return self._frees_memory(chosen) and ready

    def is_ready(self, attempt: Attempt) -> bool:
        """Tell whether a worker is there, or can be started at once; one that is to be a container is waited for."""
        order = attempt.story.order
        assert order is not None
        if order.token not in self._coming:
            if order.container is None or order.token in self._kept or self._find_free(order) is not None:
                return True
            self._coming.expect(order.token, lambda: self._new(order))
        return self._coming.has_come(attempt)

    def _frees_memory(self, chosen: WorkerProcess | None) -> bool:
        """End workers without a child, the longest idle first, until the others fit in beside what lives."""
        held = [worker for worker in self._all if worker.token is None and worker is not chosen]
        too_much = sum(worker.suits.memory_mib for worker in held)
        too_much += self._live_memory_mib() - self._machine.memory_mib
        if too_much <= 0 or not held:
            return True
        too_much -= sum(worker.suits.memory_mib for worker in held if not worker.free)
        for worker in sorted((each for each in held if each.free), key=lambda each: each.idle_since):
            if too_much <= 0:
                break
            worker.end()
            too_much -= worker.suits.memory_mib
        return False

    def launch(self, attempt: Attempt) -> Launch:
        """Give a child its worker; return the process that stands for it. Raises AgentError or OSError."""
        start = attempt.story.order
        assert start is not None
        if start.token in self._kept:
            self.release(attempt)  # It is tried for a second time.
        user = job_user(attempt, self._machine)
        with contextlib.ExitStack() as undoing:
            log_fd = open_log(attempt.intended.log_path)
            undoing.callback(os.close, log_fd)
            worker = self._coming.take(start.token) or self._find_free(start) or self._new(start)
            ours, theirs = socket.socketpair()
            undoing.callback(ours.close)
            undoing.callback(theirs.close)
            root_fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            undoing.callback(os.close, root_fd)
            own_log_fd = os.dup(log_fd)
            undoing.pop_all()  # All that could be refused has been given.
        line = task_line(start, worker.environment)
        self._kept[start.token] = _Kept(worker, line, theirs, own_log_fd)
        worker.token = start.token
        attempt.enrolled = True  # The worker is; the shell that stands for the child needs no limits.
        environment = {
            "PATH": DEFAULT_PATH,
            TOKEN_VARIABLE: start.token,
            AGENT_VARIABLE: self._machine.settings.agent_id,
        }
        return Launch(
            start.token,
            CLIENT,
            environment,
            DEFAULT_PATH,
            "/",
            root_fd,
            log_fd,
            ours.detach(),
            worker.isolation,
            user,
            job_umask(start),
        )

    def not_launched(self, attempt: Attempt, reason: str, at: int) -> None:
        """Refuse a child."""
        self._processes.not_launched(attempt, reason, at)

    def spawned(self, attempt: Attempt) -> None:
        """The process that stands for a child is in the journal: now its worker is told, and not before.

        Whatever is killed at whatever moment, a child whose process nobody knows has not been begun.
        """
        kept = self._kept[attempt.token]
        worker = kept.worker
        if worker.contained:
            worker.container = self._boxes.state(worker.name)
            attempt.container_pid = first_process(worker.container)
        name = worker.name if worker.contained else ""
        self._note(attempt, Hosted(attempt.token, worker.pid, worker.start_ticks, worker.sandboxed, name))
        try:
            worker.hand_over(kept.line, kept.client.fileno(), kept.log_fd)
        except OSError as error:
            say(f"{attempt.token}: the warm worker {worker.pid} does not answer: {error}")
            worker.end()
        kept.close()

    def adopted(self, attempt: Attempt) -> None:
        """Know the container that an attempt of an earlier agent works in."""
        self._processes.adopted(attempt)
        hosted = attempt.story.hosted
        if hosted is not None and hosted.container:
            attempt.container_pid = first_process(self._boxes.state(hosted.container))

    def _find_free(self, start: Start) -> WorkerProcess | None:
        if start.worker is None:
            return None
        wanted = suits(start)
        return next((worker for worker in self._all if worker.free and worker.suits == wanted), None)

    def _new(self, child: Start) -> WorkerProcess:
        assert child.worker is not None
        start = worker_start(child, child.worker, f"worker-{uuid.uuid4().hex}")
        # To what prepares a process, the worker is an attempt like any other; the daemon never hears of it.
        stand_in = Attempt(Story(intend(start, self._machine, 0), order=start), self._processes)
        if start.container is not None:
            launch = self._boxes.order(stand_in, start, child.worker)
        else:
            launch = prepare(stand_in, start, self._machine, self._directories, feed=_FEED)
        worker = WorkerProcess(
            start, suits(child), child.worker.idle_s, sandboxed=stand_in.intended.sandboxed
        )
        cgroup = stand_in.cgroup if worker.sandboxed else new_cgroup(self._machine, start)
        directories = [launch.directory] if worker.contained else stand_in.intended.private_directories
        try:
            worker.run(launch, self._machine, cgroup, directories, self._on_readable, self._gone)
        except OSError as error:
            if cgroup is not None:
                self._discard(cgroup)
            for path in directories:
                self._directories.discard_empty(path)
            raise NoWorker(str(error), error.errno) from None
        self._spare(worker.pid)
        self._all.append(worker)
        return worker

    # --- ending --------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Tell whether a worker of this name is there."""
        return any(worker.name == name for worker in self._all)

    def exited(self, attempt: Attempt, code: int, at: int) -> None:
        """Report a child's end when nothing works for it any more."""
        if attempt.story.hosted is None:
            self.lost(attempt, at)  # An earlier agent died before any worker knew of it.
            return
        kept = self._kept.get(attempt.token)
        over_memory = kept is not None and kept.worker.out_of_memory()
        self._boxes.close(attempt, self._processes.end_of(attempt, code, at, over_memory=over_memory))

    def lost(self, attempt: Attempt, at: int) -> None:
        """Report that nobody knows how a child ended."""
        self._leave(attempt, Lost(attempt.token, at))

    def signal_all(
        self, attempt: Attempt, number: signal.Signals, processes: Mapping[int, ProcessStat]
    ) -> int:
        """Signal what works for a child; a container's processes by its keeper, which listens from the beginning."""
        keeper = contained_keeper(attempt, processes)
        if keeper:
            return tell_keeper(keeper, number)
        targets = self.targets(attempt, processes, spare_monitor=number != signal.SIGKILL)
        return signal_together(targets, number)

    def signal_process(self, attempt: Attempt, pid: int, number: signal.Signals) -> None:
        """Signal one of the processes; the first one of a container is perhaps not ours to signal."""
        hosted = attempt.story.hosted
        if not send(pid, number) and pid == attempt.container_pid and hosted is not None:
            tell_keeper(hosted.pid, number)

    def targets(
        self, attempt: Attempt, processes: Mapping[int, ProcessStat], *, spare_monitor: bool
    ) -> set[int]:
        """Return the processes of a child and of its worker."""
        if contained_keeper(attempt, processes):
            return inside_of(attempt, processes)
        own = self._processes.targets(attempt, processes, spare_monitor=spare_monitor)
        return own | worker_pids(attempt.story.hosted, processes, spare_keeper=spare_monitor)

    def entrance(self, _attempt: Attempt) -> dict[str, str] | None:
        """Refuse: a child has no place of its own to enter."""
        raise CannotEnter(
            "the job runs in a warm worker, which it shares with other children of its array: there is no place of"
            " its own to enter. Submit it without windfall:worker to look into it"
        )

    def forget(self, token: str) -> None:
        """Nothing is kept of a child."""

    def release(self, attempt: Attempt) -> None:
        """A child has ended, or was never started; one that was asked to end takes its worker with it."""
        self._coming.drop(attempt.token)
        kept = self._kept.pop(attempt.token, None)
        if kept is None:
            return
        kept.close()
        worker = kept.worker
        worker.token = None
        if not worker.idle:
            worker.idle_since = time.monotonic()  # It is expected to say so, or to end, from now on.
        # The group's count of what was killed for memory never falls: the next child would be blamed for it.
        if attempt.story.asked_to_end or worker.out_of_memory():
            worker.end()

    def _gone(self, worker: WorkerProcess) -> None:
        if worker.contained and self._boxes.lingers(worker.name):
            self._spare(
                self._boxes.state(worker.name).keeper
            )  # A child of ours by now, and ends the container.
            self._left.append(worker)
            return
        self._all.remove(worker)
        if worker.contained:
            self._boxes.forget(worker.name)
        if worker.cgroup is not None:
            worker.out_of_memory()  # Asked while it can be answered: the child's own end may come later.
            self._discard(worker.cgroup)

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock."""
        now = time.monotonic()
        dues = [_due(worker) for worker in self._all if worker.token is None]
        dues += [now + LOOK_EVERY_S] if self._left or self._boxes.holds or self._containers.tidying else []
        dues += [now + _LOOK_AT_COMING_S] if self._coming else []
        return min(dues, default=None)

    def tick(self) -> None:
        """End workers that were idle for long enough, and kill those that do not end."""
        now = time.monotonic()
        left, self._left = self._left, []
        for worker in left:
            self._gone(worker)
        self._boxes.tick()
        for worker in list(self._all):
            if worker.token is not None or now < _due(worker) or worker in self._left:
                continue
            if worker.free:
                worker.end()
            else:
                say(f"the warm worker {worker.pid} does not end and is killed")
                worker.ending_since = now
                worker.kill()


def _due(worker: WorkerProcess) -> float:
    if worker.free:
        return worker.idle_since + worker.idle_s
    since = worker.ending_since if worker.ending_since is not None else worker.idle_since
    return since + (_END_CONTAINER_WITHIN_S if worker.contained else _END_WITHIN_S)
