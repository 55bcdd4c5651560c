"""From changed files to pieces in the store.

Decides how files are read and cut, in parallel, and that a version which changed while it was read is thrown away.
Must not know when to commit.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from windfall.agent.sync.archive import Archive
from windfall.agent.sync.errors import AbandonedError
from windfall.agent.sync.manifests import FileEntry
from windfall.agent.sync.scanning import Found, has_stamp, opened_below, stamp_of

#: Says whether to stop, asked before every piece.
ShouldStop = Callable[[], bool]
_POLL_S = 0.2
#: So many files are kept open at once.
_HELD_MAX = 64


@dataclass(slots=True)
class Counted:
    """Bytes that were really put, added up across threads."""

    bytes: int = 0


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
        self._held: dict[str, int] = {}

    def upload(
        self, files: Mapping[str, Found], counted: Counted, should_stop: ShouldStop
    ) -> dict[str, FileEntry]:
        """Entries of those files that held still; AbandonedError when told to stop, or what the store raised."""
        if not files:
            return {}
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="windfall-sync")
        with ExitStack() as held:
            self._hold(files, held)
            return self._upload(pool, files, counted, should_stop)

    def _hold(self, files: Mapping[str, Found], held: ExitStack) -> None:
        """Keep files open that may be replaced at any moment: what is open stays what it was."""
        self._held = {}
        for path in list(files)[:_HELD_MAX]:
            with suppress(OSError):
                self._held[path] = held.enter_context(opened_below(self._directory, path))

    def _upload(
        self, pool: ThreadPoolExecutor, files: Mapping[str, Found], counted: Counted, should_stop: ShouldStop
    ) -> dict[str, FileEntry]:
        try:
            pieces = {
                path: [
                    pool.submit(self._piece, path, found, offset, counted, should_stop)
                    for offset in range(0, found.stamp.bytes, self._chunk_bytes)
                ]
                for path, found in files.items()
            }
            _gather([piece for row in pieces.values() for piece in row], should_stop)
        finally:
            # Not waited for: a store that hangs must not hold up whoever has a deadline. A late piece harms nobody.
            pool.shutdown(wait=False, cancel_futures=True)
        entries = {}
        for path, found in files.items():
            digests = [piece.result() for piece in pieces[path]]
            # Of what was held open, every piece was read while the file was as the look had found it, and that is what
            # it was then: a program that writes over it from now on costs the picture nothing.
            if None not in digests and (path in self._held or has_stamp(self._directory, path, found.stamp)):
                whole = tuple(digest for digest in digests if digest is not None)
                entries[path] = FileEntry(
                    path, found.stamp.bytes, found.stamp.mtime_ns, found.mode & 0o777, whole
                )
        return entries

    def _piece(
        self, path: str, found: Found, offset: int, counted: Counted, should_stop: ShouldStop
    ) -> str | None:
        """The digest of one piece, which is in the store then; None where the file has changed meanwhile."""
        if should_stop():
            raise AbandonedError("called off")
        length = min(self._chunk_bytes, found.stamp.bytes - offset)
        try:
            content = memoryview(self._buffer())[:length]
            descriptor = self._held.get(path)
            if descriptor is None:
                done = read_into(content, self._directory, path, offset)
            else:
                done = _fill(content, descriptor, offset)
                # A thread that was left behind may hold a number that is another file's by now.
                if not stamp_of(os.fstat(descriptor)).same_content(found.stamp):
                    return None
            if done != length:
                return None
        except OSError:
            return None
        digest = hashlib.sha256(content).hexdigest()
        if not self._archive.has(digest, length):
            self._archive.put_piece(digest, content)
            with self._lock:
                counted.bytes += length
        return digest

    def _buffer(self) -> bytearray:
        known: bytearray | None = getattr(self._buffers, "bytes", None)
        if known is None:
            known = self._buffers.bytes = bytearray(self._chunk_bytes)
        return known


def read_into(target: memoryview, directory: str, path: str, offset: int) -> int:
    """Fill a buffer from a file below a directory; the answer is how far, where the file has become shorter."""
    with opened_below(directory, path) as descriptor:
        return _fill(target, descriptor, offset)


def _fill(target: memoryview, descriptor: int, offset: int) -> int:
    done = 0
    while done < len(target) and (more := os.preadv(descriptor, [target[done:]], offset + done)):
        done += more
    return done


def read_piece(directory: str, path: str, offset: int, length: int) -> bytes:
    """Some bytes of a file below a directory; fewer where it has become shorter."""
    content = bytearray(length)
    return bytes(content[: read_into(memoryview(content), directory, path, offset)])


def _gather(pieces: list[Future[str | None]], should_stop: ShouldStop) -> None:
    pending: set[Future[str | None]] = set(pieces)
    while pending:
        done, pending = wait(pending, _POLL_S, FIRST_EXCEPTION)
        for piece in done:
            piece.result()
        if pending and should_stop():
            raise AbandonedError("called off, or out of time")
