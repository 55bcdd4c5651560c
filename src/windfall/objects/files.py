"""Objects as plain files below a directory: what `file://` means.

Decides how a put is atomic and durable on a file system: written beside its place under a name that listings leave
out, synced, then renamed (or linked, which refuses to replace) and the directory synced. obstore's own local store does
not sync, and a checkpoint that is gone after a power cut was never durable. Must not know what is stored.
"""

# Much is done on descriptors and names beside them here; pathlib would only be taken apart again.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH112, PTH116, PTH120

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from windfall.objects.errors import AlreadyThere, BadUri, Full, NotFound, ObjectsError, Refused, Unreachable
from windfall.objects.port import Content, Entry, LocalPath, checked_key

#: Unfinished puts; no object may be called so.
INCOMING = ".windfall-incoming."
#: An unfinished put that nobody has touched for so long belongs to a process that was killed.
ABANDONED_S = 3600.0
_COPY_BYTES = 8 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileObjects:
    """Objects below a directory, which is made when the first one is put.

    What lies at or above `anchor` is never made: where it is missing a disk is not mounted, and an empty directory
    in its place would look like a store in which nothing was ever saved.
    """

    def __init__(self, root: Path, uri: str, anchor: Path | None = None) -> None:
        self.uri = uri
        self._root = str(root)
        self._anchor = None if anchor is None else str(anchor)

    def get(self, key: str) -> bytes:
        """The whole object."""
        with self._told(key), open(self._path(key), "rb") as file:
            return file.read()

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Some bytes of an object."""
        with self._told(key), open(self._path(key), "rb") as file:
            return os.pread(file.fileno(), max(0, end - start), start)

    def put(self, key: str, content: Content, *, create_only: bool = False) -> None:
        """Write one object, durably."""
        self._write(key, lambda fd: _write_all(fd, content), create_only=create_only)

    def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        """Write one object from pieces as they come."""

        def fill(fd: int) -> None:
            for piece in pieces:
                _write_all(fd, piece)

        self._write(key, fill)

    def put_file(self, key: str, path: LocalPath) -> int:
        """Write a local file as an object."""
        with open(path, "rb") as source:
            return self._write(key, lambda fd: _copy_all(source.fileno(), fd))

    def get_file(self, key: str, path: LocalPath) -> int:
        """Bring an object to a local path."""
        target = os.fspath(path)
        partial = f"{target}.{secrets.token_hex(4)}.part"
        try:
            with open(partial, "wb") as file:
                with self._told(key), open(self._path(key), "rb") as source:
                    _copy_all(source.fileno(), file.fileno())
                size = os.fstat(file.fileno()).st_size
            os.replace(partial, target)
        except BaseException:
            _forget(partial)
            raise
        return size

    def get_into(self, key: str, descriptor: int) -> int:
        """Bring an object into an open file."""
        with self._told(key), open(self._path(key), "rb") as source:
            _copy_all(source.fileno(), descriptor)
            return os.fstat(source.fileno()).st_size

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix of whole segments."""
        self._see_anchor()
        start = self._path(prefix.rstrip("/")) if prefix.strip("/") else self._root
        skip = len(self._root.rstrip("/")) + 1
        pending = [start]
        while pending:
            directory = pending.pop()
            try:
                entries = list(os.scandir(directory))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise self._error(error, directory) from error
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # deleted since the directory was read
                if entry.name.startswith(INCOMING):
                    if time.time() - found.st_mtime > ABANDONED_S:
                        _forget(entry.path)
                elif stat.S_ISREG(found.st_mode):
                    yield Entry(entry.path[skip:], found.st_size, found.st_mtime_ns // 1_000_000)

    def head(self, key: str) -> Entry | None:
        """What is known of one object."""
        try:
            with self._told(key):
                found = os.stat(self._path(key))
        except NotFound:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return Entry(key, found.st_size, found.st_mtime_ns // 1_000_000)

    def copy(self, source: str, target: str) -> None:
        """A second object with the same content; shares its blocks where the file system can."""
        with self._told(source), open(self._path(source), "rb") as file:
            self._write(target, lambda fd: _copy_all(file.fileno(), fd))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, and the directories that become empty by it."""
        parents = set()
        for key in keys:
            path = self._path(key)
            with contextlib.suppress(NotFound), self._told(key):
                os.unlink(path)
            parents.add(os.path.dirname(path))
        for parent in parents:
            while parent.startswith(self._root + "/"):
                try:
                    os.rmdir(parent)
                except OSError:
                    break  # not empty, or somebody else was faster
                parent = os.path.dirname(parent)

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}"

    def _write(self, key: str, fill: Callable[[int], None], *, create_only: bool = False) -> int:
        path = self._path(key)
        directory = os.path.dirname(path)
        with self._told(key):
            incoming, fd = self._opened(directory)
            try:
                try:
                    fill(fd)
                    os.fsync(fd)
                    size = os.fstat(fd).st_size
                finally:
                    os.close(fd)
                if create_only:
                    os.link(incoming, path)
                    _forget(incoming)
                else:
                    os.replace(incoming, path)
                _sync_directory(directory)
            except IsADirectoryError as error:
                _forget(incoming)
                raise _in_the_way(self.uri, key) from error
            except BaseException:
                _forget(incoming)
                raise
        return size

    def _opened(self, directory: str) -> tuple[str, int]:
        """A fresh file beside the object's place. A delete may take the empty directory away in between: try again."""
        incoming = f"{directory}/{INCOMING}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for _ in range(8):
            try:
                return incoming, os.open(incoming, flags, 0o600)
            except FileNotFoundError:
                self._see_anchor()
                self._make(directory)
            except NotADirectoryError as error:
                self._see_anchor()
                raise _in_the_way(self.uri, directory) from error
        return incoming, os.open(incoming, flags, 0o600)

    def _make(self, directory: str) -> None:
        """Make a directory and those above it, each known to the disk before something is put into it."""
        missing = []
        while not os.path.isdir(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            _sync_directory(os.path.dirname(path))

    def _see_anchor(self) -> None:
        if self._anchor is not None and not os.path.isdir(self._anchor):
            raise self._not_mounted()

    def _not_mounted(self) -> Unreachable:
        return Unreachable(
            f"{self._anchor} is not there, and with it all that was saved; mount it again, or make it if it is new"
        )

    @contextlib.contextmanager
    def _told(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(error, key) from error

    def _error(self, error: OSError, key: str) -> ObjectsError:
        what = f"{self.uri}: {key}: {error.strerror or error}"
        if self._anchor is not None and not os.path.isdir(self._anchor):
            return self._not_mounted()
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            return NotFound(f"{what}; nothing of that name has been put there")
        if isinstance(error, FileExistsError):
            return AlreadyThere(f"{what}; it was put there before")
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            return Refused(f"{what}; let this user write there, or choose another directory")
        if error.errno in _NO_ROOM:
            return Full(f"{what}; make room there, or choose another directory")
        return Unreachable(f"{what}; see that the disk or the network file system is well")


def _in_the_way(uri: str, key: str) -> BadUri:
    return BadUri(f"{uri}: {key}: one object's name would be a directory of another's; choose another name")


def _write_all(fd: int, content: Content) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _copy_all(source: int, target: int) -> None:
    """Copy inside of the kernel where both ends allow it: as blocks on one file system, as pages between two."""
    ways: tuple[Callable[[], int], ...] = (
        lambda: os.copy_file_range(source, target, 1 << 30),
        lambda: os.sendfile(target, source, None, 1 << 30),
    )
    for copy in ways:
        try:
            while copy():
                pass
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
        else:
            return
    with open(source, "rb", closefd=False) as reader, open(target, "wb", closefd=False) as writer:
        shutil.copyfileobj(reader, writer, _COPY_BYTES)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
