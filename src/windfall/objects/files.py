"""Objects as plain files below a directory: what `file://` means.

Decides how a put is atomic and durable on a file system: written beside its place under a name that listings leave
out, synced, then renamed (or linked, which refuses to replace) and the directory synced. obstore's own local store does
not sync, and a checkpoint that is gone after a power cut was never durable. Must not know what is stored.
"""

# Everything is done on descriptors and names beside them; pathlib has no such functions.
# ruff: noqa: PTH105, PTH112

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from windfall.objects.beneath import Beneath, plain_file, sync_directory
from windfall.objects.errors import AlreadyThere, BadUri, Full, NotFound, ObjectsError, Refused, Unreachable
from windfall.objects.port import Content, Entry, LocalPath, checked_key

#: Unfinished puts; no object may be called so.
INCOMING = ".windfall-incoming."
#: An unfinished put that nobody has touched for this long belongs to a process that was killed.
ABANDONED_S = 3600.0
_COPY_BYTES = 8 << 20
_INCOMING_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileObjects:
    """Objects below a directory, which is made when the first one is put.

    What lies at or above `anchor` is never made: where it is missing a disk is not mounted, and an empty directory
    in its place would look like a store in which nothing was ever saved. No link below `base` is followed, by default
    below the directory itself: jobs may be able to write there.
    """

    def __init__(self, root: Path, uri: str, anchor: Path | None = None, base: Path | None = None) -> None:
        self.uri = uri
        self._anchor = None if anchor is None else str(anchor)
        self._beneath = Beneath(str(base or root))
        #: The way from the base to the directory.
        self._root = root.relative_to(base).parts if base is not None else ()

    def get(self, key: str) -> bytes:
        """The whole object."""
        with self._reading(key) as fd, open(fd, "rb", closefd=False) as file:
            return file.read()

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Some bytes of an object."""
        with self._reading(key) as fd:
            return os.pread(fd, max(0, end - start), start)

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
                with self._reading(key) as source:
                    _copy_all(source, file.fileno())
                size = os.fstat(file.fileno()).st_size
            os.replace(partial, target)
        except BaseException:
            _forget(partial)
            raise
        return size

    def get_into(self, key: str, descriptor: int) -> int:
        """Bring an object into an open file."""
        with self._reading(key) as source:
            _copy_all(source, descriptor)
            return os.fstat(source).st_size

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix of whole segments."""
        self._see_anchor()
        pending = [tuple(checked_key(prefix.rstrip("/")).split("/")) if prefix.strip("/") else ()]
        while pending:
            segments = pending.pop()
            try:
                with self._beneath.listing((*self._root, *segments)) as fd:
                    directories, entries = _looked_into(fd)
            except NotADirectoryError:
                self._check_way((*self._root, *segments), prefix)
                continue
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._error(error, "/".join(segments)) from error
            pending += [(*segments, name) for name in directories]
            for name, status in entries:
                key = "/".join((*segments, name))
                yield Entry(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def _check_way(self, segments: tuple[str, ...], prefix: str) -> None:
        """See that only the last name is not a directory: an object. BadUri where one on the way to it is."""
        above = self._beneath if segments else Beneath(str(Path(self._beneath.base).parent))
        try:
            with above.listing(segments[:-1]):
                return
        except FileNotFoundError:
            return
        except NotADirectoryError as error:
            raise _in_the_way(self.uri, prefix or ".") from error

    def head(self, key: str) -> Entry | None:
        """What is known of one object."""
        try:
            with self._translated(key), self._holder(key) as (at, name):
                status = os.stat(name, dir_fd=at, follow_symlinks=False)
        except NotFound:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return Entry(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def copy(self, source: str, target: str) -> None:
        """A second object with the same content; shares its blocks where the file system can."""
        with self._reading(source) as fd:
            self._write(target, lambda copied: _copy_all(fd, copied))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, and the directories that become empty by it."""
        parents = set()
        for key in keys:
            with contextlib.suppress(NotFound), self._translated(key), self._holder(key) as (at, name):
                os.unlink(name, dir_fd=at)
            parents.add(tuple(key.split("/")[:-1]))
        for parent in parents:
            # An error: not empty, or somebody else was faster.
            with contextlib.suppress(OSError):
                while parent:
                    *above, name = parent
                    with self._beneath.directory((*self._root, *above)) as at:
                        os.rmdir(name, dir_fd=at)
                    parent = tuple(above)

    @contextlib.contextmanager
    def _holder(self, key: str) -> Iterator[tuple[int, str]]:
        """Open the directory that an object is in; yield the object's name there too."""
        *above, name = checked_key(key).split("/")
        with self._beneath.directory((*self._root, *above)) as at:
            yield at, name

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[int]:
        with self._translated(key), self._holder(key) as (at, name), plain_file(name, at) as fd:
            yield fd

    def _write(self, key: str, fill: Callable[[int], None], *, create_only: bool = False) -> int:
        *above, name = checked_key(key).split("/")
        with self._translated(key), self._opened(above) as (at, incoming, fd):
            try:
                try:
                    fill(fd)
                    os.fsync(fd)
                    size = os.fstat(fd).st_size
                finally:
                    os.close(fd)
                if create_only:
                    os.link(incoming, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
                    _forget(incoming, at)
                else:
                    os.replace(incoming, name, src_dir_fd=at, dst_dir_fd=at)
                sync_directory(at)
            except IsADirectoryError as error:
                _forget(incoming, at)
                raise _in_the_way(self.uri, key) from error
            except BaseException:
                _forget(incoming, at)
                raise
        return size

    @contextlib.contextmanager
    def _opened(self, above: Sequence[str]) -> Iterator[tuple[int, str, int]]:
        """A fresh file beside the object's place. A delete may take the empty directory away in between: try again."""
        incoming = f"{INCOMING}{secrets.token_hex(8)}"
        for attempt in range(8):
            with contextlib.ExitStack() as stack:
                try:
                    if attempt:
                        self._see_anchor()
                    directory = self._beneath.directory((*self._root, *above), make=attempt > 0)
                    at = stack.enter_context(directory)
                    fd = os.open(incoming, _INCOMING_FLAGS, 0o600, dir_fd=at)
                except FileNotFoundError:
                    continue
                except NotADirectoryError as error:
                    self._see_anchor()
                    raise _in_the_way(self.uri, "/".join(above)) from error
                yield at, incoming, fd
                return
        raise Unreachable(
            f"{self.uri}: {'/'.join(above)} is taken away as often as it is made; try again later"
        )

    def _see_anchor(self) -> None:
        if self._anchor is not None and not os.path.isdir(self._anchor):
            raise self._not_mounted()

    def _not_mounted(self) -> Unreachable:
        return Unreachable(
            f"{self._anchor} is not there, and with it all that was saved; mount it again, or make it if it is new"
        )

    @contextlib.contextmanager
    def _translated(self, key: str) -> Iterator[None]:
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
        if error.errno == errno.ELOOP:
            return Refused(f"{what}; links are not followed here: name the place that it leads to")
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


def _looked_into(directory: int) -> tuple[list[str], list[tuple[str, os.stat_result]]]:
    """The directories and the plain files of an open directory; what a killed process left of a put is removed."""
    directories, files = [], []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted since the directory was read
            if entry.name.startswith(INCOMING):
                if time.time() - status.st_mtime > ABANDONED_S:
                    _forget(entry.name, directory)
            elif stat.S_ISREG(status.st_mode):
                files.append((entry.name, status))
    return directories, files


def _forget(path: str, at: int | None = None) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path, dir_fd=at)
