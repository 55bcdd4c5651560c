"""What the NVIDIA driver told the kernel's log of its devices: the Xid lines.

Reads /dev/kmsg, which root may do, and only when somebody asks: each record once, never waiting for more. Decides which
lines are an error of a device that may have ended a program. Must not know attempts.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

_PATH = "/dev/kmsg"
#: The kernel hands out one record at a time, and refuses to if it does not fit.
_RECORD_BYTES = 8 << 10
#: A kernel's log of ordinary size has fewer; the agent's loop waits while this many are read.
_MOST_RECORDS = 10_000
_MOST_KEPT = 256
#: A line that names a slice of a GPU besides (GPU-I) is left out: whose slice that is cannot be told.
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
#: Notes on the memory's health, during which programs go on.
_HARMLESS = frozenset({63, 92})


class _Line(NamedTuple):
    """One Xid; its time is in microseconds since the machine was started."""

    at_us: int
    slot: tuple[int, ...]
    text: str


class Clocks(NamedTuple):
    """The wall clock, and the two that the kernel may date its records by, in microseconds."""

    wall_us: int
    since_boot_us: tuple[int, ...]


def read_clocks() -> Clocks:
    """The time now."""
    clocks = (time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW)
    return Clocks(time.time_ns() // 1_000, tuple(time.clock_gettime_ns(clock) // 1_000 for clock in clocks))


class KernelLog:
    """The log from its oldest record on, and the Xid lines that were in it so far."""

    def __init__(
        self, fd: int, clocks: Callable[[], Clocks] = read_clocks, most_records: int = _MOST_RECORDS
    ) -> None:
        self._fd = fd
        self._clocks = clocks
        self._most_records = most_records
        self._lines: deque[_Line] = deque(maxlen=_MOST_KEPT)

    def device_errors(self, bus_ids: Iterable[str], since_at: int) -> list[str]:
        """The lines about these devices since a time, oldest first."""
        self._read_on()
        now = self._clocks()
        # Which clock the records follow depends on the machine, and the two part by seconds in a day.
        since_us = min(clock_us - (now.wall_us - since_at * 1_000) for clock_us in now.since_boot_us)
        slots = {_slot(bus_id) for bus_id in bus_ids}
        return [line.text for line in self._lines if line.at_us >= since_us and line.slot in slots]

    def _read_on(self) -> None:
        for _ in range(self._most_records):
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # What came next has been overwritten; reading goes on after it.
            except OSError:
                return  # Most often: that was all.
            if not record:
                return
            if b"Xid" in record and (line := _line(record.decode(errors="replace"))) is not None:
                self._lines.append(line)
        with contextlib.suppress(OSError):
            os.lseek(self._fd, 0, os.SEEK_END)


def open_kernel_log(path: str = _PATH) -> KernelLog | None:
    """The log, where it may be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    return KernelLog(fd)


def _line(record: str) -> _Line | None:
    """A record is `priority,number,microseconds,...;text`, with more lines about its device."""
    head, _, rest = record.partition(";")
    text = rest.partition("\n")[0]
    found = _XID.search(text)
    try:
        at_us = int(head.split(",")[2])
    except (IndexError, ValueError):
        return None
    slot = None if found is None else _slot(found[1])
    if found is None or slot is None or int(found[2]) in _HARMLESS:
        return None
    return _Line(at_us, slot, text)


def _slot(bus_id: str) -> tuple[int, ...] | None:
    """Domain, bus and device: the kernel writes 0000:3b:00 where NVML writes 00000000:3B:00.0."""
    try:
        return tuple(int(part, 16) for part in bus_id.partition(".")[0].split(":"))
    except ValueError:
        return None
