"""Gives a container's user what is put into the container for it: staged files, secrets.

Decides who that user is on the host, from the image's own /etc/passwd where it has a name. Imported by the keeper: the
standard library alone.
"""

from __future__ import annotations

import os

from windfall.agent.container.engine import Engine

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
    """Make a directory and all in it the owner's, except what is in `own`, of which only `kept` is."""
    _give(root, own, owner)
    inside = os.path.join(root, own)
    if os.path.isdir(inside):
        os.chown(inside, -1, owner[1], follow_symlinks=False)
    for name in kept:
        _give(os.path.join(root, name), "", owner)


def _give(top: str, skipped: str, owner: tuple[int, int]) -> None:
    if not os.path.isdir(top):
        return
    os.chown(top, *owner, follow_symlinks=False)
    for directory, names, files in os.walk(top):
        if skipped and directory == top and skipped in names:
            names.remove(skipped)
        for name in (*names, *files):
            os.chown(os.path.join(directory, name), *owner, follow_symlinks=False)


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
