"""Reads the few files of /proc that are read for every process in every round, at as little cost as Python allows.

Decides how the kernel's text becomes numbers; must not know attempts. Nothing is kept open between rounds: every
process that the agent starts begins with a copy of all open files and closes them one by one.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_FLAGS = os.O_RDONLY | os.O_CLOEXEC
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_S = os.sysconf("SC_CLK_TCK")


class ProcessTimes(NamedTuple):
    """One process, or one thread, as its stat file has it."""

    pid: int
    ppid: int
    session: int
    #: One letter; D waits in the kernel without being interruptible.
    state: str
    #: Processor time of its own, in ticks, and of children that it has waited for.
    cpu_ticks: int
    children_ticks: int
    threads: int
    start_ticks: int
    resident_bytes: int


def read(path: str, most_bytes: int = 4096) -> bytes:
    """Return the beginning of a file, nothing where it cannot be read."""
    try:
        fd = os.open(path, _FLAGS)
    except OSError:
        return b""
    try:
        return os.read(fd, most_bytes)
    except OSError:
        return b""
    finally:
        os.close(fd)


def read_process(pid: int) -> ProcessTimes | None:
    """Return a process, None when there is none of that number."""
    return parse_stat(pid, read(f"/proc/{pid}/stat", 1024))


def read_thread(pid: int, thread: int) -> ProcessTimes | None:
    """Return one thread of a process."""
    return parse_stat(thread, read(f"/proc/{pid}/task/{thread}/stat", 1024))


def parse_stat(pid: int, content: bytes) -> ProcessTimes | None:
    """Read a stat line; the name in its parentheses may itself hold spaces and parentheses."""
    fields = content[content.rfind(b")") + 2 :].split(None, 22)
    if len(fields) < 22:
        return None
    return ProcessTimes(
        pid,
        int(fields[1]),
        int(fields[3]),
        chr(fields[0][0]),
        int(fields[11]) + int(fields[12]),
        int(fields[13]) + int(fields[14]),
        int(fields[17]),
        int(fields[19]),
        int(fields[21]) * PAGE_BYTES,
    )


def pids() -> list[int]:
    """Return the numbers of all processes of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def thread_ids(pid: int) -> list[int]:
    """Return the numbers of a process's threads, the first one first."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def storage_bytes(pid: int) -> tuple[int, int] | None:
    """Return what a process and the children it waited for have read from and written to storage.

    None where it may not be known. What was written and then thrown away before it reached the disk does not count.
    """
    content = read(f"/proc/{pid}/io", 512)
    begin = content.find(b"\nread_bytes: ")
    if begin < 0:
        return None
    fields = content[begin:].split()
    return int(fields[1]), max(0, int(fields[3]) - int(fields[5]))


def network_bytes(content: bytes) -> tuple[int, int]:
    """Return what all interfaces but the loopback and those inside the host received and sent, from a net/dev file."""
    received = sent = 0
    for line in content.splitlines()[2:]:
        name, _, numbers = line.partition(b":")
        fields = numbers.split()
        if len(fields) > 8 and not name.strip().startswith(_INNER):
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


#: Bridges and their ends: what crosses them to the outside is counted there once more.
_INNER = (b"lo", b"veth", b"docker", b"br-", b"virbr", b"cni", b"dummy", b"tunl", b"ifb")
