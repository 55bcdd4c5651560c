"""From changed files to pieces in the store.

Decides how files are read and cut, in parallel, how long one call works, and that a version which changed while it was
read is thrown away. What one call does not finish the next goes on with: a file that is being read stays open, so that
it is read to its end though its name is another file's by then. Holes are neither read nor hashed. Must not know when
to commit.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache

from windfall.agent.sync.archive import Archive
from windfall.agent.sync.errors import AbandonedError
from windfall.agent.sync.manifests import FileEntry
from windfall.agent.sync.scanning import Found, Stamp, open_below, opened_below, stamp_of

#: Says whether to stop, asked before every piece.
ShouldStop = Callable[[], bool]
_POLL_S = 0.2
#: How many files are kept open at once.
_HELD_MAX = 64
#: Of these, the number only for files of one piece: large ones may take minutes.
_FOR_SMALL_ONES = 8
#: How often a log that grows all the time is read again.
_APPENDED_EVERY_S = 5.0


@dataclass(slots=True)
class Counted:
    """Bytes that were really put, added up across threads."""

    bytes: int = 0


@dataclass(slots=True)
class _Version:
    """A file as a look has found it, being read."""

    found: Found
    descriptor: int
    #: Whether it may grow meanwhile: then it is read up to where it ended.
    appended: bool
    digests: dict[int, str] = field(default_factory=dict)
    #: The next piece that nobody has begun to read.
    next: int = 0
    spoiled: bool = False
    #: Where the next data begin; what is before is a hole.
    data_at: int = -1
    has_holes: bool = False

    def is_as_found(self) -> bool:
        # A thread that was left behind may hold a number that is another file's by now.
        stamp = stamp_of(os.fstat(self.descriptor))
        if not self.appended:
            return stamp.same_content(self.found.stamp)
        before = self.found.stamp
        return (stamp.device, stamp.inode) == (before.device, before.inode) and stamp.bytes >= before.bytes


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A version of a file that is in the store as a whole."""

    stamp: Stamp
    found: Found
    entry: FileEntry


