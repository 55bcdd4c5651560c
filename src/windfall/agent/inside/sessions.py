"""The agent's part in `windfall exec`: which attempt a session is for, its process, and its end with the attempt.

Decides whether an attempt can be entered and what the process is told. It sees nothing of what goes over a session's
line: it hands the connection on. Must not know namespaces or container engines.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

import windfall
from windfall.agent.attempt import Attempt
from windfall.agent.companions import OnReadable
from windfall.agent.connection import Connection
from windfall.agent.credentials import JobUser
from windfall.agent.errors import AgentError, CannotEnter, CannotStart
from windfall.agent.inside.frames import ended
from windfall.agent.machine import Machine
from windfall.agent.messages import Exec
from windfall.agent.orphans import Orphans
from windfall.agent.preparation import job_user
from windfall.agent.processes import AGENT_VARIABLE, TOKEN_VARIABLE
from windfall.agent.sandbox import DEFAULT_PATH
from windfall.agent.speech import say

MOST_PER_ATTEMPT = 8
#: How long it may take until a new attempt is under its limits.
_LIMITS_WITHIN_MS = 1_000
_LOOK_EVERY_S = 0.05
#: How long it may take until it is seen that a command used up the attempt's memory.
_SHOWS_WITHIN_S = 5.0
JOB_ENDED = "the job has ended, and the session with it"
_KEEPER = "import sys; sys.path.insert(0, sys.argv[1]); from windfall.agent.inside.keeper import main; sys.exit(main())"


class Sessions:
    """The sessions that are open, each with the line to its process."""

    def __init__(
        self,
        machine: Machine,
        attempts: Mapping[str, Attempt],
        orphans: Orphans,
        on_readable: OnReadable,
        close: Callable[[Connection], None],
    ) -> None:
        self._machine = machine
        self._attempts = attempts
        self._orphans = orphans
        self._on_readable = on_readable
        self._close = close
        #: The line to each session's process, with that process and the attempt.
        self._open: dict[socket.socket, tuple[int, Attempt]] = {}
        #: Asked for in an attempt that has just been started and is not under its limits yet.
        self._early: dict[Connection, Exec] = {}

    def begin(self, connection: Connection, asked: Exec) -> None:
        """Give the connection to a new session; what is in the way is told on it. It is closed here either way."""
        attempt = self._attempts.get(asked.token)
        if attempt is not None and self._gets_limits_soon(attempt):
            self._early[connection] = asked
            return
        try:
            self._start(connection, *self._orders(asked))
        except AgentError as error:
            connection.send_bytes(ended(None, str(error)))
        except OSError as error:
            connection.send_bytes(
                ended(None, f"a session cannot be started on this machine: {error.strerror}")
            )
        self._close(connection)

    def _gets_limits_soon(self, attempt: Attempt) -> bool:
        if attempt.enrolled or self._machine.cgroups is None or attempt.started_at is None:
            return False
        return attempt.running and time.time() * 1000 < attempt.started_at + _LIMITS_WITHIN_MS

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do without an event, on the monotonic clock."""
        return time.monotonic() + _LOOK_EVERY_S if self._early else None

    def tick(self) -> None:
        """End the sessions of attempts that have ended, and begin those that came early."""
        for line, (_, attempt) in list(self._open.items()):
            if attempt.gone:
                self._drop(line, JOB_ENDED)
        early, self._early = self._early, {}
        for connection, asked in early.items():
            if not connection.closed:
                self.begin(connection, asked)

    def _orders(self, asked: Exec) -> tuple[Attempt, dict[str, Any]]:
        attempt = self._attempts.get(asked.token)
        if attempt is None or attempt.gone:
            raise CannotEnter(JOB_ENDED)
        spawned = attempt.spawned
        if spawned is None or attempt.started_at is None:
            raise CannotEnter("the job is just being started; try again in a moment")
        if len(attempt.keepers) >= MOST_PER_ATTEMPT:
            raise CannotEnter(f"{MOST_PER_ATTEMPT} sessions are open in this job; close one of them first")
        user = self._user(attempt)
        return attempt, {
            **{name: getattr(asked, name) for name in asked.__struct_fields__},
            "pid": spawned.pid,
            "start_ticks": spawned.start_ticks,
            "ticks_span": spawned.ticks_span,
            "sandboxed": attempt.intended.sandboxed,
            "user": [user.uid, user.gid, list(user.groups)] if user.drop else None,
            "cgroup_files": [] if attempt.cgroup is None else attempt.cgroup.procs_files,
            "environment": self._least_environment(attempt, user),
            "container": attempt.launcher.entrance(attempt),
        }

    def _user(self, attempt: Attempt) -> JobUser:
        try:
            return job_user(attempt, self._machine)
        except CannotStart as error:
            raise CannotEnter(str(error)) from None

    def _least_environment(self, attempt: Attempt, user: JobUser) -> dict[str, str]:
        """What a command gets where the job's program has overwritten its own environment."""
        devices = ",".join(attempt.intended.gpu_ids)
        return {
            "PATH": DEFAULT_PATH,
            "USER": user.name,
            "LOGNAME": user.name,
            "CUDA_VISIBLE_DEVICES": devices,
            "NVIDIA_VISIBLE_DEVICES": devices or "void",
            TOKEN_VARIABLE: attempt.token,
            AGENT_VARIABLE: self._machine.settings.agent_id,
        }

    def _start(self, connection: Connection, attempt: Attempt, orders: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        line = connection.dup()
        root = os.path.dirname(os.path.dirname(os.path.abspath(windfall.__file__)))
        command = [sys.executable, "-I", "-S", "-c", _KEEPER, root]
        try:
            pid = os.posix_spawn(
                command[0],
                command,
                {"PATH": DEFAULT_PATH},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, line, 0),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 1),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE),
            )
        except OSError:
            ours.close()
            raise
        finally:
            os.close(line)
            theirs.close()
        self._orphans.spare(pid)
        ours.setblocking(False)  # noqa: FBT003 - it takes no keyword
        try:
            whole = msgspec.json.encode(orders) + b"\n"
            if ours.send(whole) < len(whole):
                raise BlockingIOError
        except OSError as error:
            say(f"a session for {attempt.token} is not begun: {error}")
            ours.close()  # Its process ends when it finds the line closed.
            raise CannotEnter("the command is too long") from None
        self._open[ours] = (pid, attempt)
        attempt.keepers.add(pid)
        if attempt.cgroup is not None:
            attempt.cgroup.end_together(together=False)  # The command alone, if it needs too much.
        self._on_readable(ours.fileno(), lambda: self._drop(ours, ""))

    def _drop(self, line: socket.socket, reason: str) -> None:
        """Let go of a session, which ends with its line; `reason` is told the person."""
        if line not in self._open:
            return
        pid, attempt = self._open.pop(line)
        attempt.keepers.discard(pid)
        attempt.entered_until = time.monotonic() + _SHOWS_WITHIN_S
        if attempt.cgroup is not None and not attempt.keepers:
            attempt.cgroup.end_together(together=True)
        self._on_readable(line.fileno(), None)
        if reason:
            try:
                line.send(reason.encode())
            except OSError as error:
                say(f"a session had ended before it was told why: {error}")
        line.close()
