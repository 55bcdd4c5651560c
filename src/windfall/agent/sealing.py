"""Takes the directories of a staged attempt into root's hands before its job starts, and gives them back to be prepared
again.

Until the job starts, all of an attempt's directory is its user's, because a process of that user fills it. From then on
root uses some of the paths in it (a sandbox binds them, notices are written there), so neither the job nor another one
of the same user may put something else in their place: these directories become root's, the job's user may write in
them, and sticky keeps it from replacing them. That user is named in an access control list, because others may have the
same group; a file system without such lists lets the group in. No link is followed. Must not know what the directories
are for.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from windfall.agent.errors import CannotStart

_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_MODE = 0o1770
_OWN_MODE = 0o750
_PRIVATE_MODE = 0o700
#: Where Linux keeps the access control list of a file, and the kinds of its entries.
_LIST = "system.posix_acl_access"
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20


def seal(root: str, kept: Iterable[str], own: str, user: tuple[int, int]) -> None:
    """Make `root` and the directories in it root's own; the job may read `own` but not write there. CannotStart."""
    try:
        with _opened(root, ".") as fd:
            _take(fd, user, _KEPT_MODE)
        for relative in _with_parents(kept):
            with _opened(root, relative) as fd:
                _take(fd, user, _OWN_MODE if relative == own else _KEPT_MODE)
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


def _take(fd: int, user: tuple[int, int], mode: int) -> None:
    os.fchown(fd, os.geteuid(), user[1])
    os.fchmod(fd, mode)
    try:
        os.setxattr(fd, _LIST, _for_one_user(user[0], mode))
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise


def _for_one_user(uid: int, mode: int) -> bytes:
    """A list by which a directory's owner and one user may do what the mode says for owner and group; nobody else."""
    owner, others = mode >> 6 & 7, mode >> 3 & 7
    nobody = 0xFFFFFFFF
    entries = [
        (_OWNER, owner, nobody),
        (_USER, others, uid),
        (_GROUP, 0, nobody),
        (_MASK, others, nobody),
        (_OTHER, 0, nobody),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _give(fd: int, owner: tuple[int, int]) -> None:
    with suppress(OSError):  # There is none, or there are none on this file system.
        os.removexattr(fd, _LIST)
    os.fchown(fd, *owner)
    os.fchmod(fd, _PRIVATE_MODE)
