"""Opens the log of a job, and keeps room for what it says next on the disk, ahead of the end of the log.

A job writes straight into its log. On a full disk its next line would fail, and with it a job that has done nothing
wrong. So the blocks for the next lines are reserved while there is room, and given back when the attempt has ended.
Decides how much; a file system that cannot reserve is left alone. Must not know attempts.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress

from windfall.agent.errors import CannotStart
from windfall.agent.spawner import errno_words

#: How much is reserved: a part of what the log has, between these.
_LEAST_BYTES = 16 << 10
_MOST_BYTES = 1 << 20
_SHARE = 4
#: With less than this left for unprivileged users no attempt is started.
_START_BYTES = 64 << 10
_KEEP_SIZE = 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class LogRoom:
    """The room after the end of one log."""

    __slots__ = ("_path", "_until_bytes")

    def __init__(self, path: str) -> None:
        self._path = path
        #: Up to where this process has reserved; 0 for an attempt that is too young to need it.
        self._until_bytes = 0

    def keep(self) -> None:
        """See to it that there is room for more; on a disk that is full already there is what was kept before."""
        try:
            size = os.stat(self._path).st_size
            wanted = min(_MOST_BYTES, max(_LEAST_BYTES, size // _SHARE))
            if self._until_bytes - size >= wanted // 2:
                return
            fd = open_to_write(self._path)
        except OSError:
            return
        try:
            if _libc.fallocate(fd, _KEEP_SIZE, size, wanted) == 0 or ctypes.get_errno() != errno.ENOSPC:
                self._until_bytes = size + wanted
        finally:
            os.close(fd)

    def give_back(self) -> None:
        """Free what was reserved and not used; nothing writes to the log any more."""
        if not self._until_bytes:
            return
        self._until_bytes = 0
        with suppress(OSError):
            fd = open_to_write(self._path)
            try:
                os.ftruncate(fd, os.fstat(fd).st_size)
            finally:
                os.close(fd)


def open_log(path: str) -> int:
    """Open an attempt's log to be added to; raises CannotStart, also where there is no room for it."""
    fd = _open_log(path)
    try:
        check_room(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_log(path: str) -> int:
    directory = os.path.dirname(path)
    if directory and not os.path.isdir(directory):
        # It was removed while the daemon runs, which is not the job's fault.
        with suppress(OSError):
            os.mkdir(directory, 0o700)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return open_or_refuse(path, flags, "open log")
    except CannotStart as error:
        if error.errno != errno.EACCES:
            raise
    # It was made before, for a start that failed; a non-root agent needs write permission to use it again.
    with suppress(OSError):
        os.chmod(path, 0o600)
    fd = open_or_refuse(path, flags, "open log")
    os.fchmod(fd, 0o400)
    return fd


def check_room(log_fd: int) -> None:
    """Raise CannotStart if the disk of a log has no room for what a job says first."""
    found = os.fstatvfs(log_fd)
    if found.f_blocks and found.f_bavail * found.f_frsize < _START_BYTES:
        raise CannotStart("its log: no space left on device", errno.ENOSPC)


def open_to_write(path: str) -> int:
    """Open a log that the job may not write to under its name: a non-root agent makes it writable for a moment."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError:
        mode = os.stat(path).st_mode & 0o777
        os.chmod(path, 0o600)
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        finally:
            os.chmod(path, mode)


def open_or_refuse(path: str, flags: int, verb: str) -> int:
    """Open a file or a directory; CannotStart in a container engine's words."""
    # A new log is read-only for everybody: the open file can be added to, but nobody who opens it again by its name
    # (`> /dev/stderr` does, and so do tools that log to /dev/stdout) can truncate what the job has said before.
    try:
        return os.open(path, flags, 0o400)
    except OSError as error:
        raise CannotStart(f'{verb} "{path}": {errno_words(error.errno or 0)}', error.errno) from None
