"""From the store back to a directory, before the process starts.

Decides how a picture is brought: into a temporary sibling, every piece verified, then in place by a rename, so that
what was interrupted leaves nothing half. Everything is made by descriptors, name by name, so that no depth is too deep;
holes stay holes. Not synced to disk: after a power cut it is brought again. Must not know which picture to take.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from windfall.agent.sync.errors import NoRoomError
from windfall.agent.sync.manifests import RESERVED, FileEntry, LinkEntry, Manifest, is_safe
from windfall.agent.sync.reports import Stage
from windfall.agent.sync.uploading import zeros
from windfall.agent.walking import LOOK, directories_upwards, opened_directory, removed
from windfall.objects.errors import Full
from windfall.objects.port import Entry, ObjectStore

T = TypeVar("T")

_PRIVATE = 0o700
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
#: What is written at once; a block of zeros is left a hole.
_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class Place:
    """The directory to fill, and whose it will be."""

    directory: str
    #: The job's user where the agent may choose; None keeps the agent's own.
    uid: int | None = None
    gid: int | None = None
    #: Names what is brought, so that a call which is interrupted leaves its part and the next goes on from there.
    resumed_as: str | None = None

    @property
    def incoming(self) -> str:
        """Where it is filled, beside its final place."""
        return self._beside("restoring" if self.resumed_as is None else f"restoring-{self.resumed_as}")

    @property
    def replaced(self) -> str:
        """Where what stood in its place goes for a moment."""
        return self._beside("replaced")

    def _beside(self, what: str) -> str:
        parent, name = os.path.split(self.directory.rstrip("/"))
        return f"{parent}/.{name}.{what}.tmp"

    def own(self, descriptor: int, name: str | None = None) -> None:
        """Give an open file or directory to the job, or a link of that name in it."""
        if self.uid is None and self.gid is None:
            return
        owner = (-1 if self.uid is None else self.uid, -1 if self.gid is None else self.gid)
        if name is None:
            os.fchown(descriptor, *owner)
        else:
            os.chown(name, *owner, dir_fd=descriptor, follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class Source:
    """A committed picture, what is wanted of it, and where its pieces come from."""

    manifest: Manifest
    files: Sequence[FileEntry]
    get_piece: Callable[[str], bytes]
    links: Sequence[LinkEntry] = ()


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
    size = sum(bytes_on_disk(source) for source in sources) + sum(entry.bytes for entry in plain)
    with _filling(place, size, stage) as root:
        for path in sorted({entry.path for source in sources for entry in source.manifest.directories}):
            os.close(opened_directory(root, path, make=True))
        pieces = []
        begun: set[str] = set()
        for source in sources:
            whole_hole = zeros(source.manifest.chunk_bytes) if source.files else ""
            for file in source.files:
                if not _made(place, root, file):
                    begun.add(file.path)
                kept = [index for index, digest in enumerate(file.pieces) if digest != whole_hole]
                pieces += [(source, file, index) for index in kept]
        for entry in plain:
            os.close(opened_directory(root, os.path.dirname(entry.key), make=True))

        def bring(task: tuple[Source, FileEntry, int]) -> None:
            if task[1].path not in begun or not _is_there(root, *task):
                _bring_piece(root, *task)
            stage("piece-restored")

        def bring_plain(entry: Entry) -> None:
            objects.get_file(entry.key, f"{place.incoming}/{entry.key}")
            _finish(place, root, entry.key, 0o644, entry.changed_at * 1_000_000)
            stage("piece-restored")

        _in_parallel(bring, pieces, threads)
        _in_parallel(bring_plain, plain, threads)
        for source in sources:
            for file in source.files:
                _finish(place, root, file.path, file.mode, file.mtime_ns)
            for link in source.links:
                _make_link(place, root, link)
        _finish_directories(place, root, sources)


def bytes_on_disk(source: Source) -> int:
    """What the files take, without pieces that are all hole."""
    if not source.files:
        return 0
    chunk_bytes = source.manifest.chunk_bytes
    whole_hole = zeros(chunk_bytes)
    return sum(file.bytes - chunk_bytes * file.pieces.count(whole_hole) for file in source.files)


def as_files(plain: Sequence[Entry]) -> list[FileEntry]:
    """A user's own objects as the files that they become."""
    return [FileEntry(entry.key, entry.bytes, entry.changed_at * 1_000_000, 0o644, ()) for entry in plain]


