"""The parent of the agent: a process so small that nothing makes it die, which remembers how orphans
ended.

It starts the agent, starts it again when it dies, and is the subreaper of everything below it: when the
agent is killed, the kernel makes the running attempts (and the ended ones that the agent had not yet
collected) children of the warden, which collects them and writes `pid start_ticks wait_status at_ms` to a
file that the next agent reads. So no exit code is lost with an agent.

    python -I -S warden.py AGENT_DIRECTORY COMMAND ...

It runs as a script and imports nothing of Windfall (not even the package), so it must know neither
messages nor the journal; only the names of three files in the agent's directory. One warden per
directory: a lock on `warden.lock`, inherited by the agent, so that a second one is refused for as long as
either lives.

Signals: SIGTERM asks the agent to end and leave the attempts running, and no other to be started; SIGHUP
starts an agent again that was shut down while attempts were still running.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time

#: With this code the agent says that it was told to end; it is not started again.
SHUTDOWN_CODE = 64
#: With this code the warden says that another one guards the directory.
BUSY_CODE = 65
LOCK_NAME = "warden.lock"
EXITS_NAME = "exits"

_PR_SET_CHILD_SUBREAPER = 36
_BACKOFF_FIRST_S = 0.2
_BACKOFF_MOST_S = 5.0
#: An agent that lived this long is not in a crash loop.
_HEALTHY_AFTER_S = 10.0
_WAKING = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP}


class Warden:
    """Keeps one agent running and collects what it leaves behind."""

    def __init__(self, directory: str, command: list[str], lock_fd: int) -> None:
        self._command = command
        self._lock_fd = lock_fd
        self._exits_fd = os.open(
            os.path.join(directory, EXITS_NAME), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._agent = 0
        self._started_at = 0.0
        self._backoff_s = _BACKOFF_FIRST_S
        self._start_due: float | None = 0.0
        self._told_to_end = False
        self._unwritten = b""
        #: Said once, not every second: the disk may be full for long.
        self._complained = False

    def run(self) -> None:
        """Guard until the agent was shut down and nothing of it runs any more."""
        while True:
            if self._start_due is not None and time.monotonic() >= self._start_due:
                self._start_agent()
            children_left = self._collect()
            if self._agent == 0 and self._start_due is None and not children_left:
                return
            self._wait()

    def _wait(self) -> None:
        timeout_s = 1.0 if self._unwritten else 3600.0
        if self._start_due is not None:
            timeout_s = max(0.0, self._start_due - time.monotonic())
        woken = signal.sigtimedwait(_WAKING, timeout_s)
        if woken is None:
            return
        if woken.si_signo == signal.SIGTERM:
            self._told_to_end, self._start_due = True, None
            if self._agent:
                os.kill(self._agent, signal.SIGTERM)
        elif woken.si_signo == signal.SIGHUP and not self._agent and self._start_due is None:
            # Not one that fails again and again: each request would make it fail without a pause.
            self._told_to_end, self._start_due = False, time.monotonic()

    def _start_agent(self) -> None:
        self._start_due = None
        if os.fstat(self._lock_fd).st_nlink == 0:
            _say("the agent's directory was removed: no agent is started there any more")
            return
        self._started_at = time.monotonic()
        environment = {**os.environ, "WINDFALL_WARDEN": str(os.getpid())}
        # Both hold the lock; the one that lives longer keeps it.
        os.set_inheritable(self._lock_fd, True)  # noqa: FBT003 - it takes no keyword
        try:
            self._agent = os.posix_spawn(self._command[0], self._command, environment, setsigmask=[])
        except OSError as error:
            self._start_again_later(f"the agent cannot be started: {error}")
        finally:
            os.set_inheritable(self._lock_fd, False)  # noqa: FBT003 (the standard library's own signature)

    def _collect(self) -> bool:
        """Collect all that ended; return whether children are left.

        The lock is held meanwhile: a reader that sees that a process is gone and then takes the lock finds its line.
        """
        fcntl.flock(self._exits_fd, fcntl.LOCK_EX)
        try:
            left = self._collect_ended()
            if self._unwritten:
                self._record()
        finally:
            fcntl.flock(self._exits_fd, fcntl.LOCK_UN)
        return left or bool(self._unwritten)

    def _collect_ended(self) -> bool:
        lines = []
        left = True
        while True:
            try:
                # Look before collecting: a collected process has no start time any more.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                left = False
                break
            if ended is None:
                break
            ticks = _start_ticks(ended.si_pid)
            pid, status = os.waitpid(ended.si_pid, 0)
            if pid == self._agent:
                self._on_agent_ended(status)
            else:
                lines.append(f"{pid} {ticks} {status} {time.time_ns() // 1_000_000}\n")
        self._unwritten += "".join(lines).encode()
        return left

    def _record(self) -> None:
        try:
            # The line break ends what a full disk may have cut off before.
            if os.write(self._exits_fd, b"\n" + self._unwritten) == len(self._unwritten) + 1:
                os.fsync(self._exits_fd)
                self._unwritten = b""
        except OSError as error:
            if not self._complained:
                _say(f"exits cannot be written, trying again: {error}")
            self._complained = True
        else:
            self._complained = self._complained and bool(self._unwritten)

    def _on_agent_ended(self, status: int) -> None:
        self._agent = 0
        code = os.waitstatus_to_exitcode(status)
        if code == SHUTDOWN_CODE or self._told_to_end:
            return
        lived_s = time.monotonic() - self._started_at
        if lived_s >= _HEALTHY_AFTER_S:
            self._backoff_s = _BACKOFF_FIRST_S
        self._start_again_later(f"the agent ended with {code} after {lived_s:.1f} s")

    def _start_again_later(self, why: str) -> None:
        self._start_due = time.monotonic() + self._backoff_s
        _say(f"{why}; starting it again in {self._backoff_s:.2f} s")
        self._backoff_s = min(_BACKOFF_MOST_S, self._backoff_s * 2)


def _start_ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = file.read()
        return int(content[content.rfind(b")") + 2 :].split()[19])
    except (OSError, IndexError):
        return 0


def now_text() -> str:
    """The time with which a line of the log begins, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def follow_log() -> None:
    """Write to the log at its name, if the file that is open was put aside as `NAME.log.1` or higher meanwhile."""
    try:
        name = os.readlink("/proc/self/fd/2").removesuffix(" (deleted)")
        current, _, number = name.rpartition(".")
        if not (current.endswith(".log") and number.isdigit()):
            return
        fd = os.open(current, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return  # This process may not open it, so it goes on with the file that it has.
    for standard in (1, 2):
        os.dup2(fd, standard)
    os.close(fd)


def _say(text: str) -> None:
    try:
        follow_log()
        os.write(2, f"{now_text()} windfall warden: {text}\n".encode())
    except OSError:
        return  # The disk of the log is full: nothing may make this process die.


def main(arguments: list[str]) -> int:
    """Guard the agent directory given first, running the command that follows."""
    directory, command = arguments[0], arguments[1:]
    os.umask(0o077)
    os.chdir(directory)  # Not where it happened to be started, which it would keep from being unmounted.
    lock_fd = os.open(os.path.join(directory, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say(f"another agent serves {directory}: stop it first, or use another directory")
        return BUSY_CODE
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        _say("cannot become a subreaper: exit codes will be lost if the agent dies")
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)
    Warden(directory, command, lock_fd).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
