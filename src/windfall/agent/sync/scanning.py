"""What a checkpoint directory holds at one look, without following anything out of it.

Decides which names count: unfinished ones do not, links and special files are told and left alone. Everything is opened
relative to the directory's own descriptor, segment by segment: the job owns this directory and may swap a
directory for a link at any moment, while the syncing process may read more than the job. Must not know about stores.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from windfall.agent.sync.births import born_ns
from windfall.agent.sync.manifests import RESERVED

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Non-blocking, because a name may have become a pipe since it was looked at.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_UNFINISHED_ENDINGS = (".tmp", ".part", "~")
_DEEPEST = 64
_YOUNG_NS = 120 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes when a file's content does."""

    device: int
    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int

    def same_content(self, other: Stamp) -> bool:
        """Whether the content is the same; that its name was given to another file meanwhile does not matter."""
        return (self.device, self.inode, self.bytes, self.mtime_ns) == (
            other.device,
            other.inode,
            other.bytes,
            other.mtime_ns,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """One regular file."""

    stamp: Stamp
    mode: int
    #: When it was made; 0 for one that has not changed for long, and where it is not known.
    born_ns: int = 0

    def is_same_file(self, other: Found) -> bool:
        """Whether it is the very file that another look found under this name, whatever is in it now."""
        if 0 in (self.born_ns, other.born_ns):
            return self.stamp.inode == other.stamp.inode
        return (self.stamp.inode, self.born_ns) == (other.stamp.inode, other.born_ns)


@dataclass(slots=True)
class Look:
    """Everything of one look; paths are relative, with `/`."""

    files: dict[str, Found] = field(default_factory=dict)
    directories: dict[str, int] = field(default_factory=dict)
    #: What is left out although it has a finished name, and why.
    odd: dict[str, str] = field(default_factory=dict)


def is_unfinished(name: str) -> bool:
    """Whether a name says itself that it is being written."""
    return name.endswith(_UNFINISHED_ENDINGS) or name.startswith(".tmp")


def look_through(directory: str) -> Look:
    """All finished names below a directory; raises FileNotFoundError where it is gone."""
    look = Look()
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _look_into(root, "", look, 0)
    finally:
        os.close(root)
    return look


def _look_into(descriptor: int, prefix: str, look: Look, depth: int) -> None:
    with os.scandir(descriptor) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        path = prefix + name
        if is_unfinished(name):
            continue
        if path == RESERVED:
            look.odd[path] = "its name is reserved"
            continue
        try:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            continue  # gone since the directory was read
        if stat.S_ISREG(found.st_mode):
            # Of old files it matters not, and asking costs as much as the look itself.
            is_young = time.time_ns() - found.st_mtime_ns < _YOUNG_NS
            born = born_ns(name, descriptor) if is_young else 0
            look.files[path] = Found(stamp_of(found), stat.S_IMODE(found.st_mode), born)
        elif stat.S_ISDIR(found.st_mode):
            _look_below(descriptor, name, path, look, depth)
        else:
            look.odd[path] = (
                "it is a symbolic link" if stat.S_ISLNK(found.st_mode) else "it is a special file"
            )


def _look_below(descriptor: int, name: str, path: str, look: Look, depth: int) -> None:
    if depth >= _DEEPEST:
        look.odd[path] = f"it lies more than {_DEEPEST} directories deep"
        return
    try:
        below = os.open(name, _DIRECTORY, dir_fd=descriptor)
    except (FileNotFoundError, NotADirectoryError, OSError):
        return  # gone or swapped since it was looked at; the next look decides
    try:
        look.directories[path] = stat.S_IMODE(os.fstat(below).st_mode)
        _look_into(below, f"{path}/", look, depth + 1)
    finally:
        os.close(below)


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp in what the kernel says of a file."""
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@contextmanager
def opened_below(directory: str, path: str) -> Iterator[int]:
    """A descriptor of a regular file below a directory, for reading; OSError where it is none any more."""
    *parents, name = path.split("/")
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            below = os.open(parent, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        descriptor = os.open(name, _FILE, dir_fd=at)
    finally:
        os.close(at)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(f"{path} is no regular file any more")
        yield descriptor
    finally:
        os.close(descriptor)


def has_stamp(directory: str, path: str, stamp: Stamp) -> bool:
    """Whether a file is still the one that was looked at, unchanged."""
    try:
        with opened_below(directory, path) as descriptor:
            return stamp_of(os.fstat(descriptor)) == stamp
    except OSError:
        return False
