"""A command in an attempt that is a container: the engine runs it there, and its streams come over one line.

Decides how the command is asked for, and how its processes are ended, for which engines have no request. Imported by
the keeper: the standard library and its neighbours alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time

from windfall.agent.container.engine import Engine
from windfall.agent.container.errors import EngineError, EngineRefused
from windfall.agent.container.following import Frames
from windfall.agent.inside.frames import ERRORS, OUTPUT
from windfall.agent.inside.local_command import NOT_FOUND, NOT_RUNNABLE, SHELL, CannotRun
from windfall.agent.processes import EXEC_VARIABLE, read_stat

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_CHUNK_BYTES = 1 << 16
_ANSWER_WITHIN_S = 30.0
_LOOK_EVERY_S = 1.0
_APPEARS_WITHIN_S = 5.0
_STDERR = 2
#: Becomes the shell named first, if it is there.
_ANY_SHELL = '[ -x "$1" ] && exec "$1"; exec /bin/sh'
_MISSING = ("executable file not found", "not found in $path", "no such file or directory")
_NEVER_BEGAN = b"OCI runtime exec failed"


class ContainerCommand:
    """One command of a session. Reads and writes never block; what is asked of the engine may, for a moment."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        """Start it; raises CannotRun."""
        told = orders["container"]
        self._engine = Engine(told["socket"], told["api"], timeout_s=_ANSWER_WITHIN_S)
        self._container: str = told["name"]
        self._tty = bool(orders["tty"])
        self._argv = orders["command"] or [SHELL, "-c", _ANY_SHELL, "sh", orders["shell"]]
        self._code: int | None = None
        self._looked_at = 0.0
        #: What to tell the person of its end.
        self.failure: str | None = None
        self.leader: tuple[int, int] | None = None
        try:
            self._id = self._engine.make_command(self._container, self._body(orders))
            line, waiting = self._engine.start_command(self._id, tty=self._tty).taken_over()
        except EngineRefused as refused:
            raise _cannot_run(self._argv[0], refused.message) from None
        except EngineError as error:
            raise CannotRun(1, str(error)) from None
        line.setblocking(False)  # noqa: FBT003 - it takes no keyword
        self._line, self._waiting, self._frames = line, waiting, Frames()
        self.input_fd = line.fileno()
        self.outputs = {line.fileno(): OUTPUT}
        self.resize(orders["rows"], orders["columns"])
        try:
            self._find_leader()
        except CannotRun:
            line.close()
            raise

    def _body(self, orders: Mapping[str, Any]) -> dict[str, Any]:
        variables = [f"{EXEC_VARIABLE}={orders['session']}"]
        if self._tty:
            variables.append(f"TERM={orders['term']}")
        return {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": self._tty,
            "Cmd": self._argv,
            "Env": variables,
        }

    def _find_leader(self) -> None:
        """Learn which process it is, so that it and what it starts can be ended."""
        deadline = time.monotonic() + _APPEARS_WITHIN_S
        while time.monotonic() < deadline:
            try:
                known = self._engine.inspect_command(self._id) or {}
            except EngineError:
                return
            pid = known.get("Pid")
            if isinstance(pid, int) and pid > 1:
                stat = read_stat(pid)
                self.leader = None if stat is None else (pid, stat.start_ticks)
                return
            if known.get("Running") is False:
                if known.get("ExitCode") in (NOT_FOUND, NOT_RUNNABLE):
                    self._check_failure()
                return
            time.sleep(0.02)

    def _check_failure(self) -> None:
        """Raise CannotRun for a command that never began: some engines say so in the place of its output."""
        deadline = time.monotonic() + _APPEARS_WITHIN_S
        while time.monotonic() < deadline and len(self._waiting) < _CHUNK_BYTES:
            if not select.select([self._line], [], [], 0.1)[0]:
                continue
            part = self._line.recv(_CHUNK_BYTES)
            if not part:
                break
            self._waiting += part
        if _NEVER_BEGAN in self._waiting:
            raise _cannot_run(self._argv[0], self._waiting.decode(errors="replace"))

    @property
    def has_waiting(self) -> bool:
        """Whether something can be taken that nobody can poll for."""
        return bool(self._waiting)

    def take(self, fd: int) -> list[tuple[bytes, bytes]]:
        """What can be read now; `outputs` is empty after the end."""
        content, self._waiting = self._waiting, b""
        try:
            content = content or self._line.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            content = b""
        if not content:
            del self.outputs[fd]
            self.input_fd = -1
            self._looked_at = 0.0
            return []
        if self._tty:
            return [(OUTPUT, content)]
        return [
            (ERRORS if stream == _STDERR else OUTPUT, part) for stream, part in self._frames.pieces(content)
        ]

    def give(self, content: bytes) -> int:
        """Hand bytes to its standard input; how many it took."""
        try:
            return self._line.send(content)
        except BlockingIOError:
            return 0
        except OSError:
            self.input_fd = -1
            return len(content)

    def close_input(self) -> None:
        """There is no more input."""
        if self.input_fd >= 0:
            self.input_fd = -1
            with contextlib.suppress(OSError):  # It has ended.
                self._line.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        """Tell it the size of its terminal."""
        if self._tty:
            with contextlib.suppress(EngineError):  # It has just ended, or has not quite begun.
                self._engine.resize_command(self._id, rows, columns)

    def exit_code(self) -> int | None:
        """The code with which it has ended; None while it runs."""
        if self._code is not None:
            return self._code
        now = time.monotonic()
        # While its streams are open it most likely runs.
        if now - self._looked_at < (_LOOK_EVERY_S if self.outputs else 0.02):
            return None
        self._looked_at = now
        try:
            known = self._engine.inspect_command(self._id)
        except EngineError as error:
            known = None if self.outputs else {"Running": False, "ExitCode": 1}
            self.failure = str(error)
            if known is None:
                return None
        if known is None:
            self._code, self.failure = 1, "the container is gone"
        elif known.get("Running") is False:
            code = known.get("ExitCode")
            self._code = code if isinstance(code, int) else 1
        return self._code

    def place_is_gone(self) -> bool:
        """Whether the container has ended."""
        try:
            known = self._engine.inspect(self._container)
        except EngineError:
            return False
        return known is None or (known.get("State") or {}).get("Running") is not True

    def kill(self, pid: int, number: int) -> None:
        """Signal one of its processes, from inside the container where that is not ours to do from outside."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            if number == signal.SIGKILL:
                self._kill_inside(pid)

    def _kill_inside(self, pid: int) -> None:
        try:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                inner = next(line.split()[-1] for line in file if line.startswith("NSpid:"))
            # As the container's own user, as the command was: what its kill is, the job decides.
            body = {"Cmd": ["kill", "-KILL", inner]}
            self._engine.start_command(self._engine.make_command(self._container, body), tty=False).close()
        except (OSError, StopIteration, EngineError):
            pass  # It has ended meanwhile, or the image has no kill.


def _cannot_run(name: str, message: str) -> CannotRun:
    message = message.lower()
    if any(words in message for words in _MISSING):
        return CannotRun(NOT_FOUND, f"there is no program {name!r} inside the container")
    if "permission denied" in message:
        return CannotRun(NOT_RUNNABLE, f"{name!r} cannot be run inside the container: permission denied")
    return CannotRun(1, f"the container engine refuses: {message}")
