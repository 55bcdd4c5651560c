"""The user's process below a keeper: how it comes into being, is spoken to, and is ended with all that it started.

Its standard input carries tasks, its standard output and error go into one pipe, its answers come on descriptor 3.
Decides nothing about children; must not know the agent.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import time
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHUNK_BYTES = 1 << 16
#: More than a pipe holds, so that what was printed before an answer is read before the answer counts.
_OUTPUT_BYTES = 1 << 20
#: So long a process that is told to leave (its input ends) may take before it is killed.
_LEAVE_WITHIN_S = 2.0
#: Where descriptors are put before they get the numbers that the process knows them by.
_ABOVE = 64
_RESET = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)

_libc = ctypes.CDLL(None, use_errno=True)


class CannotStart(Exception):
    """The process could not be started; the text says why."""


class UserProcess:
    """A process that runs, and the keeper's ends of its pipes."""

    def __init__(self, plan: dict[str, Any], directory_fd: int, script_fd: int | None) -> None:
        pipes = [os.pipe() for _ in range(4)]
        (input_read, self._input_fd), (self.output_fd, output_write) = pipes[0], pipes[1]
        (self.answers_fd, answers_write), (fault_read, fault_write) = pipes[2], pipes[3]
        self._pid = os.fork()
        if self._pid == 0:
            wanted = {0: input_read, 1: output_write, 2: output_write, 3: answers_write}
            if script_fd is not None:
                wanted = {**wanted, 0: script_fd, 4: input_read}
            _become(plan, wanted, directory_fd, fault_write)
        for fd in (input_read, output_write, answers_write, fault_write):
            os.close(fd)
        #: Can be read from when the process has ended.
        self.pidfd = os.pidfd_open(self._pid)
        #: What nobody writes to any more; waiting for it would never wait.
        self.silent: set[int] = set()
        self._unsent = b""
        self._answered = b""
        fault = os.read(fault_read, 1024)
        os.close(fault_read)
        for fd in (self._input_fd, self.output_fd, self.answers_fd):
            os.set_blocking(fd, False)
        if fault:
            self.kill()
            raise CannotStart(fault.decode(errors="replace"))

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def register(self, poll: select.poll) -> None:
        """Have a poll wait for whatever it does next."""
        for fd in {self.output_fd, self.answers_fd, self.pidfd} - self.silent:
            poll.register(fd, select.POLLIN)
        if self._unsent:
            poll.register(self._input_fd, select.POLLOUT)

    def tell(self, line: bytes) -> None:
        """Give it a line."""
        self._unsent += line
        self.push()

    def push(self) -> None:
        """Write what its input takes now."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._input_fd, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""  # It reads no more, and will end or be killed.

    def output(self) -> bytes:
        """Take what it has printed."""
        return _read_all(self.output_fd, _OUTPUT_BYTES)

    def answer(self) -> bytes | None:
        """Take a complete line of descriptor 3, if there is one."""
        self._answered += _read_all(self.answers_fd, _CHUNK_BYTES)
        line, ended, rest = self._answered.partition(b"\n")
        if not ended:
            return None
        self._answered = rest
        return line

    def exit_code(self) -> int:
        """Collect it after its end: its code, or 128 and its signal."""
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return 128 - code if code < 0 else code

    def leave(self) -> bytes:
        """Let it leave by itself, as the end of its input asks; then nothing of it is left. Returns its last words."""
        os.close(self._input_fd)
        self._input_fd = -1
        said = b""
        deadline = time.monotonic() + _LEAVE_WITHIN_S
        while (left_s := deadline - time.monotonic()) > 0:
            poll = select.poll()
            for fd in {self.output_fd, self.pidfd} - self.silent:
                poll.register(fd, select.POLLIN)
            ready = dict(poll.poll(left_s * 1000))
            if self.pidfd in ready:
                break
            said += self.output()  # With a full pipe it would wait for ever.
            self.note_silence(ready)
        return said + self.kill()

    def note_silence(self, ready: dict[int, int]) -> None:
        """Remember which pipes nobody writes to any more."""
        gone = select.POLLHUP | select.POLLERR
        self.silent |= {fd for fd in (self.output_fd, self.answers_fd) if ready.get(fd, 0) & gone}

    def kill(self) -> bytes:
        """Kill all below the keeper, orphans too, and collect them; returns the last words."""
        give_up_at = time.monotonic() + _LEAVE_WITHIN_S  # What has changed its user may not be ours to kill.
        while time.monotonic() < give_up_at:
            for pid in _descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            time.sleep(0.002)
        said = self.output()
        for fd in (self.pidfd, self._input_fd, self.output_fd, self.answers_fd):
            if fd >= 0:
                os.close(fd)
        return said


def take_orphans() -> None:
    """Have orphans of the user's process come here, not to the agent, which would not know whose they are."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _become(plan: dict[str, Any], wanted: dict[int, int], directory_fd: int, fault_fd: int) -> None:
    """In the new process: join the limits, give up the rights, become the user's program. Never returns."""
    try:
        os.setsid()
        for each in _RESET:
            signal.signal(each, signal.SIG_DFL)
        for path in plan["join"]:
            with open(path, "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        fault_fd, directory_fd = (
            fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for fd in (fault_fd, directory_fd)
        )
        moved = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for number, fd in wanted.items()}
        for number, fd in moved.items():
            os.dup2(fd, number)
        if plan["user"] is not None:
            uid, gid, groups = plan["user"]
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        os.umask(0o022)
        os.fchdir(directory_fd)
        # After the change of user, which takes it back. A process without its keeper has nobody to work for.
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        argv = plan["argv"]
        os.execvpe(argv[0], argv, plan["environment"])  # noqa: S606 - what the agent was told to run, no shell wanted
    except BaseException as error:  # noqa: BLE001 - whatever it was, only the pipe can carry it
        os.write(fault_fd, str(error).encode())
    finally:
        os._exit(127)


def _read_all(fd: int, most_bytes: int) -> bytes:
    """Read what is there now, and not much more than so many bytes."""
    content = b""
    while len(content) < most_bytes:
        try:
            chunk = os.read(fd, _CHUNK_BYTES)
        except OSError:
            break
        if not chunk:
            break
        content += chunk
    return content


def _descendants(root: int) -> list[int]:
    """Return all processes below one."""
    parents = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                content = file.read()
        except OSError:
            continue
        parents[int(name)] = int(content[content.rfind(b")") + 2 :].split()[1])
    found = [root]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found[1:]
