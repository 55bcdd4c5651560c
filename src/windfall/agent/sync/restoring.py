"""From the store back to a directory, before the process starts.

Decides how a picture is brought: into a temporary sibling, every piece verified, then in place by a rename, so that
what was interrupted leaves nothing half. Not synced to disk: after a power cut it is brought again. Must not know
which picture to take.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from windfall.agent.sync.errors import NoRoomError
from windfall.agent.sync.manifests import RESERVED, FileEntry, Manifest, is_safe
from windfall.agent.sync.reports import Stage
from windfall.objects.errors import Full
from windfall.objects.port import Entry, ObjectStore

T = TypeVar("T")

_PRIVATE = 0o700
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Place:
    """The directory to fill, and whose it will be."""

    directory: str
    #: The job's user where the agent may choose; None keeps the agent's own.
    uid: int | None = None
    gid: int | None = None

    @property
    def incoming(self) -> str:
        """Where it is filled, beside its final place."""
        return self._beside("restoring")

    @property
    def replaced(self) -> str:
        """Where what stood in its place goes for a moment."""
        return self._beside("replaced")

    def _beside(self, what: str) -> str:
        parent, name = os.path.split(self.directory.rstrip("/"))
        return f"{parent}/.{name}.{what}.tmp"

    def own(self, path: str | int) -> None:
        """Give a file or directory to the job."""
        if self.uid is not None or self.gid is not None:
            os.chown(path, -1 if self.uid is None else self.uid, -1 if self.gid is None else self.gid)


@dataclass(frozen=True, slots=True)
class Source:
    """A committed picture, what is wanted of it, and where its pieces come from."""

    manifest: Manifest
    files: Sequence[FileEntry]
    get_piece: Callable[[str], bytes]


def restore(
    sources: Sequence[Source],
    plain: Sequence[Entry],
    objects: ObjectStore,
    place: Place,
    threads: int,
    stage: Stage,
) -> None:
    """Fill the directory with files of pictures and with a user's own objects; DamagedError where a piece is bad.

    No two of them have a file of the same name.
    """
    size = sum(file.bytes for source in sources for file in source.files)
    with _filling(place, size + sum(entry.bytes for entry in plain), stage):
        for path in sorted({entry.path for source in sources for entry in source.manifest.directories}):
            os.makedirs(f"{place.incoming}/{path}", _PRIVATE, exist_ok=True)
        pieces = []
        for source in sources:
            for file in source.files:
                _make_file(place, file)
                pieces += [(source, file, index) for index in range(len(file.pieces))]
        for entry in plain:
            os.makedirs(os.path.dirname(f"{place.incoming}/{entry.key}"), _PRIVATE, exist_ok=True)

        def bring(task: tuple[Source, FileEntry, int]) -> None:
            _bring_piece(place, *task)
            stage("piece-restored")

        def bring_plain(entry: Entry) -> None:
            objects.get_file(entry.key, f"{place.incoming}/{entry.key}")
            _finish(place, entry.key, 0o644, entry.changed_at * 1_000_000)
            stage("piece-restored")

        _in_parallel(bring, pieces, threads)
        _in_parallel(bring_plain, plain, threads)
        for source in sources:
            for file in source.files:
                _finish(place, file.path, file.mode, file.mtime_ns)
        _finish_directories(place, sources)


def as_files(plain: Sequence[Entry]) -> list[FileEntry]:
    """A user's own objects as the files that they become."""
    return [FileEntry(entry.key, entry.bytes, entry.changed_at * 1_000_000, 0o644, ()) for entry in plain]


def _bring_piece(place: Place, source: Source, file: FileEntry, index: int) -> None:
    view = memoryview(source.get_piece(file.pieces[index]))
    offset = index * source.manifest.chunk_bytes
    with open(f"{place.incoming}/{file.path}", "r+b", buffering=0) as target:
        while view:
            written = os.pwrite(target.fileno(), view, offset)
            view, offset = view[written:], offset + written


def _finish_directories(place: Place, sources: Sequence[Source]) -> None:
    modes = {entry.path: entry.mode for source in sources for entry in source.manifest.directories}
    for parent, directories, _ in os.walk(place.incoming, topdown=False):
        for name in directories:
            path = os.path.join(parent, name)
            # An object has no mode; this is what mkdir gives.
            os.chmod(path, modes.get(os.path.relpath(path, place.incoming), 0o755) & 0o777)
            place.own(path)


def plain_objects(objects: ObjectStore) -> list[Entry]:
    """A user's own objects that can stand as files beside each other."""
    found = {entry.key: entry for entry in objects.list() if not entry.key.startswith(f"{RESERVED}/")}
    # Consoles make empty objects that stand for directories.
    parents = {key[:cut] for key in found for cut in range(len(key)) if key[cut] == "/"}
    return [entry for key, entry in found.items() if key not in parents and is_safe(key)]


@contextlib.contextmanager
def _filling(place: Place, size: int, stage: Stage) -> Iterator[None]:
    for leftover in (place.incoming, place.replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    parent = os.path.dirname(place.incoming)
    os.makedirs(parent, exist_ok=True)
    free = os.statvfs(parent)
    if size > free.f_bavail * free.f_frsize:
        raise _no_room(place, size)
    os.mkdir(place.incoming, _PRIVATE)
    try:
        yield
        stage("restored-beside")
        _put_in_place(place, stage)
    except Full as error:
        shutil.rmtree(place.incoming, ignore_errors=True)
        raise _no_room(place, size) from error
    except OSError as error:
        shutil.rmtree(place.incoming, ignore_errors=True)
        if error.errno in _NO_ROOM:
            raise _no_room(place, size) from error
        raise
    except BaseException:
        shutil.rmtree(place.incoming, ignore_errors=True)
        raise


def _put_in_place(place: Place, stage: Stage) -> None:
    place.own(place.incoming)
    if os.path.lexists(place.directory):
        before = os.stat(place.directory)
        os.chmod(place.incoming, before.st_mode & 0o777)
        os.rename(place.directory, place.replaced)
        stage("between-renames")
    os.rename(place.incoming, place.directory)
    stage("restored")
    shutil.rmtree(place.replaced, ignore_errors=True)


def _make_file(place: Place, file: FileEntry) -> None:
    path = f"{place.incoming}/{file.path}"
    os.makedirs(os.path.dirname(path), _PRIVATE, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, file.bytes)
    finally:
        os.close(descriptor)


def _finish(place: Place, path: str, mode: int, mtime_ns: int) -> None:
    full = f"{place.incoming}/{path}"
    place.own(full)
    os.chmod(full, mode & 0o777)
    os.utime(full, ns=(mtime_ns, mtime_ns))


def _in_parallel(work: Callable[[T], None], tasks: Sequence[T], threads: int) -> None:
    pool = ThreadPoolExecutor(threads, thread_name_prefix="windfall-restore")
    try:
        for _ in pool.map(work, tasks):
            pass
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _no_room(place: Place, size: int) -> NoRoomError:
    free = os.statvfs(os.path.dirname(place.incoming))
    return NoRoomError(
        f"the checkpoint needs {size / (1 << 20):.0f} MiB and {free.f_bavail * free.f_frsize / (1 << 20):.0f} MiB are "
        f"free where {place.directory} lies; make room on that disk, and the job goes on from it"
    )
