"""What a checkpoint directory holds at one look, without following anything out of it.

Decides which names count: unfinished ones do not; links that stay inside are kept as links, those that lead out and
special files are told and left alone. Everything is opened relative to the directory's own descriptor, segment by
segment: the job owns this directory and may swap a directory for a link at any moment, while the syncing process may
read more than the job. Must not know about stores.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from windfall.agent.sync.births import born_ns
from windfall.agent.sync.links import Link, kept_target
from windfall.agent.sync.manifests import RESERVED
from windfall.agent.walking import entries_below, open_plain, opened_directory, opened_root

_UNFINISHED_ENDINGS = (".tmp", ".part", "~")
_YOUNG_NS = 120 * 1_000_000_000
#: A longer file would make a manifest that nobody can handle; a job can make one of holes with a single call.
LONGEST_BYTES = 1 << 44


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
    links: dict[str, Link] = field(default_factory=dict)
    #: What is left out although it has a finished name, and why.
    odd: dict[str, str] = field(default_factory=dict)
    #: What the directory's file system says that the time is; None where it does not say.
    clock_ns: int | None = None


def is_unfinished(name: str) -> bool:
    """Whether a name says itself that it is being written."""
    return name.endswith(_UNFINISHED_ENDINGS) or name.startswith(".tmp")


def look_through(directory: str, before: Look | None = None, known_as: Collection[str] = ()) -> Look:
    """All finished names below a directory; raises FileNotFoundError where it is gone.

    `before` is an earlier look, of which everything is used that has not changed; `known_as` are the directory's
    absolute paths, the job's own among them.
    """
    look = Look()
    root = opened_root(directory)
    try:
        look.clock_ns = _clock_ns(root)
        known = {} if before is None else before.files
        young_since_ns = time.time_ns() - _YOUNG_NS

        def enter(path: str) -> bool:
            return path in look.directories

        def cannot_open(path: str, error: OSError) -> None:
            del look.directories[path]
            look.odd[path] = f"it cannot be looked into ({error.strerror})"

        for path, status, holder in entries_below(root, enter, cannot_open):
            name = path.rpartition("/")[2]
            if is_unfinished(name):
                continue
            if path == RESERVED:
                look.odd[path] = "its name is reserved"
            elif stat.S_ISREG(status.st_mode):
                if status.st_size > LONGEST_BYTES:
                    look.odd[path] = f"it is longer than {LONGEST_BYTES >> 40} TiB"
                else:
                    found = known.get(path)
                    if found is None or not _is_as_found(status, found):
                        # Of old files it matters not, and asking costs as much as the look itself.
                        is_young = status.st_mtime_ns > young_since_ns
                        born = born_ns(name, holder) if is_young else 0
                        found = Found(stamp_of(status), stat.S_IMODE(status.st_mode), born)
                    look.files[path] = found
            elif stat.S_ISDIR(status.st_mode):
                look.directories[path] = stat.S_IMODE(status.st_mode)
            elif stat.S_ISLNK(status.st_mode):
                _look_at_link(look, path, status, holder, known_as)
            else:
                look.odd[path] = "it is a special file"
    finally:
        os.close(root)
    return look


def _is_as_found(status: os.stat_result, found: Found) -> bool:
    stamp = found.stamp
    return (
        stamp.ctime_ns == status.st_ctime_ns
        and stamp.mtime_ns == status.st_mtime_ns
        and stamp.bytes == status.st_size
        and stamp.inode == status.st_ino
        and stamp.device == status.st_dev
        and found.mode == stat.S_IMODE(status.st_mode)
    )


def _look_at_link(
    look: Look, path: str, status: os.stat_result, holder: int, known_as: Collection[str]
) -> None:
    try:
        target = os.readlink(path.rpartition("/")[2], dir_fd=holder)
    except OSError:
        return  # gone or swapped since it was looked at; the next look decides
    kept = kept_target(path, target, known_as)
    if kept is None:
        look.odd[path] = f"it is a symbolic link that leads out of the directory, to {target[:200]!r}"
    else:
        look.links[path] = Link(kept, status.st_mtime_ns)


def _clock_ns(directory: int) -> int | None:
    """The time that a file would get that is made now: of a network file system, that is the server's."""
    flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(".", flags, 0o600, dir_fd=directory)
        try:
            return os.fstat(descriptor).st_ctime_ns
        finally:
            os.close(descriptor)
    return None


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp in what the kernel says of a file."""
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@contextmanager
def opened_below(directory: str, path: str) -> Iterator[int]:
    """A descriptor of a regular file below a directory, for reading; OSError where it is none any more."""
    descriptor = open_below(directory, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(directory: str, path: str) -> int:
    """A descriptor of a regular file below a directory, for reading, which the caller closes; OSError otherwise."""
    above, _, name = path.rpartition("/")
    root = opened_root(directory)
    try:
        holder = opened_directory(root, above)
    finally:
        os.close(root)
    try:
        return open_plain(name, holder)
    finally:
        os.close(holder)
