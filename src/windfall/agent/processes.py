"""Reads /proc: which processes exist, whose they are, and how much memory they hold; and signals them.

Decides how a process is attributed to an attempt: by session (the attempt's main process leads one), else
by descent, else by the WINDFALL_ATTEMPT variable of its environment. Must not know messages or the
journal.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

#: The variable that marks every process of an attempt with the attempt's token.
TOKEN_VARIABLE = "WINDFALL_ATTEMPT"  # noqa: S105 - a name, no secret
#: The variable that says whose attempt it is: several agents of one machine must leave one another's alone.
AGENT_VARIABLE = "WINDFALL_AGENT"
#: The variable of a process that works for an attempt without being the attempt.
PORTER_VARIABLE = "WINDFALL_PORTER"
#: The variable of a process that a person runs inside an attempt (`windfall exec`): the id of the session.
EXEC_VARIABLE = "WINDFALL_EXEC"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class ProcessStat(NamedTuple):
    """The few fields of /proc/<pid>/stat that matter here."""

    pid: int
    ppid: int
    session: int
    #: Clock ticks since boot at which the process started: with the pid it names a process for ever (of
    #: this boot).
    start_ticks: int
    resident_bytes: int
    state: str


def read_stat(pid: int) -> ProcessStat | None:
    """Return the process's stat, or None when there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = os.read(fd, 1024)
    except OSError:
        return None
    finally:
        os.close(fd)
    # The name in parentheses may itself hold spaces and parentheses.
    fields = content[content.rfind(b")") + 2 :].split()
    if len(fields) < 22:
        return None
    return ProcessStat(
        pid,
        int(fields[1]),
        int(fields[3]),
        int(fields[19]),
        int(fields[21]) * _PAGE_BYTES,
        fields[0].decode(),
    )


def boot_ticks() -> int:
    """Return the present time in the unit and on the clock of a process's start time."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK_NS


def snapshot() -> dict[int, ProcessStat]:
    """Return all processes of the machine by pid."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None:
                found[stat.pid] = stat
    return found


def members(processes: Mapping[int, ProcessStat], roots: Container[int]) -> dict[int, list[ProcessStat]]:
    """Group processes under the main pids in `roots`: by session, else by the nearest ancestor in one."""
    owner: dict[int, int] = {}
    grouped: dict[int, list[ProcessStat]] = {}
    for pid in processes:
        path = []
        at = pid
        root = 0
        while at in processes:
            if at in owner:
                root = owner[at]
                break
            path.append(at)
            stat = processes[at]
            if stat.session in roots:
                root = stat.session
                break
            if at in roots:
                root = at
                break
            at = stat.ppid
        for visited in path:
            owner[visited] = root
        if root:
            grouped.setdefault(root, []).append(processes[pid])
    return grouped


def attempt_token(pid: int, agent_id: str) -> str | None:
    """Return the token in the environment that this agent started the process with, if it may be read."""
    marker = TOKEN_VARIABLE.encode() + b"="
    variables = variables_of(pid)
    if f"{AGENT_VARIABLE}={agent_id}".encode() not in variables:
        return None
    for variable in variables:
        if variable.startswith(marker):
            return variable[len(marker) :].decode(errors="replace")
    return None


def is_porter(pid: int) -> bool:
    """Tell whether a process works for an attempt without being the attempt."""
    return f"{PORTER_VARIABLE}=1".encode() in variables_of(pid)


def is_of_a_person(pid: int) -> bool:
    """Tell whether a process was started inside an attempt by `windfall exec`."""
    return any(variable.startswith(f"{EXEC_VARIABLE}=".encode()) for variable in variables_of(pid))


def variables_of(pid: int) -> list[bytes]:
    """Return the environment that a process was started with; empty where it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def find_by_token(tokens: Container[str], agent_id: str) -> dict[str, ProcessStat]:
    """Search all processes for attempts that are known by token only; the session's leader is preferred."""
    found: dict[str, ProcessStat] = {}
    for pid, stat in snapshot().items():
        token = attempt_token(pid, agent_id)
        if token is None or token not in tokens or stat.state == "Z":
            continue
        if is_porter(pid) or is_of_a_person(pid):
            continue
        if token not in found or stat.session == pid:
            found[token] = stat
    return found


def catches(pid: int, number: int) -> bool:
    """Tell whether a process has a handler of its own for a signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def resident_bytes(processes: Iterable[ProcessStat], limit_bytes: int) -> int:
    """Return the memory that processes hold together, counting shared pages once when it matters.

    The plain sum counts what forked workers share once for each of them, which would condemn a healthy job;
    only when that sum is over the limit are the exact shares read, because that walks page tables.
    """
    listed = list(processes)
    total = sum(stat.resident_bytes for stat in listed)
    if total <= limit_bytes:
        return total
    return sum(_proportional_bytes(stat.pid) for stat in listed)


def _proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES if len(fields) > 2 else 0


class OrphanWatch:
    """Lists the processes that the kernel re-parented to this process: what attempts left behind.

    Orphans go to the first thread of a subreaper, and attempts are started by other threads, so the children
    of the main thread are the orphans and nothing else. Kernels without that file are searched the slow way.
    """

    def __init__(self) -> None:
        pid = os.getpid()
        try:
            self._fd = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    @property
    def exact(self) -> bool:
        """Whether orphans are told apart from what this process started itself."""
        return self._fd >= 0

    def pids(self) -> list[int]:
        """Return the pids of all orphans now."""
        if self._fd >= 0:
            return [int(pid) for pid in os.pread(self._fd, 1 << 16, 0).split()]
        here = os.getpid()
        # Session leaders may be attempts; better to miss an orphan here than to kill one of those.
        return [stat.pid for stat in snapshot().values() if stat.ppid == here and stat.session != stat.pid]


def signal_together(targets: set[int], number: signal.Signals) -> int:
    """Signal processes as if at one moment, and return how many there were.

    A shell whose child is killed goes on to its next command, and may end with 0 as if all had been well. So the
    processes that the signal will end are halted before the first one is sent.
    """
    halted = [pid for pid in targets if number == signal.SIGKILL or not catches(pid, number)]
    for pid in halted:
        send(pid, signal.SIGSTOP)
    for pid in targets:
        send(pid, number)
    if number != signal.SIGKILL:
        for pid in halted:
            send(pid, signal.SIGCONT)
    return len(targets)


def send(pid: int, number: signal.Signals) -> bool:
    """Signal a process that may have ended meanwhile; whether it could be."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
