"""Opens the directory in which a job's own submitter wants it to start, with the rights of the job's user.

A root agent could open any directory, and a process that starts in one can read it, however closed the directories
above it are. So a thread takes the file rights of the job's user, and only those: it cannot be signalled by that user's
processes meanwhile. What it opened is known by its device and inode number, by which a sandbox is checked that names
the directory by its path once more. Must not know attempts.
"""

from __future__ import annotations

import ctypes
import errno
import os
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


class Entered(NamedTuple):
    """A directory that the job's user may enter."""

    fd: int
    #: Without symbolic links.
    path: str
    #: `device:inode`, as `stat -c %d:%i` prints it.
    identity: str


def enter_as(user: JobUser, path: str, hidden: Iterable[str]) -> Entered:
    """Open a directory as this user; raises CannotStart where the user may not enter it, or where it is hidden."""
    fd = _open_as_user(user, path) if user.drop else _open(path)
    try:
        status = os.fstat(fd)
        real = os.readlink(f"/proc/self/fd/{fd}")
        if any(is_within(real, os.path.realpath(each)) for each in hidden):
            raise CannotStart(
                f'chdir "{path}": it is in the data directory of Windfall; choose another directory'
            )
    except BaseException:
        os.close(fd)
        raise
    return Entered(fd, real, f"{status.st_dev}:{status.st_ino}")


def _open(path: str) -> int:
    try:
        fd = os.open(path, _FLAGS)
    except OSError as error:
        raise _refusal(path, error) from None
    except ValueError:
        raise _refusal(path, OSError(errno.EINVAL, "")) from None
    if not os.access(f"/proc/self/fd/{fd}", os.X_OK):
        os.close(fd)
        raise _refusal(path, OSError(errno.EACCES, ""))
    return fd


def _open_as_user(user: JobUser, path: str) -> int:
    opened: list[int | OSError] = []
    given_up = threading.Event()

    def look() -> None:
        fd = -1
        try:
            unshare_working_directory()
            _take_file_rights(user)
            fd = os.open(path, _FLAGS)
            os.fchdir(fd)
            opened.append(fd)
        except OSError as error:
            opened.append(error)
        except ValueError:
            opened.append(OSError(errno.EINVAL, ""))
        if fd >= 0 and (given_up.is_set() or opened[-1] != fd):
            os.close(fd)

    thread = threading.Thread(target=look, name="entering", daemon=True)
    thread.start()
    thread.join(_ANSWERS_WITHIN_S)
    if thread.is_alive():
        given_up.set()
        raise CannotStart(f'chdir "{path}": no answer from its file system within {_ANSWERS_WITHIN_S:g} s')
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
