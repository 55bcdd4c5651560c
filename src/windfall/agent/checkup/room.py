"""Room and speed: shared memory, the disk of the data directory, durable writes, open files."""

from __future__ import annotations

from collections.abc import Iterator

from windfall.agent.checkup.host import Host
from windfall.agent.checkup.verdicts import Verdict, bad, doubtful, good, skipped

SHARED_MEMORY, DISK, WRITES, FILES = "shared memory", "disk", "durable writes", "open files"
_GIB = 1 << 30
_ENOUGH_SHARED_BYTES = 2 * _GIB
#: With less than this the daemon soon cannot write; with less than the second, checkpoints soon cannot.
LEAST_DISK_BYTES, _ENOUGH_DISK_BYTES = _GIB, 20 * _GIB
_LEAST_INODES = 10_000
#: Beyond this a round of the daemon, and so a submission, is felt as slow.
_SLOW_SYNC_MS = 20.0
_ENOUGH_FILES = 4096


def check_room(host: Host, data: str) -> Iterator[Verdict]:
    """Look at the places that jobs and the daemon fill."""
    yield _shared_memory(host)
    yield _disk(host, data)
    yield _writes(host, data)
    yield _files(host)


def _shared_memory(host: Host) -> Verdict:
    room = host.file_system("/dev/shm")
    if room is None:
        return bad(SHARED_MEMORY, "/dev/shm is missing", "sudo mount -t tmpfs tmpfs /dev/shm")
    seen = f"/dev/shm has {room.total_bytes / _GIB:.1f} GiB, {room.free_bytes / _GIB:.1f} free"
    if room.total_bytes < _ENOUGH_SHARED_BYTES:
        mend = (
            "sudo mount -o remount,size=8G /dev/shm; in a container: --shm-size=8g."
            " Too little kills data loaders with a bus error; it is not GPU memory"
        )
        return doubtful(SHARED_MEMORY, seen, mend)
    return good(SHARED_MEMORY, seen)


def _disk(host: Host, data: str) -> Verdict:
    room = host.file_system(data)
    if room is None:
        return bad(DISK, f"{data} cannot be looked at", "choose another directory with --data")
    seen = f"{room.free_bytes / _GIB:.1f} GiB free of {room.total_bytes / _GIB:.1f} for {data}"
    mend = "make room, or keep data and checkpoints elsewhere (--data, --objects)"
    if room.free_bytes < LEAST_DISK_BYTES:
        return bad(DISK, seen, mend)
    # Some file systems have no fixed number of files.
    if room.total_inodes and room.free_inodes < _LEAST_INODES:
        return bad(DISK, f"{seen}, but room for only {room.free_inodes:,} files", mend)
    return doubtful(DISK, seen, mend) if room.free_bytes < _ENOUGH_DISK_BYTES else good(DISK, seen)


def _writes(host: Host, data: str) -> Verdict:
    taken_ms = host.sync_ms(data)
    if taken_ms is None:
        return skipped(WRITES, f"nothing can be written near {data} by this user")
    seen = f"{taken_ms:.1f} ms to make a small write durable"
    if taken_ms > _SLOW_SYNC_MS:
        return doubtful(WRITES, seen, "put --data on a local SSD: every submission waits for one such write")
    return good(WRITES, seen)


def _files(host: Host) -> Verdict:
    now, most = host.open_files
    seen = f"{now:,} at once, {most:,} at most"
    if most < _ENOUGH_FILES:
        return doubtful(FILES, seen, "raise it: ulimit -n 65536, or LimitNOFILE=65536 in the service")
    return good(FILES, seen)
