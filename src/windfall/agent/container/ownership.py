"""Gives a container's user what is put into the container for it: staged files, secrets.

Decides who that user is on the host, from the image's own /etc/passwd where it has a name. Imported by the keeper: the
standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import stat

from windfall.agent.container.engine import Engine

_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ACCESS_LIST = "system.posix_acl_access"

_BLOCK_BYTES = 512
_SIZE_AT = slice(124, 136)


def user_of(engine: Engine, container: str, user: str) -> tuple[int, int]:
    """Return uid and gid of a user as `docker run --user` takes it; an unknown user is taken for root."""
    name, _, group = user.partition(":")
    if not name or (name in ("0", "root") and not group):
        return 0, 0
    line = None
    if not name.isdigit() or not group:
        line = _entry(engine, container, "/etc/passwd", name)
    uid = int(name) if name.isdigit() else int(line[2]) if line else 0
    gid = int(line[3]) if line else 0
    if group.isdigit():
        gid = int(group)
    elif group:
        entry = _entry(engine, container, "/etc/group", group)
        gid = int(entry[2]) if entry else 0
    return uid, gid


def hand_over(root: str, own: str, kept: list[str], owner: tuple[int, int]) -> None:
    """Make a directory and all in it the owner's, except what is in `own`, of which only `kept` is.

    Other jobs of the job's user can still change what is in there: everything is reached by open directories, and no
    link is followed. Pipes stay with the process that feeds them; everybody who can reach them may use them.
    """
    _give(root, own, owner)
    if own:
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(root, own), _LOOK)
            try:
                # The list of access rights that sealing has made lets no group in.
                with contextlib.suppress(OSError):
                    os.removexattr(fd, _ACCESS_LIST)
                os.fchown(fd, -1, owner[1])
            finally:
                os.close(fd)
    for name in kept:
        _give(os.path.join(root, name), "", owner)


def _give(top: str, skipped: str, owner: tuple[int, int]) -> None:
    from windfall.agent.walking import (
        entries_below,
    )  # few containers need it, and a keeper is small without it

    try:
        fd = os.open(top, _LOOK)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fchown(fd, *owner)
        for path, status, above in entries_below(fd, enter=lambda path: path != skipped):
            if path != skipped and not stat.S_ISFIFO(status.st_mode):
                os.chown(os.path.basename(path), *owner, dir_fd=above, follow_symlinks=False)
    finally:
        os.close(fd)


def _entry(engine: Engine, container: str, path: str, name: str) -> list[str] | None:
    archive = engine.copy_out(container, path) or b""
    for line in first_file(archive).decode(errors="replace").splitlines():
        fields = line.split(":")
        if len(fields) > 3 and fields[2].isdigit() and name in (fields[0], fields[2]):
            return fields
    return None


def first_file(archive: bytes) -> bytes:
    """Return the content of the first file of a tar archive."""
    digits = archive[_SIZE_AT].rstrip(b"\0 ")
    size = int(digits, 8) if digits and digits.isdigit() else 0
    return archive[_BLOCK_BYTES : _BLOCK_BYTES + size]
