"""Tar files: unpacked so that nothing lands outside of its directory, packed as a stream that needs no room on disk.

Decides what an archive may hold: plain files, directories, and links that stay inside. Must not know where an archive
comes from or goes to.
"""

from __future__ import annotations

import os
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from windfall.agent.courier.errors import BadArchive
from windfall.agent.courier.tree import Tree
from windfall.agent.walking import entries_below, open_plain

_PIECE_BYTES = 1 << 20
_BLOCK_BYTES = 512
#: Weights hardly shrink at any level, and the lowest is several times as fast.
_LEVEL = 1
_GZIP = 31


def unpack(path: str, tree: Tree, relative: str, check: Callable[[], None]) -> None:
    """Unpack a tar file, compressed or not, into a directory of the tree; BadArchive leaves it half done."""
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                check()
                _unpack_member(archive, member, tree, relative)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BadArchive(f"the archive cannot be read: {error}") from None


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, tree: Tree, relative: str) -> None:
    name = _inside(member.name, member.name)
    if name == ".":
        return
    target = f"{relative}/{name}"
    try:
        if member.isdir():
            tree.give_directory(target, member.mode & 0o777)
        elif member.isreg():
            content = archive.extractfile(member)
            assert content is not None
            _copy(content, tree.create(target, member.mode & 0o777))
        elif member.issym():
            _inside(posixpath.join(posixpath.dirname(name), member.linkname), member.name)
            tree.link(target, member.linkname)
        elif member.islnk():
            content = archive.extractfile(_inside(member.linkname, member.name))
            if content is None:
                raise BadArchive(f"{member.name} in the archive is a link to something that is not a file")
            _copy(content, tree.create(target, member.mode & 0o777))
        else:
            raise BadArchive(f"{member.name} in the archive is neither file nor directory")
    except KeyError:
        raise BadArchive(f"{member.name} in the archive is a link to nothing") from None
    except (NotADirectoryError, OSError) as error:
        raise BadArchive(f"{member.name} in the archive cannot be unpacked: {error.strerror}") from None


def _inside(path: str, shown: str) -> str:
    name = posixpath.normpath(path)
    if posixpath.isabs(path) or name == ".." or name.startswith("../") or "\0" in path:
        raise BadArchive(f"{shown} in the archive leads out of its directory")
    return name


def _copy(source: IO[bytes], fd: int) -> None:
    with os.fdopen(fd, "wb") as target:
        while piece := source.read(_PIECE_BYTES):
            target.write(piece)


def files_below(directory: int) -> Iterator[tuple[str, os.stat_result, int]]:
    """Every entry below an open directory, in order: its name, its status, the open directory that holds it."""
    return entries_below(directory)


def content_of(name: str, directory: int) -> Iterator[bytes]:
    """Yield a plain file in pieces; anything else in its place is an OSError."""
    fd = open_plain(os.path.basename(name), directory)
    try:
        while piece := os.read(fd, _PIECE_BYTES):
            yield piece
    finally:
        os.close(fd)


def packed(directory: int) -> Iterator[bytes]:
    """Yield the pieces of a .tar.gz of all that is below an open directory."""
    squeezer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for piece in _tar(directory):
        if small := squeezer.compress(piece):
            yield small
    yield squeezer.flush()


def _tar(directory: int) -> Iterator[bytes]:
    for name, status, fd in files_below(directory):
        entry = tarfile.TarInfo(name)
        entry.mtime, entry.mode = int(status.st_mtime), stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            entry.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(status.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(os.path.basename(name), dir_fd=fd)
        elif stat.S_ISREG(status.st_mode):
            entry.size = status.st_size
        else:
            continue  # A pipe or a socket has no content to keep.
        yield entry.tobuf(tarfile.PAX_FORMAT)
        if entry.size:
            yield from _exactly(content_of(name, fd), entry.size)
            yield bytes(-entry.size % _BLOCK_BYTES)
    yield bytes(2 * _BLOCK_BYTES)


def _exactly(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The header has promised a length: a file that was changed meanwhile is cut or filled up to it."""
    left = size
    for piece in pieces:
        piece = piece[:left]
        left -= len(piece)
        if piece:
            yield piece
        if not left:
            return
    while left:
        filler = bytes(min(left, _PIECE_BYTES))
        left -= len(filler)
        yield filler
