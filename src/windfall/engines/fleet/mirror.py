"""The daemon's copies of what attempts leave on other machines, in its own directory of logs.

Decides what a machine may write: files of attempts that were placed on it, at their end or from their beginning, while
the disk has room. Readers find them where those of this host are. An agent's word is not trusted: the engine checks
whose an attempt is, and names of files are made here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from windfall.agent.attempt_files import AttemptDirectory, samples_path, times_path
from windfall.agent.log_limit import keep_within
from windfall.agent.mirror_messages import LogHave, LogPiece
from windfall.jobs.ids import MachineId

log = logging.getLogger(__name__)

#: What a file of samples can have at most; agents keep theirs far below.
MOST_SAMPLES_BYTES = 8 << 20
#: How far a log and its times can reach, holes counted, which for times is three months; what comes later is dropped.
MOST_BYTES = {"log": 1 << 43, "times": 256 << 20}
#: What stays free on the disk of the logs: this many bytes, or a part of a small disk.
RESERVE_BYTES = 1 << 30
_RESERVE_PART = 20
#: How long a machine waits that finds no room.
FULL_WAIT_S = 5.0
#: A log that is this far behind is reported.
LAG_BYTES = 64 << 20
_BLOCK_BYTES = 4 << 10
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def free_room(directory: str) -> int:
    """Bytes that may still be written to a directory's disk."""
    disk = os.statvfs(directory)
    size = disk.f_blocks * disk.f_frsize
    return disk.f_bavail * disk.f_frsize - min(RESERVE_BYTES, size // _RESERVE_PART)


class MirrorFiles:
    """Writes pieces of files that machines send."""

    def __init__(
        self, files: AttemptDirectory, room: Callable[[str], int] = free_room, limit_bytes: int = 0
    ) -> None:
        self._files = files
        self._room = room
        #: What the copy of a log may have at most, whatever its machine sends; 0 means no limit.
        self._limit_bytes = limit_bytes
        self._is_full = False
        #: The logs that were reported to lag, by task.
        self._lagging: set[str] = set()
        #: The tasks of which something was written that may not be on disk.
        self._unsynced: set[str] = set()

    def take(self, machine: MachineId, piece: LogPiece) -> LogHave | None:
        """Write a piece and say how much there is now; None where nobody waits for the answer.

        The caller has checked that the attempt is the machine's. Raises ValueError for what must not become a path.
        """
        path = self._path(machine, piece)
        is_log = piece.kind in ("log", "times")
        try:
            if not self._has_room(len(piece.data)):
                return LogHave(piece.task_id, piece.kind, _size(path), FULL_WAIT_S) if is_log else None
            if piece.offset + len(piece.data) > MOST_BYTES.get(piece.kind, MOST_SAMPLES_BYTES):
                return LogHave(piece.task_id, piece.kind, piece.offset + len(piece.data)) if is_log else None
            size = _append(path, piece) if is_log else _patch(path, piece)
        except OSError as error:
            log.warning("%s cannot be written (%s); it is tried again", path, error.strerror or error)
            return LogHave(piece.task_id, piece.kind, _size(path), FULL_WAIT_S) if is_log else None
        if piece.kind != "machine":
            self._unsynced.add(piece.task_id)
        if piece.kind == "log":
            self._note_lag(piece, size)
            self._shorten(path)
        return LogHave(piece.task_id, piece.kind, size) if is_log else None

    def once_stored(self, task_id: str | None, then: Callable[[], None]) -> None:
        """Do something when all that has come of an attempt is on disk; at once where nothing has.

        If the disk fails it is not done: the machine tells it again over its next connection, with what is missing.
        """
        if task_id is None or task_id not in self._unsynced:
            then()
            return

        def on_synced(syncing: asyncio.Future[None]) -> None:
            if syncing.cancelled():
                return
            if (error := syncing.exception()) is None:
                self._unsynced.discard(task_id)
                then()
            else:
                log.warning("the log of %s cannot be stored (%s); its end waits for that", task_id, error)

        syncing = asyncio.get_running_loop().run_in_executor(None, self._sync, task_id)
        syncing.add_done_callback(on_synced)

    def _sync(self, task_id: str) -> None:
        path = self._files.log_path(task_id)
        for name in (path, times_path(path), samples_path(path)):
            try:
                fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _path(self, machine: MachineId, piece: LogPiece) -> str:
        if piece.kind == "machine":
            return self._files.machine_samples_of(machine)
        path = self._files.log_path(piece.task_id)
        if piece.kind == "log":
            return path
        return times_path(path) if piece.kind == "times" else samples_path(path)

    def _has_room(self, wanted: int) -> bool:
        is_full = self._room(self._files.directory) < wanted
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                log.warning(
                    "%s has no room for logs of other machines; free some space there", self._files.directory
                )
        return not is_full

    def _shorten(self, path: str) -> None:
        try:
            keep_within(path, self._limit_bytes)
        except OSError as error:
            self._limit_bytes = 0
            log.warning("%s is longer than its limit and cannot be shortened: %s", path, error.strerror)

    def _note_lag(self, piece: LogPiece, size: int) -> None:
        lag = piece.size - size
        if lag > LAG_BYTES and piece.task_id not in self._lagging:
            self._lagging.add(piece.task_id)
            log.warning(
                "the log of %s is %d MiB behind: it is written faster than it arrives",
                piece.task_id,
                lag >> 20,
            )
        elif lag <= 0:
            self._lagging.discard(piece.task_id)

    @property
    def lagging(self) -> frozenset[str]:
        """The tasks whose logs are far behind."""
        return frozenset(self._lagging)


def _append(path: str, piece: LogPiece) -> int:
    """Add what of a piece is beyond the file's end; the answer is the size. A piece behind a gap adds nothing, unless
    the gap was not kept on the machine either: then it is a hole here too."""
    fd = os.open(path, _FLAGS, 0o600)
    try:
        size = os.fstat(fd).st_size
        if piece.skips and piece.offset > size:
            # A hole begins with a block; blank lines up to there are never shown.
            os.pwrite(fd, b"\n" * min(piece.offset - size, -size % _BLOCK_BYTES), size)
            os.ftruncate(fd, piece.offset)
            size = piece.offset
        if piece.offset <= size < piece.offset + len(piece.data):
            size += os.pwrite(fd, piece.data[size - piece.offset :], size)
        return size
    finally:
        os.close(fd)


def _patch(path: str, piece: LogPiece) -> int:
    """Write a part of a file of samples; a file that begins anew replaces the one before."""
    if not 0 <= piece.offset <= MOST_SAMPLES_BYTES - len(piece.data):
        return 0
    fd = os.open(path, _FLAGS | (os.O_TRUNC if piece.begins else 0), 0o600)
    try:
        if piece.offset <= os.fstat(fd).st_size:
            os.pwrite(fd, piece.data, piece.offset)
    finally:
        os.close(fd)
    return 0


def _size(path: str) -> int:
    try:
        return Path(path).lstat().st_size
    except OSError:
        return 0
