"""The user's process below a keeper: how it comes into being, is spoken to, and is ended with all that it started.

Its standard input carries tasks, its standard output and error go into one pipe, its answers come on descriptor 3.
Decides nothing about children; must not know the agent.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import time
from typing import Any

from windfall.agent.workers.pipes import WorkerPipes

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: How long a process that is told to leave (its input ends) may take before it is killed.
LEAVE_WITHIN_S = 2.0
#: Where descriptors are put before they get the numbers that the process knows them by.
_ABOVE = 64
_RESET = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)

_libc = ctypes.CDLL(None, use_errno=True)


class CannotStart(Exception):
    """The process could not be started; the text says why."""


class UserProcess(WorkerPipes):
    """A process of this host below the keeper."""

    def __init__(self, plan: dict[str, Any], directory_fd: int, script_fd: int | None) -> None:
        pipes = [os.pipe() for _ in range(4)]
        (input_read, input_write), (output_read, output_write) = pipes[0], pipes[1]
        (answers_read, answers_write), (fault_read, fault_write) = pipes[2], pipes[3]
        keeper = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            wanted = {0: input_read, 1: output_write, 2: output_write, 3: answers_write}
            if script_fd is not None:
                wanted = {**wanted, 0: script_fd, 4: input_read}
            become(plan, wanted, directory_fd, fault_write, (keeper, signal.SIGKILL))
        for fd in (input_read, output_write, answers_write, fault_write):
            os.close(fd)
        super().__init__(input_write, output_read, answers_read, os.pidfd_open(self._pid))
        fault = os.read(fault_read, 1024)
        os.close(fault_read)
        if fault:
            self.kill()
            raise CannotStart(fault.decode(errors="replace"))

    def stop(self) -> None:
        """Nothing is to be done: the agent signals processes of this host itself."""

    def exit_code(self) -> int:
        """Collect it after its end: its code, or 128 and its signal."""
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return 128 - code if code < 0 else code

    def out_of_memory(self) -> bool:
        """Nobody knows here: the agent asks its cgroup."""
        return False

    @property
    def failure(self) -> str:
        """Its exit code says all that is known."""
        return ""

    def leave(self) -> bytes:
        """Let it leave by itself, as the end of its input asks; then nothing of it is left. Returns its last words."""
        self.end_input()
        return self.output_until_end(LEAVE_WITHIN_S) + self.kill()

    def kill(self) -> bytes:
        """Kill all below the keeper, orphans too, and collect them; returns the last words."""
        give_up_at = time.monotonic() + LEAVE_WITHIN_S  # What has changed its user may not be ours to kill.
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
        self.close()
        return said


def take_orphans() -> None:
    """Have orphans of the user's process come here, not to the agent, which would not know whose they are."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def become(
    plan: dict[str, Any],
    wanted: dict[int, int],
    directory_fd: int,
    fault_fd: int,
    tie: tuple[int, signal.Signals],
) -> None:
    """In the new process: join the limits, give up the rights, become the plan's program. Never returns.

    `tie` is its keeper, and the signal that it gets when that dies.
    """
    keeper, orphan_signal = tie
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
        os.umask(plan["umask"])
        os.fchdir(directory_fd)
        # After the change of user, which takes it back. A process without its keeper has nobody to work for.
        _libc.prctl(_PR_SET_PDEATHSIG, int(orphan_signal), 0, 0, 0)
        if os.getppid() != keeper:
            raise ProcessLookupError("its keeper is gone")
        argv = plan["argv"]
        os.execvpe(argv[0], argv, plan["environment"])  # noqa: S606 - what the agent was told to run, no shell wanted
    except BaseException as error:  # noqa: BLE001 - whatever it was, only the pipe can carry it
        os.write(fault_fd, str(error).encode())
    finally:
        os._exit(127)


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
