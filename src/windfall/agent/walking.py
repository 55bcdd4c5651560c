"""Walks through directories that somebody else may change meanwhile, at any depth, with two open files.

Decides how a walk comes back up: by `..`, which counts only if it is the directory that the walk came from; else by the
names from the top. No link is followed, and nothing recurses: a job can make directories deeper than Python's stack,
a path's longest length and the number of files that may be open. Must not know what is looked for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A path of more characters is not walked into. Every step has the whole path, so its length is what a step costs.
LONGEST_PATH = 1 << 16

Identity = tuple[int, int]
#: Whether to go into a directory.
Enter = Callable[[str], bool]
#: Hears of a directory that cannot be opened.
OnError = Callable[[str, OSError], None]


@dataclass(slots=True)
class _Level:
    """A directory on the way from the top to where the walk is."""

    name: str
    identity: Identity
    #: What is left to look at, the next one last.
    names: list[str] = field(default_factory=list)


def _raised(_path: str, error: OSError) -> None:
    raise error


def entries_below(
    directory: int, enter: Enter = lambda _path: True, on_error: OnError = _raised
) -> Iterator[tuple[str, os.stat_result, int]]:
    """Yield everything below an open directory in order: its path, its status, the open directory that holds it.

    A directory comes before what is in it. What vanishes meanwhile is left out. A directory that cannot be opened, or
    whose path is too long, is an OSError, unless `on_error` takes it.
    """
    walk = _Walk(directory)
    try:
        walk.down(".", "")
        while walk.levels:
            name = walk.next_name()
            if name is None:
                walk.up()
                continue
            try:
                status = os.stat(name, dir_fd=walk.at, follow_symlinks=False)
            except FileNotFoundError:
                continue
            path = walk.prefix + name
            yield path, status, walk.at
            if stat.S_ISDIR(status.st_mode) and enter(path):
                try:
                    if len(path) > LONGEST_PATH:
                        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), f"{path[:80]}...")
                    walk.down(name, f"{path}/")
                except (FileNotFoundError, NotADirectoryError):
                    continue  # gone or swapped since it was looked at
                except OSError as error:
                    on_error(path, error)
    finally:
        walk.close()


def open_plain(name: str, directory: int) -> int:
    """A descriptor of a regular file in an open directory, for reading, which the caller closes; OSError otherwise."""
    return open_if(stat.S_ISREG, name, directory, os.O_RDONLY | os.O_NONBLOCK)


def open_if(is_wanted: Callable[[int], bool], name: str, directory: int, flags: int) -> int:
    """A descriptor of what has a name in an open directory, if its mode is one that is wanted; OSError otherwise.

    Nothing else is opened even for a moment: root of a container can make device files, and opening one may be felt.
    """
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = os.fstat(place).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        if not is_wanted(mode):
            raise FileNotFoundError(errno.ENOENT, "it is something else", name)
        return os.open(f"/proc/self/fd/{place}", flags | os.O_CLOEXEC)
    finally:
        os.close(place)


def directories_upwards(directory: int) -> Iterator[tuple[str, int]]:
    """Yield every directory below an open one after all that are in it: its path, and itself, open."""
    walk = _Walk(directory)
    try:
        walk.down(".", "")
        while walk.levels:
            name = walk.next_name()
            if name is None:
                if len(walk.levels) > 1:
                    yield walk.prefix[:-1], walk.at
                walk.up()
                continue
            with suppress(FileNotFoundError, NotADirectoryError):
                walk.down(name, f"{walk.prefix}{name}/")
    finally:
        walk.close()


def remove_below(directory: int, name: str) -> None:
    """Remove a directory of an open directory, with all that is in it; OSError where something cannot be."""
    walk = _Walk(directory)
    try:
        walk.down(name, "")
        while walk.levels:
            below = walk.next_name()
            if below is not None:
                _remove_entry(walk, below)
                continue
            left = walk.levels[-1]
            walk.up()
            os.rmdir(left.name, dir_fd=directory if not walk.levels else walk.at)
    finally:
        walk.close()


def removed(path: str) -> None:
    """Remove whatever is at a path, as far as it can be; what is not there is no error."""
    above, name = os.path.split(path.rstrip("/"))
    with suppress(OSError):
        directory = os.open(above or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                remove_below(directory, name)
            else:
                os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)


def opened_directory(directory: int, path: str, *, make: bool = False) -> int:
    """Open a directory below an open one, name by name, through no link; the caller closes it."""
    at = os.dup(directory)
    try:
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=at)
            below = os.open(name, LOOK, dir_fd=at)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


def opened_root(path: str) -> int:
    """Open a directory that a job may have replaced by a link; FileNotFoundError where it has. The caller closes it.

    What stands before `/./` in the path is trusted, and links in it are followed. Without that, all but the last
    name is trusted.
    """
    trusted, _, below = path.rpartition("/./")
    if not trusted:
        trusted, below = os.path.split(path.rstrip("/"))
    above = os.open(
        trusted or ("/" if path.startswith("/") else "."), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    )
    try:
        return opened_directory(above, below)
    except NotADirectoryError:
        raise FileNotFoundError(errno.ENOENT, "a link or a file is where the directory was", path) from None
    finally:
        os.close(above)


def _remove_entry(walk: _Walk, name: str) -> None:
    try:
        os.unlink(name, dir_fd=walk.at)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError) as error:
        # The second is what some file systems say of a directory.
        try:
            walk.down(name, "")
        except NotADirectoryError:
            raise error from None
        except PermissionError:
            os.chmod(name, 0o700, dir_fd=walk.at)
            walk.down(name, "")


class _Walk:
    """Where a walk is, and how it came there."""

    def __init__(self, top: int) -> None:
        self._top = top
        self.at = -1
        self.prefix = ""
        self.levels: list[_Level] = []

    def next_name(self) -> str | None:
        names = self.levels[-1].names
        return names.pop() if names else None

    def down(self, name: str, prefix: str) -> None:
        below = os.open(name, LOOK, dir_fd=self._top if not self.levels else self.at)
        try:
            names = sorted(os.listdir(below), reverse=True)
            level = _Level(name, _identity(below), names)
        except BaseException:
            os.close(below)
            raise
        self._move(below)
        self.levels.append(level)
        self.prefix = prefix

    def up(self) -> None:
        """Go back to the directory above, or to the nearest one above it that can still be found."""
        came_from = self.levels.pop()
        if not self.levels:
            return
        if self.prefix:
            self.prefix = self.prefix[: -len(came_from.name) - 1]
        with suppress(OSError):
            above = os.open("..", LOOK, dir_fd=self.at)
            if _identity(above) == self.levels[-1].identity:
                self._move(above)
                return
            os.close(above)
        # The directory was moved away under the walk.
        while self.levels:
            with suppress(OSError):
                above = opened_directory(self._top, "/".join(level.name for level in self.levels))
                if _identity(above) == self.levels[-1].identity:
                    self._move(above)
                    return
                os.close(above)
            gone = self.levels.pop()
            if self.prefix:
                self.prefix = self.prefix[: -len(gone.name) - 1]

    def close(self) -> None:
        if self.at >= 0:
            os.close(self.at)
            self.at = -1

    def _move(self, descriptor: int) -> None:
        self.close()
        self.at = descriptor


def _identity(descriptor: int) -> Identity:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
