"""The agent's end of its courier: starts the process when there is work for it, again when it dies, and never waits.

Decides when a dead courier is replaced. Must not know attempts: whoever uses it repeats what is open when it is told
that a courier is new.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from windfall.agent.courier.messages import Line, Report, decode_reports, encode
from windfall.agent.launching import agent_environment
from windfall.agent.messages import LineReader
from windfall.agent.settings import AgentSettings
from windfall.agent.speech import say

_CHUNK_BYTES = 1 << 20
_BACKOFF_FIRST_S = 0.05
_BACKOFF_MOST_S = 5.0
_HEALTHY_AFTER_S = 10.0
_PUSH_EVERY_S = 0.02


class OnReadable(Protocol):
    """The loop's way to be called when a descriptor has something to read; None ends it."""

    def __call__(self, fd: int, callback: Callable[[], None] | None, /) -> None:
        """Register or forget a descriptor."""


class CourierLink:
    """A courier that is there when it is needed."""

    def __init__(
        self, settings: AgentSettings, on_readable: OnReadable, on_started: Callable[[int], None]
    ) -> None:
        self._settings = settings
        self._on_readable = on_readable
        self._on_started = on_started
        #: Called with each report.
        self.on_report: Callable[[Report], None] = lambda _: None
        #: Called when a courier is new and must be told everything.
        self.on_new: Callable[[], None] = lambda: None
        self._socket: socket.socket | None = None
        self._reader = LineReader()
        self._unsent = bytearray()
        self._started = 0.0
        self._backoff_s = _BACKOFF_FIRST_S
        self._start_due: float | None = None

    @property
    def running(self) -> bool:
        """Whether a courier is believed to be there."""
        return self._socket is not None

    def send(self, line: Line) -> None:
        """Tell the courier, if one is there; a new one is started otherwise and asks for everything (`on_new`)."""
        if self._socket is None:
            if self._start_due is None:
                self._start_due = time.monotonic()
            return
        self._unsent += encode([line])
        self._push()

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock."""
        if self._socket is None:
            return self._start_due
        return time.monotonic() + _PUSH_EVERY_S if self._unsent else None

    def tick(self) -> None:
        """Start a courier that is due; push what did not fit into the socket before."""
        if self._socket is not None:
            self._push()
        elif self._start_due is not None and time.monotonic() >= self._start_due:
            self._start()

    def _start(self) -> None:
        self._start_due = None
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._start_later(f"the courier cannot be started: {error}")
            return
        command = [sys.executable, "-P", "-m", "windfall.agent.courier"]
        command.append(msgspec.json.encode(self._settings).decode())
        try:
            pid = os.posix_spawn(
                command[0],
                command,
                agent_environment(),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, 2, 1),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE),
            )
        except OSError as error:
            ours.close()
            self._start_later(f"the courier cannot be started: {error}")
            return
        finally:
            theirs.close()
        ours.setblocking(False)  # noqa: FBT003 - it takes no keyword
        self._socket, self._reader, self._unsent = ours, LineReader(), bytearray()
        self._started = time.monotonic()
        self._on_started(pid)
        self._on_readable(ours.fileno(), self._receive)
        self.on_new()

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            chunk = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._lost()
            return
        lines = self._reader.feed(chunk)
        if lines:
            try:
                reports = decode_reports(lines)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                say(f"the courier said what nobody understands: {error}")
                self._lost()  # It ends when it finds the line closed.
                return
            for report in reports:
                self.on_report(report)

    def _push(self) -> None:
        while self._unsent and self._socket is not None:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self._lost()
                return
            del self._unsent[:sent]

    def _lost(self) -> None:
        if self._socket is None:
            return
        self._on_readable(self._socket.fileno(), None)
        self._socket.close()
        self._socket = None
        self._on_started(0)
        lived_s = time.monotonic() - self._started
        if lived_s >= _HEALTHY_AFTER_S:
            self._backoff_s = _BACKOFF_FIRST_S
        self._start_later(f"the courier ended after {lived_s:.1f} s")

    def _start_later(self, why: str) -> None:
        self._start_due = time.monotonic() + self._backoff_s
        say(f"{why}; starting it again in {self._backoff_s:.2f} s")
        self._backoff_s = min(_BACKOFF_MOST_S, self._backoff_s * 2)
