"""Memory that trainer and writer share: a memfd, or a nameless file on disk where memory is short.

What lies in it outlives the trainer as long as the writer holds it. Nothing here knows what the bytes mean.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windfall.checkpoint.layout import PAGE_BYTES, round_up

#: Share of the available memory that the buffers of one run may take together.
MEMORY_SHARE = 0.6
_CGROUP = Path("/sys/fs/cgroup")


class SharedBuffer:
    """One image's worth of shared memory, mapped here and handed to the writer by descriptor."""

    def __init__(self, size: int, directory: Path, *, in_memory: bool) -> None:
        self.size = round_up(max(size, PAGE_BYTES), PAGE_BYTES)
        if in_memory:
            self.fd = os.memfd_create("windfall-checkpoint", os.MFD_CLOEXEC)
        else:
            self.fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.ftruncate(self.fd, self.size)
        self._map = mmap.mmap(self.fd, self.size)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        #: Set once a device driver has locked the pages; called to unlock them before they go away.
        self.unpin: Callable[[], None] | None = None
        #: Views that a framework made of this memory (by layout); they go away with it.
        self.views: dict[Any, Any] = {}

    def populate(self) -> None:
        """Takes all pages now, without the interpreter's lock, so that no later copy waits for the kernel."""
        with contextlib.suppress(OSError):
            os.posix_fallocate(self.fd, 0, self.size)

    def close(self) -> None:
        """Gives the memory up on this side; the mapping itself goes when nobody refers to it any more."""
        if self.unpin is not None:
            self.unpin()
            self.unpin = None
        self.views.clear()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _cached_bytes(group: Path) -> int:
    # Pages of files count as used, but the kernel gives them up when memory is asked for.
    for line in (group / "memory.stat").read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def available_bytes() -> int:
    """Memory that may be taken: what the machine has left, and what the cgroup of this process allows."""
    free = 1 << 62
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError, IndexError):
        own = Path("/proc/self/cgroup").read_text().splitlines()[-1].rpartition(":")[2].strip("/")
        group = _CGROUP / own
        for folder in (group, *group.parents):
            limit = folder / "memory.max"
            if limit.exists() and (bound := limit.read_text().strip()) != "max":
                used = int((folder / "memory.current").read_text()) - _cached_bytes(folder)
                free = min(free, max(int(bound) - used, 0))
            if folder == _CGROUP:
                break
    return free


def fits_in_memory(size: int) -> bool:
    """Whether another buffer of this size leaves the job enough room."""
    return size <= available_bytes() * MEMORY_SHARE


def copy_into(target: memoryview, source: memoryview, offset: int) -> None:
    """Copies flat bytes to a place in a buffer; large copies leave the interpreter's lock to others."""
    if source.nbytes < (1 << 20) or source.readonly:
        target[offset : offset + source.nbytes] = source
        return
    to = ctypes.addressof(ctypes.c_char.from_buffer(target, offset))
    ctypes.memmove(to, ctypes.addressof(ctypes.c_char.from_buffer(source)), source.nbytes)