@contextlib.contextmanager
def _opened(root: int, path: str, flags: int) -> Iterator[int]:
    above, _, name = path.rpartition("/")
    holder = opened_directory(root, above, make=True)
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=holder)
    finally:
        os.close(holder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _made(place: Place, root: int, file: FileEntry) -> bool:
    """Make a file in its full length; False where an interrupted call has made it before."""
    try:
        with _opened(root, file.path, _NEW) as target:
            os.ftruncate(target, file.bytes)
        return True
    except FileExistsError:
        if place.resumed_as is None:
            raise
    with _opened(root, file.path, _OLD) as target:
        os.ftruncate(target, file.bytes)
    return False


def _is_there(root: int, source: Source, file: FileEntry, index: int) -> bool:
    """Whether a file that was begun before has this piece."""
    chunk_bytes = source.manifest.chunk_bytes
    with _opened(root, file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) as found:
        content = os.pread(found, chunk_bytes, index * chunk_bytes)
    return hashlib.sha256(content).hexdigest() == file.pieces[index]


def _bring_piece(root: int, source: Source, file: FileEntry, index: int) -> None:
    content = source.get_piece(file.pieces[index])
    offset = index * source.manifest.chunk_bytes
    with _opened(root, file.path, _OLD) as target:
        begin = 0
        while begin < len(content):
            end = begin
            # As much as can be written at once: up to the next block of zeros, which the file has already.
            while end < len(content) and not _is_hole(content, end):
                end += _BLOCK_BYTES
            _write(target, content, begin, min(end, len(content)), offset)
            begin = end + _BLOCK_BYTES


def _is_hole(content: bytes, at: int) -> bool:
    return content.startswith(_ZEROS, at)


def _write(target: int, content: bytes, begin: int, end: int, offset: int) -> None:
    view = memoryview(content)[begin:end]
    while view:
        written = os.pwrite(target, view, offset + begin)
        view, begin = view[written:], begin + written


def _make_link(place: Place, root: int, link: LinkEntry) -> None:
    above, _, name = link.path.rpartition("/")
    holder = opened_directory(root, above, make=True)
    try:
        # Where several nodes have written, another one's file or directory may have the name.
        with contextlib.suppress(FileExistsError):
            os.symlink(link.target, name, dir_fd=holder)
            place.own(holder, name)
            os.utime(name, ns=(link.mtime_ns, link.mtime_ns), dir_fd=holder, follow_symlinks=False)
    finally:
        os.close(holder)


def _finish_directories(place: Place, root: int, sources: Sequence[Source]) -> None:
    modes = {entry.path: entry.mode for source in sources for entry in source.manifest.directories}
    for path, descriptor in directories_upwards(root):
        # An object has no mode; this is what mkdir gives.
        place.own(descriptor)
        os.fchmod(descriptor, modes.get(path, 0o755) & 0o777)


def plain_objects(objects: ObjectStore) -> list[Entry]:
    """A user's own objects that can stand as files beside each other."""
    found = {entry.key: entry for entry in objects.list() if not entry.key.startswith(f"{RESERVED}/")}
    # Consoles make empty objects that stand for directories.
    parents = {key[:cut] for key in found for cut in range(len(key)) if key[cut] == "/"}
    return [entry for key, entry in found.items() if key not in parents and is_safe(key)]


@contextlib.contextmanager
def _filling(place: Place, size: int, stage: Stage) -> Iterator[int]:
    resumes = place.resumed_as is not None
    for leftover in (place.replaced, *([] if resumes else [place.incoming])):
        removed(leftover)
    parent = os.path.dirname(place.incoming)
    os.makedirs(parent, exist_ok=True)
    free = os.statvfs(parent)
    if size > free.f_bavail * free.f_frsize and not os.path.isdir(place.incoming):
        raise _no_room(place, size)
    with contextlib.suppress(*[FileExistsError] if resumes else []):
        os.mkdir(place.incoming, _PRIVATE)
    root = os.open(place.incoming, LOOK)
    try:
        yield root
        stage("restored-beside")
        place.own(root)
        _put_in_place(place, stage)
    except BaseException as error:
        if not resumes:
            removed(place.incoming)
        if isinstance(error, Full) or (isinstance(error, OSError) and error.errno in _NO_ROOM):
            raise _no_room(place, size) from error
        raise
    finally:
        os.close(root)


def _put_in_place(place: Place, stage: Stage) -> None:
    if os.path.lexists(place.directory):
        before = os.stat(place.directory)
        os.chmod(place.incoming, before.st_mode & 0o777)
        os.rename(place.directory, place.replaced)
        stage("between-renames")
    os.rename(place.incoming, place.directory)
    stage("restored")
    removed(place.replaced)


def _finish(place: Place, root: int, path: str, mode: int, mtime_ns: int) -> None:
    with _opened(root, path, _OLD) as descriptor:
        place.own(descriptor)
        os.fchmod(descriptor, mode & 0o777)
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))


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
