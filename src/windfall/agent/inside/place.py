"""Where an attempt's processes are: their namespaces, working directory, environment and rights, read from /proc.

Decides which process of an attempt shows them, and what of it is believed. Namespaces are entered only if the agent
made them: those of the sandbox's first process, which the job cannot change. The user is the one that the agent says,
never one that a process of the job has become. Imported by the keeper: the standard library alone.
"""

from __future__ import annotations

import os
import time

from windfall.agent.processes import TOKEN_VARIABLE, snapshot

#: As typing has it: importing that would cost a keeper megabytes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

#: What every job has in its environment, and what sets up its sandbox has not.
_OF_JOBS = "CUDA_VISIBLE_DEVICES"
#: In this order: the first gives the right to enter the others. The second holds for children alone.
NAMESPACES = ("user", "pid", "mnt", "ipc", "net", "uts", "cgroup")
#: How long a sandbox may take until the job in it has begun.
_BEGINS_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.02
_ALL = (1 << 64) - 1


class NotThere(Exception):
    """The attempt has no place (any more); the text says why."""


class Place:
    """What a command inside an attempt is given. The descriptors stay open until this process ends."""

    def __init__(self, folder: int, first: int | None) -> None:
        """`folder` is /proc/PID of the job's process, `first` that of its sandbox's first process, if it has one."""
        status = _status(folder)
        #: Those that this process is not in, by name.
        self.namespaces = {} if first is None else _other_namespaces(first)
        self.directory = _opened(folder, "cwd", os.O_PATH | os.O_DIRECTORY)
        self.environment = _environment(folder)
        self.umask = int(status.get("Umask", "22"), 8)
        self.has_no_new_privileges = status.get("NoNewPrivs", "0") == "1"
        self.bounding_capabilities = int(status.get("CapBnd", f"{_ALL:x}"), 16)


def find_place(pid: int, start_ticks: tuple[int, int], *, sandboxed: bool) -> Place:
    """The place of the attempt whose main process this is; raises NotThere.

    The times are the earliest and the latest at which that process began.
    """
    main = _folder(pid)
    if not start_ticks[0] <= _start_ticks(main) <= start_ticks[1]:
        raise NotThere("the job has ended")
    if not sandboxed:
        return _shown(main, None)
    deadline = time.monotonic() + _BEGINS_WITHIN_S
    while True:
        found = _inside(pid)
        if found is not None:
            first, job = _folder(found[0]), _folder(found[1])
            if _OF_JOBS in _environment(job) or time.monotonic() > deadline:
                return _shown(job, first)
            os.close(first)
            os.close(job)
        _start_ticks(main)  # It is gone with the job.
        if time.monotonic() > deadline:
            raise NotThere("the job's sandbox has not come up; try again in a moment")
        time.sleep(_LOOK_EVERY_S)


def _inside(monitor: int) -> tuple[int, int] | None:
    """The first process of the namespace that a monitor watches, and the job, which is that one's first child."""
    processes = snapshot()
    firsts = [stat.pid for stat in processes.values() if stat.ppid == monitor and _inner(stat.pid) == 1]
    if not firsts:
        return None
    jobs = [(_inner(stat.pid), stat.pid) for stat in processes.values() if stat.ppid == firsts[0]]
    return (firsts[0], min(jobs)[1]) if jobs else None


def _inner(pid: int) -> int:
    """The number that a process has in the innermost namespace; large for one that is gone."""
    try:
        folder = _folder(pid)
        try:
            return int(_status(folder)["NSpid"].split()[-1])
        finally:
            os.close(folder)
    except (NotThere, KeyError, ValueError):
        return 1 << 31


def _shown(job: int, first: int | None) -> Place:
    try:
        return Place(job, first)
    except OSError as error:
        raise NotThere(f"the job's process cannot be looked into: {error.strerror}") from None


def _folder(pid: int) -> int:
    """A descriptor of /proc/PID: it stays that process's, even if the number is used again."""
    try:
        return os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise NotThere("the job has ended") from None


def _opened(folder: int, name: str, flags: int = os.O_RDONLY) -> int:
    return os.open(name, flags | os.O_CLOEXEC, dir_fd=folder)


def _content(folder: int, name: str) -> bytes:
    try:
        with open(_opened(folder, name), "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        raise NotThere("the job has ended") from None


def _start_ticks(folder: int) -> int:
    content = _content(folder, "stat")
    fields = content[content.rfind(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        raise NotThere("the job has ended")
    return int(fields[19])


def _status(folder: int) -> dict[str, str]:
    lines = _content(folder, "status").decode(errors="replace").splitlines()
    pairs: Iterable[tuple[str, str, str]] = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def _environment(folder: int) -> dict[str, str]:
    """The variables of a process; none of one that has overwritten them, as programs do that change their title."""
    try:
        content = _content(folder, "environ")
    except OSError:
        return {}
    pairs = (os.fsdecode(variable).partition("=") for variable in content.split(b"\0") if b"=" in variable)
    found = {name: value for name, _, value in pairs if name}
    return found if TOKEN_VARIABLE in found else {}


def _other_namespaces(folder: int) -> dict[str, int]:
    found = {}
    for name in NAMESPACES:
        try:
            theirs = _opened(folder, f"ns/{name}")
        except FileNotFoundError:
            continue  # This kernel has none of that kind.
        own = os.stat(f"/proc/self/ns/{name}")
        there = os.fstat(theirs)
        if (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino):
            os.close(theirs)
        else:
            found[name] = theirs
    return found
