"""The agent's end of one warm worker: its keeper's process and the socket to it.

Decides how a keeper is started and how a child is handed over. Must not know which child gets which worker, nor when
one must end.
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable

import msgspec

import windfall
from windfall.agent.cgroups import AttemptCgroup
from windfall.agent.companions import OnReadable
from windfall.agent.container.state import KeeperState
from windfall.agent.errors import CannotIsolate
from windfall.agent.machine import Machine
from windfall.agent.messages import Start
from windfall.agent.processes import members, read_stat, send, snapshot
from windfall.agent.sandbox import DEFAULT_PATH, find_program
from windfall.agent.spawner import Launch, missing_program
from windfall.agent.speech import say
from windfall.agent.workers.commands import Suits
from windfall.agent.workers.hosts import WARM
from windfall.agent.workers.words import OUT_OF_MEMORY

_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(windfall.__file__)))


class WorkerProcess:
    """A keeper that runs, and what the agent knows of its state."""

    def __init__(self, start: Start, wanted: Suits, idle_s: float, *, sandboxed: bool) -> None:
        self.name = start.token
        self.suits = wanted
        #: The variables that it was started with; a child is told the others.
        self.environment = start.environment
        self.idle_s = idle_s
        self.sandboxed = sandboxed
        self.pid = 0
        self.start_ticks = 0
        self.isolation = ""
        self.cgroup: AttemptCgroup | None = None
        #: The attempt that it works for.
        self.token: str | None = None
        #: Whether it has said that it can take a child.
        self.idle = True
        self.idle_since = time.monotonic()
        self.ending_since: float | None = None
        #: Whether it is a container, and what is known of that.
        self.contained = start.container is not None
        self.container = KeeperState()
        self._out_of_memory = False
        self._socket: socket.socket | None = None

    @property
    def free(self) -> bool:
        """Whether it can be given a child now."""
        return self.idle and self.token is None and self.ending_since is None

    @property
    def alive(self) -> bool:
        """Whether its keeper is there, as far as is known."""
        return self._socket is not None

    @property
    def unsettled(self) -> bool:
        """Whether it works for no attempt and yet is not known to be idle: it ends, or is about to say."""
        return self.token is None and not self.free

    def out_of_memory(self) -> bool:
        """Tell whether the kernel killed it for memory."""
        if self.contained and not self._out_of_memory:
            self._hear()  # Said before the child's end, and perhaps not heard yet.
        if not self._out_of_memory and self.cgroup is not None:
            self._out_of_memory = self.cgroup.out_of_memory()
        return self._out_of_memory

    def run(
        self,
        launch: Launch,
        machine: Machine,
        cgroup: AttemptCgroup | None,
        directories: Iterable[str],
        on_readable: OnReadable,
        on_gone: Callable[[WorkerProcess], None],
    ) -> None:
        """Start the keeper with what `launch` says it is to run; closes the descriptors of `launch`."""
        user = launch.user if launch.user is not None and launch.user.drop else None
        files = cgroup.procs_files if cgroup is not None else []
        plan = {
            "argv": launch.argv,
            "environment": launch.environment,
            "user": [user.uid, user.gid, list(user.groups)] if user is not None else None,
            "umask": launch.umask,
            # A sandbox joins by itself, before anything of the job runs.
            "join": [] if self.sandboxed else files,
            "cgroups": [os.path.dirname(path) for path in files],
            "directories": list(directories),
            "container": launch.directory if self.contained else None,
        }
        fds = [fd for fd in (launch.directory_fd, launch.stdin_fd) if fd is not None]
        with contextlib.ExitStack() as closing:
            for fd in (*fds, launch.log_fd):
                closing.callback(os.close, fd)
            plan_fd = memory_file(msgspec.json.encode(plan))
            closing.callback(os.close, plan_fd)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            closing.callback(theirs.close)
            try:
                if not self.sandboxed and "/" not in launch.argv[0]:
                    _find(launch)
                self.pid = _spawn(theirs.fileno())
                _send(ours, b"plan", [plan_fd, *fds])
            except OSError:
                ours.close()
                raise
        stat = read_stat(self.pid)
        self.start_ticks = stat.start_ticks if stat is not None else 0
        self.cgroup = cgroup
        self.isolation = f"{WARM}, {launch.isolation}"
        if files and not self.sandboxed:
            self.isolation += f" + {machine.cgroup_words}"
        ours.setblocking(False)  # noqa: FBT003 - it takes no keyword
        self._socket = ours
        on_readable(ours.fileno(), lambda: self._receive(on_readable, on_gone))

    def hand_over(self, line: bytes, client_fd: int, log_fd: int) -> None:
        """Give it the child that it was kept for; raises OSError when it has ended."""
        if self._socket is None:
            raise BrokenPipeError("the worker is gone")
        line_fd = memory_file(line)
        try:
            _send(self._socket, b"task", [line_fd, client_fd, log_fd])
        finally:
            os.close(line_fd)
        self.idle = False

    def end(self) -> None:
        """Have it end when no child is under way; it is gone when its socket says so."""
        if self.ending_since is not None or self._socket is None:
            return
        self.ending_since = time.monotonic()
        self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it now, keeper and all; a container is ended by the process that keeps it, which outlives its own."""
        if self.contained:
            send(self.pid, signal.SIGKILL)
            return
        for stat in members(snapshot(), {self.pid}).get(self.pid, []):
            send(stat.pid, signal.SIGKILL)

    def _receive(self, on_readable: OnReadable, on_gone: Callable[[WorkerProcess], None]) -> None:
        if self._socket is None or self._hear():
            return
        on_readable(self._socket.fileno(), None)
        self._socket.close()
        self._socket = None
        self.ending_since = self.ending_since or time.monotonic()
        on_gone(self)

    def _hear(self) -> bool:
        """Take what its keeper says; whether it is still there to say something."""
        while self._socket is not None:
            try:
                word = self._socket.recv(16)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not word:
                return False
            if word == OUT_OF_MEMORY:
                self._out_of_memory = True
            else:
                self.idle, self.idle_since = True, time.monotonic()
        return False


def new_cgroup(machine: Machine, start: Start) -> AttemptCgroup | None:
    """Make the limits of a worker, which are those of each of its children."""
    try:
        return machine.new_cgroup(start.token, start.memory_mib, start.vcpus)
    except CannotIsolate as error:
        say(f"{error}; the worker's memory is watched once a second instead")
        return None


def memory_file(content: bytes) -> int:
    """Return a descriptor of a nameless file with this content."""
    fd = os.memfd_create("windfall-worker", os.MFD_CLOEXEC)
    while content:
        content = content[os.write(fd, content) :]
    return fd


def _find(launch: Launch) -> None:
    if find_program(launch.argv[0], launch.path) is None:
        raise FileNotFoundError(missing_program(launch.argv[0], launch.path))


def _spawn(control_fd: int) -> int:
    # Without site: it needs the standard library and this package alone.
    command = [sys.executable, "-P", "-S", "-m", "windfall.agent.workers.keeper"]
    return os.posix_spawn(
        command[0],
        command,
        {"PATH": DEFAULT_PATH, "PYTHONPATH": _PACKAGE_ROOT},
        file_actions=[(os.POSIX_SPAWN_DUP2, control_fd, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE),
    )


def _send(sock: socket.socket, word: bytes, fds: list[int]) -> None:
    rights = array.array("i", fds)
    sock.sendmsg([word], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