class Uploader:
    """Cuts and uploads files of one directory."""

    def __init__(self, archive: Archive, directory: str, chunk_bytes: int, threads: int) -> None:
        self._archive = archive
        self._directory = directory
        self._chunk_bytes = chunk_bytes
        self._threads = threads
        self._lock = threading.Lock()
        # One buffer to a thread: fresh memory for every piece costs as much as half of the hashing.
        self._buffers = threading.local()
        self._versions: dict[str, _Version] = {}
        #: Logs as they were last read, and when.
        self._logs: dict[str, tuple[_Version, float]] = {}
        #: Files of the last call that cannot be read, and why.
        self.unreadable: dict[str, str] = {}

    def upload(
        self,
        files: Mapping[str, Found],
        counted: Counted,
        should_stop: ShouldStop,
        *,
        appended: Collection[str] = (),
        within_s: float | None = None,
    ) -> dict[str, Uploaded]:
        """Those files that are whole in the store now; AbandonedError when told to stop, or what the store raised.

        The version may be an older one than the one given, where an earlier call has begun with that. Small files come
        first. After `within_s` nothing new is begun, and the next call goes on.
        """
        self._forget(files)
        self.unreadable = {}
        if not files:
            return {}
        until = None if within_s is None else time.monotonic() + within_s
        waiting = sorted(files, key=lambda path: (files[path].stamp.bytes, path), reverse=True)
        finished: dict[str, Uploaded] = {}
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="windfall-sync")
        try:
            self._hold(waiting, files, appended)
            pending: set[Future[None]] = set()
            while True:
                finished.update(self._finished())
                self._hold(waiting, files, appended)
                if until is None or time.monotonic() < until:
                    for version, index in self._next_pieces(2 * self._threads - len(pending)):
                        pending.add(pool.submit(self._piece, version, index, counted, should_stop))
                if not pending:
                    break
                done, pending = wait(pending, _POLL_S, FIRST_COMPLETED)
                for work in done:
                    work.result()
                if pending and should_stop():
                    raise AbandonedError("called off, or out of time")
        finally:
            # Not waited for: a store that hangs must not delay a caller with a deadline. A late piece does no harm.
            pool.shutdown(wait=False, cancel_futures=True)
            for version in self._versions.values():
                version.next = 0
        return finished

    def hold(self, files: Mapping[str, Found]) -> None:
        """Open files that may be gone in a moment, for a call of `upload` with some of them."""
        self._hold(list(files), files, ())

    def digests(self) -> set[str]:
        """Pieces of files that are not whole in the store yet."""
        return {digest for version in self._versions.values() for digest in version.digests.values()}

    def close(self) -> None:
        """Let go of every file."""
        self._forget(())

    def _forget(self, wanted: Collection[str]) -> None:
        for path in [path for path in self._versions if path not in wanted]:
            self._drop(path)
        self._logs = {path: log for path, log in self._logs.items() if path in wanted}

    def _drop(self, path: str) -> None:
        version = self._versions.pop(path, None)
        if version is not None:
            os.close(version.descriptor)

    def _hold(self, waiting: list[str], files: Mapping[str, Found], appended: Collection[str]) -> None:
        """Keep files open from now on, which may be replaced at any moment: what is open stays what it was."""
        while waiting and len(self._versions) < _HELD_MAX:
            path = waiting[-1]
            is_large = path not in self._versions and files[path].stamp.bytes > self._chunk_bytes
            if is_large and len(self._versions) >= _HELD_MAX - _FOR_SMALL_ONES:
                return
            waiting.pop()
            if path not in self._versions:
                try:
                    self._open(path, files[path], is_log=path in appended)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # gone since it was looked at
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        self.unreadable[path] = os.strerror(error.errno or errno.EIO)

    def _open(self, path: str, found: Found, *, is_log: bool) -> None:
        log = self._logs.get(path)
        if is_log and log is not None and time.monotonic() - log[1] < _APPENDED_EVERY_S:
            return
        version = _Version(found, open_below(self._directory, path), is_log)
        if not version.is_as_found():
            os.close(version.descriptor)
            return
        if (
            log is not None
            and log[0].found.is_same_file(found)
            and log[0].found.stamp.bytes <= found.stamp.bytes
        ):
            whole = log[0].found.stamp.bytes // self._chunk_bytes
            version.digests = {index: digest for index, digest in log[0].digests.items() if index < whole}
        if is_log:
            self._logs[path] = (version, time.monotonic())
        self._versions[path] = version

    def _pieces(self, version: _Version) -> int:
        return -(-version.found.stamp.bytes // self._chunk_bytes)

    def _next_pieces(self, room: int) -> Iterator[tuple[_Version, int]]:
        """Pieces to begin with: one of the file that has waited longest, then those of small files first."""
        for version in list(self._versions.values())[:1]:
            if room > 0 and (index := self._next_piece(version)) is not None:
                yield version, index
                room -= 1
        for version in sorted(self._versions.values(), key=lambda version: version.found.stamp.bytes):
            while room > 0 and (index := self._next_piece(version)) is not None:
                yield version, index
                room -= 1

    def _next_piece(self, version: _Version) -> int | None:
        while version.next in version.digests or self._skips_hole(version):
            version.next += 1
        if version.spoiled or version.next >= self._pieces(version):
            return None
        version.next += 1
        return version.next - 1

    def _skips_hole(self, version: _Version) -> bool:
        """Whether the next piece is a hole, of which there is nothing to read; then it is done."""
        offset = version.next * self._chunk_bytes
        length = min(self._chunk_bytes, version.found.stamp.bytes - offset)
        if length <= 0:
            return False
        if version.data_at < offset:
            version.data_at = _data_from(version.descriptor, offset)
        if version.data_at < offset + length or not self._archive.has(zeros(length), length):
            return False
        version.digests[version.next] = zeros(length)
        version.has_holes = True
        return True

    def _finished(self) -> dict[str, Uploaded]:
        """Take the versions that are whole, and drop those that were changed."""
        finished = {}
        for path, version in list(self._versions.items()):
            found, count = version.found, self._pieces(version)
            if not version.spoiled and len(version.digests) < count:
                continue
            # A hole was not looked into when it was passed.
            version.spoiled = version.spoiled or (version.has_holes and not version.is_as_found())
            if not version.spoiled:
                # Every piece was read while the file was as the look had found it, and that is what it was then: a
                # program that writes over it from now on costs the picture nothing.
                whole = tuple(version.digests[index] for index in range(count))
                stamp = found.stamp
                entry = FileEntry(path, stamp.bytes, stamp.mtime_ns, found.mode & 0o777, whole)
                finished[path] = Uploaded(stamp, found, entry)
            self._drop(path)
        return finished

    def _piece(self, version: _Version, index: int, counted: Counted, should_stop: ShouldStop) -> None:
        """See that one piece is in the store, and note its digest; a version that has changed is spoiled."""
        if should_stop():
            raise AbandonedError("called off")
        offset = index * self._chunk_bytes
        length = min(self._chunk_bytes, version.found.stamp.bytes - offset)
        try:
            content = self._read(version, offset, length)
            if content is None or not version.is_as_found():
                version.spoiled = True
                return
        except OSError:
            version.spoiled = True
            return
        digest = hashlib.sha256(content).hexdigest() if isinstance(content, memoryview) else zeros(length)
        if not self._archive.has(digest, length):
            self._archive.put_piece(digest, content)
            with self._lock:
                counted.bytes += length
        version.digests[index] = digest

    def _read(self, version: _Version, offset: int, length: int) -> memoryview | bytes | None:
        """The bytes of a piece: a view, plain zeros for a hole, None where the file has become shorter."""
        if _data_from(version.descriptor, offset) >= offset + length:
            return b"" if self._archive.has(zeros(length), length) else bytes(length)
        content = memoryview(self._buffer())[:length]
        return content if _fill(content, version.descriptor, offset) == length else None

    def _buffer(self) -> bytearray:
        known: bytearray | None = getattr(self._buffers, "bytes", None)
        if known is None:
            known = self._buffers.bytes = bytearray(self._chunk_bytes)
        return known


@lru_cache(maxsize=64)
def zeros(length: int) -> str:
    """The digest of a piece of this many zeros."""
    return hashlib.sha256(bytes(length)).hexdigest()


def _data_from(descriptor: int, offset: int) -> int:
    """Where the data at or after an offset begin; far behind every file's end where there are none."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        # No data up to the end; or a file system that does not know of holes.
        return 1 << 63 if error.errno == errno.ENXIO else offset


def _fill(target: memoryview, descriptor: int, offset: int) -> int:
    done = 0
    while done < len(target) and (more := os.preadv(descriptor, [target[done:]], offset + done)):
        done += more
    return done


def read_piece(directory: str, path: str, offset: int, length: int) -> bytes:
    """Some bytes of a file below a directory; fewer where it has become shorter."""
    content = bytearray(length)
    with opened_below(directory, path) as descriptor:
        return bytes(content[: _fill(memoryview(content), descriptor, offset)])
