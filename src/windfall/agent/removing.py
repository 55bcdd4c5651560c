"""Removes a directory that a job filled, whatever is in it: any depth, any mode, any name.

Without recursion and with two descriptors: directories are moved up to the top before they are emptied, so that neither
a path nor a stack grows with their depth. Links are removed, never followed. Must not know whose directory it is.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress

#: How the name of what could not be removed ends; no attempt's directory has such a name.
ASIDE = ".cannot-be-removed"
#: How often removing is begun again: a process that has not ended yet may go on writing.
_ROUNDS = 3
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL = 0o700


def remove_tree(path: str) -> str | None:
    """Remove a directory with all that is in it; the answer is why something is left, or None."""
    parent, name = os.path.split(path)
    fault: str | None = None
    try:
        parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return None if isinstance(error, FileNotFoundError) else _words(error)
    try:
        for _ in range(_ROUNDS):
            try:
                fault = _empty(parent_fd, name)
                os.rmdir(name, dir_fd=parent_fd)
            except FileNotFoundError:
                return None
            except OSError as error:
                fault = fault or _words(error)
            else:
                return None
    finally:
        os.close(parent_fd)
    return fault


def put_aside(path: str) -> str | None:
    """Give what cannot be removed another name; None if not even that is possible."""
    aside = f"{path}{ASIDE}"
    if os.path.lexists(aside):
        aside = f"{path}.{uuid.uuid4().hex}{ASIDE}"
    try:
        os.rename(path, aside)
    except OSError:
        return None
    return aside


def _empty(parent_fd: int, name: str) -> str | None:
    """Remove all that is in a directory; the answer is why something is left."""
    top_fd = _opened(name, parent_fd)
    prefix, number = f".{uuid.uuid4().hex}", 0
    try:
        waiting, fault = _clear(top_fd)
        while waiting:
            below = waiting.pop()
            try:
                fd = _opened(below, top_fd)
                try:
                    deeper, left = _clear(fd)
                    fault = left or fault
                    for directory in deeper:
                        number += 1
                        waiting.append(f"{prefix}-{number}")
                        _move_up(directory, fd, waiting[-1], top_fd)
                finally:
                    os.close(fd)
                os.rmdir(below, dir_fd=top_fd)
            except OSError as error:
                fault = fault or _words(error)
    finally:
        os.close(top_fd)
    return fault


def _clear(fd: int) -> tuple[list[str], str | None]:
    """Remove everything but directories; returns the directories, and why something else is left."""
    while True:
        removed, directories, fault = False, [], None
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                    continue
                try:
                    os.unlink(entry.name, dir_fd=fd)
                    removed = True
                except FileNotFoundError:
                    continue
                except OSError as error:
                    fault = _words(error)
        # A directory that changes while it is read may not show all that is in it.
        if not removed:
            return directories, fault


def _move_up(name: str, fd: int, new_name: str, top_fd: int) -> None:
    try:
        os.rename(name, new_name, src_dir_fd=fd, dst_dir_fd=top_fd)
    except PermissionError:  # Only a directory that may be changed can be moved.
        os.close(_opened(name, fd))
        os.rename(name, new_name, src_dir_fd=fd, dst_dir_fd=top_fd)


def _opened(name: str, parent_fd: int) -> int:
    """Open a directory of which the job may have taken away the right to look into it, or to change it."""
    try:
        fd = os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent_fd)
    except PermissionError:
        path_fd = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent_fd)
        try:
            os.chmod(f"/proc/self/fd/{path_fd}", _ALL)
        finally:
            os.close(path_fd)
        return os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent_fd)
    if os.fstat(fd).st_mode & _ALL != _ALL:
        with suppress(OSError):
            os.fchmod(fd, _ALL)
    return fd


def _words(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "") + f" {error.strerror}"
