"""Opens what a job's submitter names of this host, its working directory above all, with the rights of the job's user.

A root agent could open any directory, and a process that starts in one can read it, however closed the directories
above it are. So a thread takes the file rights of the job's user, and only those: it cannot be signalled by that user's
processes meanwhile. What it opened is known by its device and inode number, by which a sandbox is checked that names
the directory by its path once more. Must not know attempts.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from collections.abc import Iterable
from typing import NamedTuple

from windfall.agent.credentials import JobUser, set_thread_groups, unshare_working_directory
from windfall.agent.errors import CannotStart
from windfall.agent.sandbox_mounts import is_within
from windfall.agent.spawner import errno_words

#: How long a file system may take to answer: one that the job's user serves itself might never do so.
_ANSWERS_WITHIN_S = 5.0
_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_UNCHANGED = ctypes.c_uint32(0xFFFFFFFF)

_libc = ctypes.CDLL(None, use_errno=True)


class NoAnswer(CannotStart):
    """A file system that does not answer."""


class Entered(NamedTuple):
    """A directory that the job's user may enter."""

    fd: int
    #: Without symbolic links.
    path: str
    #: `device:inode`, as `stat -c %d:%i` prints it.
    identity: str


class Seen(NamedTuple):
    """What the job's user finds at a path: a file, a directory that it may enter, or a symbolic link."""

    #: Without symbolic links above it.
    path: str
    status: os.stat_result
    #: Where a symbolic link leads.
    target: str | None

    @property
    def identity(self) -> str:
        """The same as that of a directory that was entered."""
        return _identity(self.status)


def enter_as(user: JobUser, path: str, hidden: Iterable[str]) -> Entered:
    """Open a directory as this user; raises CannotStart where the user may not enter it, or where it is hidden."""
    fd, status = _open_as_user(user, path, _FLAGS) if user.drop else _open(path, _FLAGS)
    try:
        real = os.readlink(f"/proc/self/fd/{fd}")
        if is_hidden(real, hidden):
            raise CannotStart(
                f'chdir "{path}": it is in the data directory of Windfall; choose another directory'
            )
    except BaseException:
        os.close(fd)
        raise
    return Entered(fd, real, _identity(status))


def see_as(user: JobUser, path: str) -> Seen:
    """Look at a path as this user, without following it; raises CannotStart where the user cannot reach or enter it."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    fd, status = _open_as_user(user, path, flags) if user.drop else _open(path, flags)
    try:
        target = os.readlink("", dir_fd=fd) if stat.S_ISLNK(status.st_mode) else None
        return Seen(os.readlink(f"/proc/self/fd/{fd}"), status, target)
    finally:
        os.close(fd)


def is_hidden(path: str, hidden: Iterable[str]) -> bool:
    """Whether a path without symbolic links is in a directory that no job may see."""
    return any(is_within(path, os.path.realpath(each)) for each in hidden)


def _identity(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def _open(path: str, flags: int) -> tuple[int, os.stat_result]:
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise _refusal(path, error) from None
    except ValueError:
        raise _refusal(path, OSError(errno.EINVAL, "")) from None
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode) and not os.access(f"/proc/self/fd/{fd}", os.X_OK):
        os.close(fd)
        raise _refusal(path, OSError(errno.EACCES, ""))
    return fd, status


def _open_as_user(user: JobUser, path: str, flags: int) -> tuple[int, os.stat_result]:
    opened: list[tuple[int, os.stat_result] | OSError] = []
    given_up = threading.Event()

    def look() -> None:
        fd = -1
        try:
            unshare_working_directory()
            _take_file_rights(user)
            fd = os.open(path, flags)
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                os.fchdir(fd)
            opened.append((fd, status))
        except OSError as error:
            opened.append(error)
        except ValueError:
            opened.append(OSError(errno.EINVAL, ""))
        if fd >= 0 and (given_up.is_set() or isinstance(opened[-1], OSError)):
            os.close(fd)

    thread = threading.Thread(target=look, name="entering", daemon=True)
    thread.start()
    thread.join(_ANSWERS_WITHIN_S)
    if thread.is_alive():
        given_up.set()
        raise NoAnswer(f'chdir "{path}": no answer from its file system within {_ANSWERS_WITHIN_S:g} s')
    found = opened[0]
    if isinstance(found, OSError):
        raise _refusal(path, found)
    return found


def _refusal(path: str, error: OSError) -> CannotStart:
    return CannotStart(f'chdir "{path}": {errno_words(error.errno or 0)}', error.errno)


def _take_file_rights(user: JobUser) -> None:
    """Have this thread open files as the user does; the C library changes these ids for the calling thread alone."""
    set_thread_groups(user.groups)
    for call, number in ((_libc.setfsgid, user.gid), (_libc.setfsuid, user.uid)):
        call(ctypes.c_uint32(number))
        if call(_UNCHANGED) != number:
            raise OSError(errno.EPERM, "the rights of the job's user cannot be taken")
