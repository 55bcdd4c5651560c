"""`windfall exec` as a person runs it: at a real terminal, or between pipes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.acceptance.daemon import RunningWindfall
from tests.waiting import wait_until
from windfall.agent.processes import AGENT_VARIABLE, EXEC_VARIABLE, variables_of
from windfall.agent.settings import AgentSettings

DEADLINE_S = 150.0


def piped(
    running: RunningWindfall, *arguments: str, feed: bytes = b"", **more: str
) -> subprocess.CompletedProcess[bytes]:
    """Run `windfall exec` without a terminal."""
    return subprocess.run(
        [*running.command, "exec", *arguments],
        input=feed,
        capture_output=True,
        env=environment(running, **more),
        cwd="/",
        timeout=DEADLINE_S,
        check=False,
    )


def environment(running: RunningWindfall, **more: str) -> dict[str, str]:
    return {**os.environ, **running.extra_environment, "WINDFALL_DATA": str(running.data), **more}


def entered_processes(running: RunningWindfall) -> list[int]:
    """The processes that run in sessions inside jobs of this daemon."""
    own = AgentSettings(directory=str(running.data / "agent"), attempts_directory="").agent_id
    agent, mark = f"{AGENT_VARIABLE}={own}".encode(), f"{EXEC_VARIABLE}=".encode()
    found = []
    for entry in Path("/proc").iterdir():
        variables = variables_of(int(entry.name)) if entry.name.isdigit() else []
        if agent in variables and any(variable.startswith(mark) for variable in variables):
            found.append(int(entry.name))
    return found


def wait_for_program(running: RunningWindfall, *argv: str) -> None:
    """Wait until this command runs in a session."""
    wanted = "".join(f"{word}\0" for word in argv).encode()
    wait_until(
        lambda: any(_command_line(pid) == wanted for pid in entered_processes(running)), " ".join(argv)
    )


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Terminal:
    """`windfall exec` at a terminal of its own."""

    def __init__(self, running: RunningWindfall, *arguments: str, **more: str) -> None:
        self.master, slave = pty.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(slave)
        self.screen = b""
        self._slave = slave
        self.process = subprocess.Popen(
            [*running.command, "exec", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(running, TERM="xterm-256color", **more),
            cwd="/",
            preexec_fn=_lead_terminal,  # noqa: PLW1509 (no threads here)
        )

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, text: str) -> str:
        """Wait until the screen shows a text; everything before it, and it, are taken off the screen."""
        deadline = time.monotonic() + DEADLINE_S
        while text.encode() not in self.screen:
            assert time.monotonic() < deadline, f"waited for {text!r}; the screen has {self.screen[-2000:]!r}"
            if select.select([self.master], [], [], 0.5)[0]:
                self.screen += os.read(self.master, 65536)
        shown, _, self.screen = self.screen.partition(text.encode())
        return shown.decode(errors="replace") + text

    def shows_size(self, wanted: str) -> bool:
        """Whether a shell that runs here says that its terminal has this size; keys may be faster than the size."""
        self.type("stty size; echo sh''own\n")
        return wanted in self.until("shown")

    def wait(self) -> int:
        """The exit code."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"does not end; the screen has {self.screen[-2000:]!r}"
            self._take()
        self._take()
        return int(self.process.returncode)

    def _take(self) -> None:
        while select.select([self.master], [], [], 0.2)[0]:
            self.screen += os.read(self.master, 65536)

    @property
    def is_as_before(self) -> bool:
        """Whether the terminal's modes are those that it had."""
        return bool(termios.tcgetattr(self._slave) == self.before)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._slave)
        os.close(self.master)


def _lead_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def terminal(running: RunningWindfall, *arguments: str, **more: Any) -> Iterator[Terminal]:
    opened = Terminal(running, *arguments, **more)
    try:
        yield opened
    finally:
        opened.close()
