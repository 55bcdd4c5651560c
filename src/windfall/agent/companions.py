"""A process that works beside the agent: started when there is work for it, again when it dies, and never waited for.

The line to it is its standard input, a socket of JSON lines. Decides when a dead one is replaced and when an idle one
is let go. Must not know what is said over the line: its user repeats what is open when it hears that one is new.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from windfall.agent.line_reader import LineReader
from windfall.agent.speech import say

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 8 << 20
_BACKOFF_FIRST_S = 0.05
_BACKOFF_MOST_S = 5.0
_HEALTHY_AFTER_S = 10.0
_PUSH_EVERY_S = 0.02


class OnReadable(Protocol):
    """The loop's way to be called when a descriptor has something to read; None ends it."""

    def __call__(self, fd: int, callback: Callable[[], None] | None, /) -> None:
        """Register or forget a descriptor."""


class Companion:
    """One process that is there when it is needed."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        on_readable: OnReadable,
        on_started: Callable[[int], None],
    ) -> None:
        self._name = name
        self._command = list(command)
        self._environment = environment
        self._on_readable = on_readable
        self._on_started = on_started
        #: Called with complete lines; what it cannot decode ends the companion.
        self.on_lines: Callable[[bytes], None] = lambda _: None
        #: Called when a process is new and must be told everything.
        self.on_new: Callable[[], None] = lambda: None
        self._socket: socket.socket | None = None
        self._reader = LineReader()
        self._without_end = 0
        self._unsent = bytearray()
        self._started = 0.0
        self._backoff_s = _BACKOFF_FIRST_S
        self._start_due: float | None = None

    @property
    def running(self) -> bool:
        """Whether the process is believed to be there."""
        return self._socket is not None

    def send(self, content: bytes) -> None:
        """Tell the process, if it is there; a new one is started otherwise and asks for everything (`on_new`)."""
        if self._socket is None:
            if self._start_due is None:
                self._start_due = time.monotonic()
            return
        self._unsent += content
        self._push()

    def retire(self) -> None:
        """Let the process go: it ends when it finds its line closed, and is not replaced until somebody sends."""
        self._start_due = None
        if self._socket is not None:
            self._close()

    @property
    def next_due(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock."""
        if self._socket is None:
            return self._start_due
        return time.monotonic() + _PUSH_EVERY_S if self._unsent else None

    def tick(self) -> None:
        """Start a process that is due; push what did not fit into the socket before."""
        if self._socket is not None:
            self._push()
        elif self._start_due is not None and time.monotonic() >= self._start_due:
            self._start()

    def _start(self) -> None:
        self._start_due = None
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._start_later(f"{self._name} cannot be started: {error}")
            return
        try:
            pid = os.posix_spawn(
                self._command[0],
                self._command,
                self._environment(),
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
            self._start_later(f"{self._name} cannot be started: {error}")
            return
        finally:
            theirs.close()
        ours.setblocking(False)  # noqa: FBT003 - it takes no keyword
        self._socket, self._reader, self._unsent = ours, LineReader(), bytearray()
        self._without_end = 0
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
        try:
            lines = self._reader.feed(chunk)
            self._without_end += len(chunk)
            if lines:
                self._without_end = 0
                self.on_lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            say(f"{self._name} sent a line that cannot be read: {error}")
            self._lost()  # It ends when it finds the line closed.
            return
        if self._without_end > _LONGEST_LINE_BYTES:
            say(f"{self._name} sent a line of more than {_LONGEST_LINE_BYTES >> 20} MiB")
            self._lost()

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
        self._close()
        lived_s = time.monotonic() - self._started
        if lived_s >= _HEALTHY_AFTER_S:
            self._backoff_s = _BACKOFF_FIRST_S
        self._start_later(f"{self._name} ended after {lived_s:.1f} s")

    def _close(self) -> None:
        assert self._socket is not None
        self._on_readable(self._socket.fileno(), None)
        self._socket.close()
        self._socket = None

    def _start_later(self, why: str) -> None:
        self._start_due = time.monotonic() + self._backoff_s
        say(f"{why}; starting it again in {self._backoff_s:.2f} s")
        self._backoff_s = min(_BACKOFF_MOST_S, self._backoff_s * 2)
