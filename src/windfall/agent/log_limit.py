"""Keeps a job's log within its limit: the beginning and the newest part stay, what lies between becomes a hole.

A job writes straight into its log, so nothing stands in its way and nothing can be taken from it. Instead the blocks in
the middle of the file are given back to the disk. Every byte that is left stays at its offset, so that readers, their
tokens and the times of the log need not know. A line behind the hole says what is missing and how to keep more.
Decides what is kept and how a hole is found; a file system without holes is left alone. Must not know attempts.
"""

from __future__ import annotations

import ctypes
import errno
import os

from windfall.agent.log_room import open_to_write
from windfall.agent.speech import say

#: Holes begin and end at multiples of this, or of the file system's blocks where those are larger.
_BLOCK_BYTES = 4 << 10
#: Of the limit: what the beginning gets, and what is left of the newest part when it has outgrown the rest.
_BEGINNING_PART, _NEWEST_PART = 4, 2
#: Where the first whole line behind the hole is looked for.
_LINE_BYTES = 64 << 10
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class LogLimit:
    """The limit of one attempt's log; 0 means none."""

    __slots__ = ("_limit_bytes", "_path")

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = path
        self._limit_bytes = limit_bytes

    def keep(self) -> None:
        """Shorten the log if it has outgrown its limit; where that cannot be done it is said once."""
        try:
            keep_within(self._path, self._limit_bytes)
        except OSError as error:
            self._limit_bytes = 0
            say(f"{self._path} is longer than its limit and cannot be shortened: {error.strerror}")


def lower_limit(wanted: int | None, most: int) -> int:
    """The limit of a job's log: its own if the agent's is higher, or none."""
    return most if wanted is None else min(wanted, most or wanted)


def keep_within(path: str, limit_bytes: int) -> None:
    """Shorten a log that has more than its limit; raises OSError where the file system has no holes."""
    if limit_bytes <= 0:
        return
    try:
        if os.stat(path).st_size <= limit_bytes:
            return
        fd = open_to_write(path)
    except OSError:
        return  # Not there yet, or purged.
    try:
        _shorten(fd, limit_bytes)
    finally:
        os.close(fd)


def hole_from(fd: int, offset: int, size: int) -> tuple[int, int]:
    """The first hole of a file at or behind an offset, and where it ends; both are `size` where there is none."""
    if offset >= size:
        return size, size
    try:
        start = os.lseek(fd, offset, os.SEEK_HOLE)
    except OSError:
        return size, size
    if start >= size:
        return size, size
    try:
        return start, min(size, os.lseek(fd, start, os.SEEK_DATA))
    except OSError:
        return start, size  # Nothing but a hole up to the end.


def without_holes(fd: int, offset: int, content: bytes) -> bytes:
    """What was read at an offset, with newlines in place of holes: they are blank lines, which nobody shows."""
    end = offset + len(content)
    position = offset
    while b"\0" in content:
        start, position = hole_from(fd, position, end)
        if start >= end:
            break
        content = content[: start - offset] + b"\n" * (position - start) + content[position - offset :]
    return content


def _shorten(fd: int, limit_bytes: int) -> None:
    block = max(_BLOCK_BYTES, os.fstatvfs(fd).f_bsize)
    size = os.fstat(fd).st_size
    begin = limit_bytes // _BEGINNING_PART // block * block
    newest_from = _data_from(fd, begin, size)
    if size - newest_from <= limit_bytes - begin:
        return
    end = (size - limit_bytes // _NEWEST_PART) // block * block
    if end <= begin:
        return
    # One block first: where that fails nothing has changed.
    _punch(fd, begin, begin + block)
    _write_line(fd, end, _words(end - begin, limit_bytes))
    _punch(fd, begin, end)


def _punch(fd: int, begin: int, end: int) -> None:
    if _libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, begin, end - begin) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _data_from(fd: int, offset: int, size: int) -> int:
    """Where the first data at or behind an offset are."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset


def _words(missing_bytes: int, limit_bytes: int) -> bytes:
    return (
        f"\n[windfall: {_size(missing_bytes)} of output are not kept here: the log of an attempt is limited to"
        f" {_size(limit_bytes)}. `windfall up --job-log-limit` and the tag windfall:log-limit set the limit.]\n"
    ).encode()


def _size(count: int) -> str:
    amount, unit = (count / (1 << 30), "GiB") if count >= 1 << 30 else (count / (1 << 20), "MiB")
    return f"{amount:.3g} {unit}"


def _write_line(fd: int, offset: int, line: bytes) -> None:
    """Write a line over the beginning of what is kept, up to the end of a line of the job."""
    newline = os.pread(fd, _LINE_BYTES, offset).find(b"\n", len(line) - 1)
    os.pwrite(fd, line.ljust(newline + 1, b"\n"), offset)
