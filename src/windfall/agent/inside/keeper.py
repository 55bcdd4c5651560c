"""The process that keeps one session of `windfall exec`: it starts the command and carries bytes both ways.

    python -I -S -c "... keeper.main()"

Its standard input is the connection on which the daemon asked for the session, its standard output the line to the
agent, on which its orders come first. It ends with the command, when the daemon hangs up, and when the agent says so or
is gone; then it ends every process of the session. What it holds in memory is bounded in both directions: a command
whose output nobody fetches waits, and so does a client whose input nobody reads.

Decides when a session is over. Must not know attempts.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time

from windfall.agent.inside.frames import (
    INPUT,
    INPUT_END,
    STARTED,
    WINDOW,
    BadFrame,
    FrameReader,
    ended,
    frame,
    read_window,
)
from windfall.agent.inside.local_command import CannotRun, LocalCommand
from windfall.agent.inside.marking import end_processes

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from windfall.agent.inside.container_command import ContainerCommand

#: How much of either direction is held here before no more is read.
_HELD_BYTES = 1 << 18
_CHUNK_BYTES = 1 << 16
#: After the command's end its last output is waited for as long as some comes, and then for this long; no more of it
#: than pipes can hold.
_LAST_OUTPUT_S, _LAST_OUTPUT_BYTES = 0.5, 4 << 20
#: What is left to tell at the end is given up when nobody has taken any of it for this long.
_TAKEN_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.2
#: How long the agent may take to learn of a container's end; engines take their time over it.
_HEARD_WITHIN_S = 15.0
_KILLED = 137
GONE = "the agent of this machine was ended, and the session with it; the job goes on"


class Session:
    """The line to the daemon, the line to the agent, and the command."""

    def __init__(
        self, line: socket.socket, agent: socket.socket, command: LocalCommand | ContainerCommand
    ) -> None:
        self._line, self._agent, self._command = line, agent, command
        self._reader = FrameReader()
        self._unsent = bytearray(frame(STARTED))
        self._input = bytearray()
        self._input_ended = False
        self._hung_up = False
        #: Why it is ended before the command has.
        self._reason: str | None = None
        self._wake, notify = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(notify, False)
        signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Carry bytes until the command has ended, or the session has."""
        while not self._is_over and self._command.exit_code() is None:
            self._turn()

    def drain(self) -> None:
        """Pass on what the command has written last; its processes are gone, those that hide do not hold this up."""
        quiet_since, passed = time.monotonic(), 0
        while self._command.outputs and not self._is_over and passed < _LAST_OUTPUT_BYTES:
            moved = self._turn()
            passed += moved
            if moved or len(self._unsent) >= _HELD_BYTES:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > _LAST_OUTPUT_S:
                return

    @property
    def _is_over(self) -> bool:
        return self._hung_up or self._reason is not None

    def finish(self) -> None:
        """Tell the daemon how it ended."""
        code = self._command.exit_code()
        if code == _KILLED and not self._is_over:
            # The end of the job kills all that runs in it.
            within_s = _HEARD_WITHIN_S if self._command.place_is_gone() else _LAST_OUTPUT_S
            if select.select([self._agent], [], [], within_s)[0]:
                self._hear_agent({self._agent.fileno(): 0})
        self._unsent += (
            ended(code, self._command.failure) if self._reason is None else ended(None, self._reason)
        )
        taken_at = time.monotonic()
        while self._unsent and not self._hung_up and time.monotonic() - taken_at < _TAKEN_WITHIN_S:
            _, writable, _ = select.select([], [self._line], [], _LOOK_EVERY_S)
            if writable:
                self._send()
                taken_at = time.monotonic()
        if not self._hung_up:
            self._wait_for_the_daemon(taken_at + _TAKEN_WITHIN_S)

    def _wait_for_the_daemon(self, deadline: float) -> None:
        """Read what still comes until the daemon hangs up: a line closed with something unread loses its last words."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)
            while time.monotonic() < deadline:
                ready, _, _ = select.select([self._line, self._agent], [], [], _LOOK_EVERY_S)
                if (self._line in ready and not self._line.recv(_CHUNK_BYTES)) or self._agent in ready:
                    return

    def _turn(self) -> int:
        """Wait for something and pass it on; how many bytes the command wrote."""
        command = self._command
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._agent, select.POLLIN)
        takes_input = len(self._input) < _HELD_BYTES
        poll.register(
            self._line, (select.POLLIN if takes_input else 0) | (select.POLLOUT if self._unsent else 0)
        )
        wanted: dict[int, int] = {}
        if len(self._unsent) < _HELD_BYTES:
            wanted = dict.fromkeys(command.outputs, select.POLLIN)
        if self._input and command.input_fd >= 0:
            wanted[command.input_fd] = wanted.get(command.input_fd, 0) | select.POLLOUT
        for fd, events in wanted.items():
            poll.register(fd, events)
        ready = dict(poll.poll(_LOOK_EVERY_S * 1000))
        self._hear_signals(ready)
        self._hear_agent(ready)
        happened = ready.get(self._line.fileno(), 0)
        if happened & select.POLLOUT:
            self._send()
        if happened & ~select.POLLOUT and takes_input:
            self._receive()
        if happened & (select.POLLHUP | select.POLLERR):
            self._hung_up = True
        moved = 0
        for fd in list(command.outputs):
            is_ready = ready.get(fd, 0) & ~select.POLLOUT or command.has_waiting
            if is_ready and len(self._unsent) < _HELD_BYTES:
                for kind, content in command.take(fd):
                    moved += len(content)
                    self._unsent += frame(kind, content)
        self._feed()
        if self._unsent:
            self._send()
        return moved

    def _hear_signals(self, ready: dict[int, int]) -> None:
        if self._wake in ready:
            os.read(self._wake, 4096)

    def _hear_agent(self, ready: dict[int, int]) -> None:
        if self._agent.fileno() not in ready:
            return
        try:
            told = self._agent.recv(4096)
        except OSError:
            told = b""
        self._reason = told.decode(errors="replace").strip() or GONE

    def _receive(self) -> None:
        try:
            chunk = self._line.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._hung_up = True
            return
        try:
            for kind, content in self._reader.feed(chunk):
                if kind == INPUT and not self._input_ended:
                    self._input += content
                elif kind == INPUT_END:
                    self._input_ended = True
                elif kind == WINDOW:
                    self._command.resize(*read_window(content))
        except BadFrame:
            self._hung_up = True

    def _feed(self) -> None:
        command = self._command
        if self._input and command.input_fd >= 0:
            del self._input[: command.give(bytes(self._input[:_CHUNK_BYTES]))]
        if command.input_fd < 0:
            self._input.clear()
        elif self._input_ended and not self._input:
            command.close_input()

    def _send(self) -> None:
        try:
            sent = self._line.send(self._unsent[:_CHUNK_BYTES])
            del self._unsent[:sent]
        except BlockingIOError:
            return
        except OSError:
            self._hung_up = True


def start(orders: dict[str, Any], *lines: socket.socket) -> LocalCommand | ContainerCommand:
    """Start the command that the orders describe; raises CannotRun, also when a line is hung up meanwhile."""
    if orders["container"] is None:
        return LocalCommand(orders, tuple(line.fileno() for line in lines))
    from windfall.agent.inside.container_command import ContainerCommand

    return ContainerCommand(orders)


def read_orders(agent: socket.socket) -> dict[str, Any] | None:
    """The orders; None when the agent is gone before it has given any."""
    told = b""
    while not told.endswith(b"\n"):
        chunk = agent.recv(_CHUNK_BYTES)
        if not chunk:
            return None
        told += chunk
    orders: dict[str, Any] = json.loads(told)
    return orders


def main() -> int:
    """Keep one session."""
    line, agent = socket.socket(fileno=0), socket.socket(fileno=1)
    for fd in (0, 1):
        os.set_inheritable(fd, False)  # noqa: FBT003 - it takes no keyword
    os.chdir("/")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    orders = read_orders(agent)
    if orders is None:
        return 0
    line.setblocking(True)  # noqa: FBT003 - it takes no keyword
    try:
        command = start(orders, line, agent)
    except CannotRun as error:
        with contextlib.suppress(OSError):  # There may be nobody any more.
            line.sendall(ended(error.code, str(error)))
        return 0
    line.setblocking(False)  # noqa: FBT003 - it takes no keyword
    session = Session(line, agent, command)
    session.run()
    # First the processes: one in the background would write for ever.
    if not end_processes(orders["session"], command.leader, command.kill):
        sys.stderr.write(f"windfall agent: processes of session {orders['session']} do not end\n")
    session.drain()
    session.finish()
    return 0
