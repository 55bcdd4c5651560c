"""A command in the place of an attempt that is a process: how it is started there, and its standard streams.

Decides what the command inherits: three streams, the job's environment and the job's rights, and nothing of the agent.
Imported by the keeper: the standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time

from windfall.agent.inside.frames import ERRORS, OUTPUT
from windfall.agent.inside.place import NotThere, find_place
from windfall.agent.inside.rights import adopt_orphans, enter, take_rights
from windfall.agent.processes import EXEC_VARIABLE, read_stat

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from windfall.agent.inside.place import Place

SHELL = "/bin/sh"
NOT_FOUND, NOT_RUNNABLE = 127, 126
_CHUNK_BYTES = 1 << 16
_END_OF_INPUT = b"\x04"
#: Of the processes of an attempt, these are ended first when its memory is used up.
_FIRST_TO_GO = b"1000"
#: How long a new process may take to become the command.
_STARTS_WITHIN_S = 30.0


class CannotRun(Exception):
    """The command cannot be started; the code is what a shell would exit with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class LocalCommand:
    """One command of a session. Reads and writes never block."""

    #: What to tell the person of its end; nothing of a process, which has an exit code.
    failure: str | None = None
    #: Whether something can be taken that nobody can poll for.
    has_waiting = False

    def __init__(self, orders: Mapping[str, Any], lines: tuple[int, ...]) -> None:
        """Start it, unless one of the lines is hung up meanwhile; raises CannotRun."""
        ticks = (orders["start_ticks"], orders["start_ticks"] + orders["ticks_span"])
        try:
            place = find_place(orders["pid"], ticks, sandboxed=orders["sandboxed"])
            adopt_orphans()
            # The children of this process alone are in the process namespace; it stays where it is.
            enter(place, "user", "pid")
        except NotThere as gone:
            raise CannotRun(1, str(gone)) from None
        except OSError as error:
            raise CannotRun(1, f"the job's sandbox cannot be entered: {error.strerror or error}") from None
        self._tty = bool(orders["tty"])
        self._master = -1
        ours, theirs = self._terminal(orders) if self._tty else self._pipes()
        self.input_fd = ours[0]
        #: What can be read, with the kind of frame that it becomes.
        self.outputs = {ours[1]: OUTPUT} | ({} if self._tty else {ours[2]: ERRORS})
        self._code: int | None = None
        failed, failure = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            _become(orders, place, theirs, failure, tty=self._tty)
        stat = read_stat(self._pid)
        #: The command's process and when it began.
        self.leader = (self._pid, stat.start_ticks) if stat is not None else None
        for fd in {*theirs, failure}:
            os.close(fd)
        self._await_start(failed, lines)
        for fd in {self.input_fd, *self.outputs}:
            os.set_blocking(fd, False)

    def _await_start(self, failed: int, lines: tuple[int, ...]) -> None:
        """Wait until the new process is the command; raises CannotRun where it says that it cannot be.

        From some moment on it is a process of the job's user, which a hostile job can stop: so it may take only so
        long, and no longer than one of the lines of the session is open.
        """
        told, deadline = b"", time.monotonic() + _STARTS_WITHIN_S
        poll = select.poll()
        for line in lines:
            poll.register(line, 0)
        with open(failed, "rb", buffering=0) as file:
            poll.register(file, select.POLLIN)
            while True:
                left_ms = max(0.0, deadline - time.monotonic()) * 1000
                ready = [fd for fd, _ in poll.poll(left_ms)]
                if ready != [failed]:
                    os.kill(self._pid, signal.SIGKILL)
                    told = f"1 the command has not begun within {_STARTS_WITHIN_S:g} seconds".encode()
                    break
                part = file.read(_CHUNK_BYTES)
                if not part:
                    break
                told += part
        if told:
            os.waitpid(self._pid, 0)
            code, _, text = told.decode(errors="replace").partition(" ")
            raise CannotRun(int(code), text)

    def _terminal(self, orders: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, int, int]]:
        try:
            self._master, slave = os.openpty()
        except OSError as error:
            raise CannotRun(1, f"no terminal is available: {error.strerror}") from None
        self.resize(orders["rows"], orders["columns"])
        if orders["user"] is not None:
            os.fchown(slave, orders["user"][0], -1)
        os.fchmod(slave, 0o620)
        return (self._master, self._master), (slave, slave, slave)

    def _pipes(self) -> tuple[tuple[int, ...], tuple[int, int, int]]:
        (stdin, feed), (out, stdout), (err, stderr) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
        return (feed, out, err), (stdin, stdout, stderr)

    def take(self, fd: int) -> list[tuple[bytes, bytes]]:
        """What can be read there now; the descriptor is dropped from `outputs` at its end."""
        try:
            content = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            if error.errno != errno.EIO:  # So a terminal says that nobody has it open any more.
                raise
            content = b""
        if content:
            return [(self.outputs[fd], content)]
        del self.outputs[fd]
        if fd != self._master:
            os.close(fd)
        return []

    def give(self, content: bytes) -> int:
        """Hand bytes to its standard input; how many it took. One that has closed it takes all."""
        try:
            return os.write(self.input_fd, content)
        except BlockingIOError:
            return 0
        except OSError:
            self.close_input()
            return len(content)

    def close_input(self) -> None:
        """There is no more input."""
        if self.input_fd < 0:
            return
        if self._tty:
            with contextlib.suppress(OSError):  # Nobody has the terminal open, or nobody reads it.
                os.write(self.input_fd, _END_OF_INPUT)
        else:
            os.close(self.input_fd)
        self.input_fd = -1

    def resize(self, rows: int, columns: int) -> None:
        """Tell it, and the kernel, the size of its terminal."""
        if self._master >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def exit_code(self) -> int | None:
        """The code with which it has ended, 128 + n for a signal n; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
        return self._code

    def place_is_gone(self) -> bool:
        """Whether the job is known to have ended; the agent reports the end of a process."""
        return False

    def kill(self, pid: int, number: int) -> None:
        """Signal one of its processes, which may be gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _become(
    orders: Mapping[str, Any], place: Place, streams: tuple[int, int, int], failure: int, *, tty: bool
) -> None:
    """Be the command, in the new process; what is in the way is told through a pipe."""
    try:
        os.setsid()
        for path in orders["cgroup_files"]:
            _write(path, b"0")
        _write("/proc/self/oom_score_adj", _FIRST_TO_GO)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # Above all the line to the daemon: what is kept open here would be the job's.
        kept = sorted({failure, place.directory, *place.namespaces.values()})
        for low, high in zip([2, *kept], [*kept, 1 << 20], strict=True):
            os.closerange(low + 1, high)
        enter(place, "mnt", "ipc", "net", "uts", "cgroup")
        os.fchdir(place.directory)
        os.umask(place.umask)
        take_rights(place, orders["user"])
        for signal_number in signal.valid_signals():
            if signal_number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(signal_number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        environment = place.environment or orders["environment"]
        environment[EXEC_VARIABLE] = orders["session"]
        if tty:
            environment["TERM"] = orders["term"]
        code, text = _execute(orders, environment)
    except BaseException as error:  # noqa: BLE001 - the edge: nothing of the keeper may go on here
        code, text = 1, f"the job cannot be entered: {error}"
    try:
        os.write(failure, f"{code} {text}".encode(errors="replace"))
    finally:
        os._exit(code)


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def _execute(orders: Mapping[str, Any], environment: dict[str, str]) -> tuple[int, str]:
    """Become the command, or the first shell that there is; the answer is why that cannot be."""
    command = orders["command"]
    if command:
        return _try(command, environment)
    _try([orders["shell"]], environment)
    code, _ = _try([SHELL], environment)
    return code, f"there is no {SHELL} inside the job; name a command"


def _try(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    name = command[0]
    folders = [""] if "/" in name else environment.get("PATH", os.defpath).split(":")
    seen = errno.ENOENT
    for folder in folders:
        path = os.path.join(folder, name) if folder else name
        try:
            os.execve(path, command, environment)  # noqa: S606 - there is no shell to go through
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                # As shells do it with a script that does not name its interpreter.
                os.execve(SHELL, [SHELL, path, *command[1:]], environment)  # noqa: S606 (as above)
            # A folder of PATH that the job's user cannot enter hides nothing that it could run.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) and ("/" in name or os.path.exists(path)):
                seen = error.errno or seen
    if seen == errno.ENOENT:
        return NOT_FOUND, f"there is no program {name!r} inside the job"
    return NOT_RUNNABLE, f"{name!r} cannot be run inside the job: {os.strerror(seen).lower()}"
