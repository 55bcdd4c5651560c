"""The client's end of a session inside a job: the terminal or pipes here, requests to the daemon there.

Two things go on at once, each with a connection of its own: one thread fetches what the command writes and prints it,
the other sends what is typed, the terminal's size, and a word now and then that somebody is here. The terminal is put
back as it was however this ends. Must not know how a command is started.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import threading
import time
import tty
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from windfall.agent.inside.frames import (
    ENDED,
    ERRORS,
    OUTPUT,
    STARTED,
    FrameReader,
    read_ended,
)
from windfall.backoff import Backoff, Pauses
from windfall.cli.client import Client, connect
from windfall.cli.errors import CliError, NoDaemon
from windfall.cli.notes import note

#: How often the daemon hears from a client that has nothing to send.
_ALIVE_EVERY_S = 5.0
#: For how long a daemon that does not answer is asked again, and how often.
_AGAIN_WITHIN_S, _AGAIN = 10.0, Pauses(0.5, 0.5)
#: The other thread may be in the middle of a request.
_LEAVES_WITHIN_S = 2.0
_INPUT_BYTES = 1 << 17
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_CTRL_C = b"\x03"


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What is to be run, and where."""

    job_id: str
    command: tuple[str, ...]
    shell: str
    tty: bool
    term: str
    #: Rows and columns.
    size: tuple[int, int]


class TerminalSession:
    """One session, from its start to its end."""

    def __init__(self, client: Client, data: Path | None, wanted: SessionRequest) -> None:
        self._client = client
        self._data = data
        self._wanted = wanted
        self._id = uuid.uuid4().hex
        self._reader = FrameReader()
        self._position = 0
        self._over = threading.Event()
        #: Set while the daemon does not answer: Ctrl-C then ends this side.
        self._in_trouble = threading.Event()
        self._resized = False
        self._wake, self._notify = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._sender = threading.Thread(target=self._send_input, name="exec input", daemon=True)

    def run(self) -> int:
        """Run the command; the answer is its exit code."""
        self._start()
        try:
            with self._signals(), contextlib.ExitStack() as terminal:
                code, message = self._serve(terminal)
        finally:
            self._leave()
        if message is not None:
            note(f"{self._wanted.job_id}: {message}")
        return 1 if code is None else code

    def _leave(self) -> None:
        """Tell the daemon and the other thread that this is over."""
        self._over.set()
        os.write(self._notify, b"\0")
        with contextlib.suppress(CliError):
            self._client.own("EndExec", session=self._id)
        if self._sender.is_alive():
            self._sender.join(_LEAVES_WITHIN_S)
        if not self._sender.is_alive():
            os.close(self._notify)
            os.close(self._wake)

    def _start(self) -> None:
        wanted = self._wanted
        rows, columns = wanted.size
        self._client.own(
            "StartExec",
            jobId=wanted.job_id,
            session=self._id,
            command=list(wanted.command) or None,
            shell=wanted.shell if wanted.shell.startswith("/") else None,
            tty=wanted.tty,
            rows=rows,
            columns=columns,
            term=wanted.term,
        )

    def _serve(self, terminal: contextlib.ExitStack) -> tuple[int | None, str | None]:
        """Print what comes until the command has ended; its exit code, and what to say of it."""
        while True:
            for kind, content in self._reader.feed(self._fetched()):
                if kind == STARTED:
                    terminal.enter_context(self._terminal())
                    self._sender.start()
                elif kind == ENDED:
                    return read_ended(content)
                elif kind in (OUTPUT, ERRORS):
                    _write(_STDERR if kind == ERRORS else _STDOUT, content)

    def _fetched(self) -> bytes:
        content: bytes = self._asked(
            lambda: self._client.own_bytes("ReadExec", session=self._id, position=self._position)
        )
        self._position += len(content)
        return content

    def _asked(self, ask: Any) -> Any:
        """Ask the daemon, and for a while once more if it does not answer: no request does anything twice."""
        backoff = Backoff(_AGAIN, patience_s=_AGAIN_WITHIN_S, clock=time.monotonic)
        while True:
            try:
                answer = ask()
                self._in_trouble.clear()
                return answer
            except NoDaemon as error:
                if backoff.gives_up():
                    raise CliError(
                        f"the session has ended: {error}. The job goes on without the daemon"
                    ) from None
                self._in_trouble.set()
                if self._over.wait(backoff.failed()):
                    raise

    # --- what goes there -----------------------------------------------------------------------------

    def _send_input(self) -> None:
        """Send input, sizes and signs of life until the session is over."""
        try:
            with contextlib.closing(connect(self._data)) as client:
                self._send_all(client)
        except CliError:
            return  # The thread that fetches meets the same and says so.

    def _send_all(self, client: Client) -> None:
        written, reads = 0, _may_read(_STDIN)
        while not self._over.is_set():
            watched = [self._wake, *([_STDIN] if reads else [])]
            ready, _, _ = select.select(watched, [], [], _ALIVE_EVERY_S)
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._over.is_set():
                return
            control: dict[str, Any] = {}
            content = b""
            if _STDIN in ready:
                content = _read(_STDIN)
                reads = bool(content)
                if not content:
                    control["end"] = True
            if self._resized:
                self._resized = False
                control["rows"], control["columns"] = _size()
            if self._in_trouble.is_set() and self._wanted.tty and _CTRL_C in content:
                os.kill(os.getpid(), signal.SIGINT)
                return
            written = self._send(client, written, content, control)

    def _send(self, client: Client, written: int, content: bytes, control: dict[str, Any]) -> int:
        """Send one piece of input, whole; the position after it."""
        end = written + len(content)
        while not self._over.is_set():
            rest = content[len(content) - (end - written) :] if end > written else b""
            params = {
                "session": self._id,
                "position": written,
                "content": base64.b64encode(rest).decode(),
                **control,
            }
            answer = self._asked(lambda: client.own("WriteExec", **params))  # noqa: B023 (called at once)
            written = int(answer["position"])
            if written >= end:
                break
        return written

    # --- the terminal --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _terminal(self) -> Iterator[None]:
        """Give every key to the command, and the terminal back as it was."""
        if not self._wanted.tty or not sys.stdin.isatty():
            yield
            return
        before = termios.tcgetattr(_STDIN)
        try:
            tty.setraw(_STDIN, termios.TCSADRAIN)  # What was typed ahead is kept.
            yield
        finally:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Follow the terminal's size; leave in order when this process is told to end."""
        numbers = {
            signal.SIGWINCH: self._on_resize,
            signal.SIGTERM: _leave,
            signal.SIGHUP: _leave,
        }
        before = {number: signal.signal(number, handler) for number, handler in numbers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_resize(self, _number: int, _frame: FrameType | None) -> None:
        if self._wanted.tty:
            self._resized = True
            with contextlib.suppress(OSError):
                os.write(self._notify, b"\0")


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _may_read(fd: int) -> bool:
    """Whether standard input is there and reading it does not stop this process, as in a shell's background."""
    try:
        return not os.isatty(fd) or os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _INPUT_BYTES)
    except OSError:
        return b""


def _write(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


def _size() -> tuple[int, int]:
    """The rows and columns of the terminal now."""
    try:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(_STDOUT, termios.TIOCGWINSZ, b"\0" * 8))
    except OSError:
        return 24, 80
    return rows, columns
