"""Takes the directories of a staged attempt into root's hands before its job starts, and gives them back to be prepared
again.

Until the job starts, all of an attempt's directory is its user's, because a process of that user fills it. From then on
root uses some of the paths in it (a sandbox binds them, notices are written there), so neither the job nor another one
of the same user may put something else in their place: these directories become root's, the job's group may write in
them, and sticky keeps it from replacing them. No link is followed. Must not know what the directories are for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from windfall.agent.errors import CannotStart

_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_MODE = 0o1770
_OWN_MODE = 0o750
_PRIVATE_MODE = 0o700


def seal(root: str, kept: Iterable[str], own: str, gid: int) -> None:
    """Make `root` and the directories in it root's own; the job may read `own` but not write there. CannotStart."""
    try:
        with _opened(root, ".") as fd:
            _take(fd, gid, _KEPT_MODE)
        for relative in _with_parents(kept):
            with _opened(root, relative) as fd:
                _take(fd, gid, _OWN_MODE if relative == own else _KEPT_MODE)
                taken = os.fstat(fd)
            # What was opened may have been moved away before it was taken; what is taken cannot be moved any more.
            with _opened(root, relative) as fd:
                if not os.path.samestat(os.fstat(fd), taken):
                    raise CannotStart(f"{relative} was replaced while the attempt was prepared")
    except OSError as error:
        raise CannotStart(f"{root} is not as it was prepared: {error.strerror}", error.errno) from None


def unseal(root: str, kept: Iterable[str], owner: tuple[int, int]) -> None:
    """Give back what `seal` has taken, so that the directory can be emptied; nothing where it is not sealed.

    The root may be its user's again already: an attempt that comes a second time is given what it has left.
    """
    with _opened(root, ".") as fd:
        # The root last: as long as it is sealed, nothing in it can be replaced.
        for relative in reversed(_with_parents(kept)):
            try:
                with _opened(root, relative) as below:
                    if _is_sealed(below, owner[1]):
                        _give(below, owner)
            except OSError:
                continue  # It was never made.
        if os.fstat(fd).st_uid == os.geteuid():
            _give(fd, owner)


def _with_parents(paths: Iterable[str]) -> list[str]:
    """Every directory on the way to some paths, each after the one that holds it."""
    found = {
        "/".join(parts[:count])
        for parts in (path.split("/") for path in paths if path not in ("", "."))
        for count in range(1, len(parts) + 1)
    }
    return sorted(found, key=lambda path: (path.count("/"), path))


@contextmanager
def _opened(root: str, relative: str) -> Iterator[int]:
    fd = os.open(root, _LOOK)
    try:
        for part in relative.split("/"):
            if part != ".":
                below = os.open(part, _LOOK, dir_fd=fd)
                os.close(fd)
                fd = below
        yield fd
    finally:
        os.close(fd)


def _is_sealed(fd: int, gid: int) -> bool:
    """Whether `seal` has left a directory so; another one of root's is not given away, wherever its user puts it."""
    status = os.fstat(fd)
    mode = stat.S_IMODE(status.st_mode)
    return (status.st_uid, status.st_gid) == (os.geteuid(), gid) and mode in (_KEPT_MODE, _OWN_MODE)


def _take(fd: int, gid: int, mode: int) -> None:
    os.fchown(fd, os.geteuid(), gid)
    os.fchmod(fd, mode)


def _give(fd: int, owner: tuple[int, int]) -> None:
    os.fchown(fd, *owner)
    os.fchmod(fd, _PRIVATE_MODE)
