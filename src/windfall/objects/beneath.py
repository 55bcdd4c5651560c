"""Paths below a directory, opened one segment at a time so that no link is ever followed.

A program that may write into such a directory could put a link in the place of any directory or file there; opening
the path by its whole name would lead out of it, with rights that the program does not have. Decides how a
directory is reached, made and read. Must not know what the files are.
"""

# Everything is done on descriptors and names beside them; pathlib has no such functions.
# ruff: noqa: PTH102, PTH112, PTH120

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence

#: Enough to go on from, and allowed where a directory may be passed but not listed.
_PASS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Beneath:
    """A directory that is trusted with its whole path, and what is below it, which is not."""

    def __init__(self, base: str) -> None:
        self.base = base

    @contextlib.contextmanager
    def directory(self, segments: Sequence[str], *, make: bool = False) -> Iterator[int]:
        """Open a directory to work in; OSError (ELOOP) where a link stands in the way.

        With `make`, those that are missing are made, each known to the disk before something is put into it.
        """
        if make:
            _make_whole(self.base)
        at = os.open(self.base, _PASS & ~os.O_NOFOLLOW)
        try:
            for segment in segments:
                below = _step(at, segment, make=make)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)

    @contextlib.contextmanager
    def listing(self, segments: Sequence[str]) -> Iterator[int]:
        """Open a directory whose names can be read."""
        with self.directory(segments) as at:
            fd = os.open(".", _LIST, dir_fd=at)
        try:
            yield fd
        finally:
            os.close(fd)


@contextlib.contextmanager
def plain_file(name: str, at: int) -> Iterator[int]:
    """Open a plain file of a directory for reading; OSError for a link, FileNotFoundError for anything else."""
    # Not blocking: a pipe of that name would otherwise hold up its reader for ever.
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            raise FileNotFoundError(errno.ENOENT, "not a plain file", name)
        yield fd
    finally:
        os.close(fd)


def sync_directory(at: int) -> None:
    """Make the names of a directory known to the disk."""
    fd = os.open(".", _LIST, dir_fd=at)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _step(at: int, segment: str, *, make: bool) -> int:
    while True:
        try:
            return os.open(segment, _PASS, dir_fd=at)
        except FileNotFoundError:
            if not make:
                raise
        except NotADirectoryError:
            # The kernel says so of a link too when a directory is asked for.
            if stat.S_ISLNK(os.stat(segment, dir_fd=at, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), segment) from None
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(segment, 0o700, dir_fd=at)
        sync_directory(at)


def _make_whole(directory: str) -> None:
    missing = []
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        above = os.open(os.path.dirname(path), _LIST)
        try:
            os.fsync(above)
        finally:
            os.close(above)
