"""When each part of a log was written, read from the records beside it.

The bytes of a job never pass through a program of ours, so a line carries no time. Beside `<task>.log` lies
`<task>.log.times`: records of two little-endian u64, (size of the log, milliseconds since the epoch),
appended while the log grows. A byte has the time of the first record that reaches it. A week of records is
20 MB, so they are bisected where they lie and never loaded. Must not know lines.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from pathlib import Path
from typing import BinaryIO

_RECORD = struct.Struct("<QQ")


def times_path(log: Path) -> Path:
    """Return where the times of this log are kept."""
    return log.with_name(log.name + ".times")


class RecordedTimes:
    """The records of one log as they were when it was opened; holds no file open between questions."""

    def __init__(self, log: Path) -> None:
        self._path = times_path(log)
        #: The range of ends that the latest answer holds for: lines mostly ask in order.
        self._known = (0, 0, 0)
        self._count = 0
        #: The last record: how much of the log has a time, and which. Zeros without records.
        self.size, self.at_ms = 0, 0
        try:
            with open(self._path, "rb", buffering=0) as file:
                # A record torn by a crash is left out.
                self._count = os.fstat(file.fileno()).st_size // _RECORD.size
                if self._count:
                    self.size, self.at_ms = _record(file, self._count - 1)
        except FileNotFoundError:
            self._count = 0

    def at(self, end: int) -> int | None:
        """Return the time of the first record that reaches `end`, or None when none does (yet)."""
        low, high, at_ms = self._known
        if low < end <= high:
            return at_ms
        if end > self.size:
            return None
        try:
            with open(self._path, "rb", buffering=0) as file:
                index = bisect_left(range(self._count), end, key=lambda i: _record(file, i)[0])
                low = _record(file, index - 1)[0] if index else 0
                high, at_ms = _record(file, index)
        except FileNotFoundError:
            return None  # the log was purged while it was being read
        self._known = (low, high, at_ms)
        return at_ms

    def size_before(self, at_ms: int) -> int:
        """Return how large the log was when last seen before `at_ms`; 0 when it was not."""
        if not self._count or self.at_ms < at_ms:
            return self.size
        try:
            with open(self._path, "rb", buffering=0) as file:
                index = bisect_left(range(self._count), at_ms, key=lambda i: _record(file, i)[1])
                return _record(file, index - 1)[0] if index else 0
        except FileNotFoundError:
            return 0


def _record(file: BinaryIO, index: int) -> tuple[int, int]:
    record = os.pread(file.fileno(), _RECORD.size, index * _RECORD.size)
    if len(record) < _RECORD.size:
        raise FileNotFoundError  # cut short while being read: as good as gone
    size, at_ms = _RECORD.unpack(record)
    return size, at_ms
