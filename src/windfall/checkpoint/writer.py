"""The writer: a small process that puts finished snapshots on disk, and goes on when the trainer is killed.

It holds the checkpoint directory's lock, reads images from shared memory, computes checksums, writes, commits
and removes old checkpoints. It imports the standard library only, knows nothing of frameworks, and decides
nothing about when to save. It ignores SIGTERM: the notice is for the trainer, whose last snapshot this process
has to finish.

    python -m windfall.checkpoint.writer SOCKET_FD TRAINER_PID KEEP LOCK_WAIT_S DIRECTORY
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import select
import shutil
import signal
import socket
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from windfall.checkpoint import directory as places
from windfall.checkpoint import manifest
from windfall.checkpoint.wire import SocketEnd

_LIBC = ctypes.CDLL(None, use_errno=True)
#: Few: a disk is slower than two of them, and the cores are the job's.
_THREADS = min(8, max(2, (os.cpu_count() or 2) // 4))


class Writer:
    """Images, layouts and the directory; one commit at a time, in the order in which they were asked for."""

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory = directory
        self._keep = keep
        self._images: dict[int, memoryview] = {}
        self._layouts: dict[int, dict[str, Any]] = {}
        self._threads = ThreadPoolExecutor(_THREADS)

    def add_image(self, number: int, descriptor: int, size: int) -> None:
        """Maps a shared buffer under the trainer's number for it, in place of an earlier one."""
        self._images[number] = memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))
        os.close(descriptor)

    def add_layout(self, number: int, table: dict[str, Any]) -> None:
        """Keeps a leaf table, so that each commit need not repeat it."""
        self._layouts = {number: table}

    def commit(self, image: int, layout: int, head: dict[str, Any]) -> dict[str, Any]:
        """Writes and commits one snapshot; on a full disk the oldest checkpoints make room, the newest never."""
        began = time.monotonic()
        table = self._layouts[layout]
        step = int(head["step"])
        while True:
            try:
                self._write(self._images[image], table, head)
                break
            except OSError as error:
                shutil.rmtree(self._directory / f".{places.name_of(step)}.tmp", ignore_errors=True)
                if error.errno not in {errno.ENOSPC, errno.EDQUOT} or not self._make_room():
                    raise
        places.retain(self._directory, self._keep, step)
        size = sum(length for _, _, length in table["segments"])
        return {"op": "durable", "step": step, "write_s": time.monotonic() - began, "bytes": size}

    def _make_room(self) -> bool:
        older = places.committed_steps(self._directory)[1:]
        if older:
            places.remove(self._directory, self._directory / places.name_of(older[-1]))
        return bool(older)

    def _write(self, image: memoryview, table: dict[str, Any], head: dict[str, Any]) -> None:
        need = sum(length for _, _, length in table["segments"])
        free = os.statvfs(self._directory)
        if free.f_bavail * free.f_frsize < need:
            # Said before minutes of writing rather than after; a commit would fail in the end anyway.
            raise OSError(errno.ENOSPC, f"no room for {need >> 20} MiB", str(self._directory))
        place = places.workplace(self._directory, head["step"])
        pending = [
            [
                self._threads.submit(self._write_piece, image, place / file, start, at, length)
                for at in range(0, length, manifest.PIECE_BYTES)
            ]
            for file, start, length in table["segments"]
        ]
        # Wait for all before raising: no thread may still write into a workplace that is being removed.
        failures = [task.exception() for tasks in pending for task in tasks]
        for failure in failures:
            if failure is not None:
                raise failure
        crcs = [[task.result() for task in tasks] for tasks in pending]
        # The pieces are on their way to the disk already; this waits until they are there.
        syncs = [self._threads.submit(_sync_file, place / file) for file, _, _ in table["segments"]]
        for task in syncs:
            task.result()
        places.write_durably(place / manifest.FILE_NAME, manifest.encode(head, table, crcs))
        places.commit(self._directory, place, head["step"])

    @staticmethod
    def _write_piece(image: memoryview, file: Path, start: int, at: int, length: int) -> int:
        stop = min(at + manifest.PIECE_BYTES, length)
        piece = image[start + at : start + stop]
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            done = 0
            while done < len(piece):
                done += os.pwrite(descriptor, piece[done:], at + done)
            _start_writeback(descriptor, at, len(piece))
            # The checksum is of what the image holds; a later read proves what the disk holds.
            return zlib.crc32(piece)
        finally:
            os.close(descriptor)


def _start_writeback(descriptor: int, at: int, length: int) -> None:
    # Without it the kernel begins to write at the fsync, when all pieces are in its cache, and the disk was
    # idle until then. SYNC_FILE_RANGE_WRITE asks for the beginning only.
    with contextlib.suppress(AttributeError, OSError):
        _LIBC.sync_file_range(descriptor, ctypes.c_int64(at), ctypes.c_int64(length), ctypes.c_uint(2))


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take_lock(directory: Path, trainer: int, wait_s: float) -> bool:
    # The writer of an earlier run may still be finishing its last checkpoint.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)  # held, and let go by the kernel at the end
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            gone, _, _ = select.select([trainer], [], [], 0.05)
            if gone or time.monotonic() > end:
                return False
        else:
            return True


def _answer(line: SocketEnd, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the trainer may be dead; its snapshots are finished all the same
        line.send(message)


def _handle(writer: Writer, line: SocketEnd, message: dict[str, Any]) -> None:
    if message["op"] == "image":
        writer.add_image(message["image"], line.take_descriptor(), message["size"])
    elif message["op"] == "layout":
        writer.add_layout(message["layout"], message["table"])
    elif message["op"] == "commit":
        try:
            _answer(line, writer.commit(message["image"], message["layout"], message["head"]))
        except (OSError, KeyError) as error:
            step = message["head"]["step"]
            _answer(line, {"op": "failed", "step": step, "error": f"{type(error).__name__}: {error}"})


def _serve(writer: Writer, line: SocketEnd, trainer: int) -> None:
    alive = True
    while True:
        # A process forked by the trainer (a data loader's worker) may hold the socket open after the trainer
        # has gone, so the end of the trainer itself counts too; what it sent before is still read.
        watched = [line.end.fileno(), trainer] if alive else [line.end.fileno()]
        readable, _, _ = select.select(watched, [], [], None if alive else 0)
        if trainer in readable:
            alive = False
        if line.end.fileno() in readable:
            messages = line.receive()
            if messages is None:
                return
            for message in messages:
                _handle(writer, line, message)
        elif not alive:
            return


def main(arguments: list[str]) -> int:
    """Serves one trainer until it closes the line or dies."""
    socket_fd, trainer_pid, keep, lock_wait_s, directory = arguments
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(10)  # the job's own work comes first
    line = SocketEnd(socket.socket(fileno=int(socket_fd)))
    try:
        trainer = os.pidfd_open(int(trainer_pid))
    except ProcessLookupError:
        return 0
    if not _take_lock(Path(directory), trainer, float(lock_wait_s)):
        _answer(line, {"op": "locked"})
        return 1
    places.clear_unfinished(Path(directory))
    _answer(line, {"op": "ready"})
    _serve(Writer(Path(directory), int(keep)), line, trainer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
