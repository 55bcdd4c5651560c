"""When each part of a job's log was written, kept beside the log because the bytes never pass through the
agent.

The job writes straight into its log file, so nothing sees its lines as they come. The agent looks at the
sizes of growing logs (at most every 500 ms) and appends one fixed-size record to `<log>.times`: how large
the file was, and when. A reader gives every byte the time of the first record that reaches past it. Must
not know attempts or messages.
"""

from __future__ import annotations

import os
import struct

_RECORD = struct.Struct("<QQ")
#: Bytes per record: u64 size of the log, u64 milliseconds since the epoch, little endian.
RECORD_BYTES = _RECORD.size


def times_path(log_path: str) -> str:
    """Return where the times of this log are kept."""
    return log_path + ".times"


class LogTimes:
    """Writes the times of one log; holds no file open between records."""

    __slots__ = ("_log_path", "_seen_bytes")

    def __init__(self, log_path: str, *, resume: bool = False) -> None:
        self._log_path = log_path
        self._seen_bytes = 0
        if resume:
            records = times_at(log_path)
            self._seen_bytes = records[-1][0] if records else 0

    def note(self, at_ms: int) -> bool:
        """Append a record if the log grew since the last one; return whether it did."""
        try:
            size = os.stat(self._log_path).st_size
        except OSError:
            return False
        if size <= self._seen_bytes:
            return False
        fd = os.open(times_path(self._log_path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, _RECORD.pack(size, at_ms))
        finally:
            os.close(fd)
        self._seen_bytes = size
        return True


def times_at(log_path: str) -> list[tuple[int, int]]:
    """Return the (size, at_ms) records of a log, oldest first; a record torn by a crash is left out."""
    try:
        with open(times_path(log_path), "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return []
    whole = len(content) - len(content) % RECORD_BYTES
    return list(_RECORD.iter_unpack(content[:whole]))
