"""Bound by the disk: every batch is read from a file past the page cache. Argument 2 is where the file may lie (.)."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile

import torch
from pace import DEVICE, ticks, work

BATCH = 256 << 20
BATCHES = 8


def main() -> None:
    """Writes the file once, then reads it over and over."""
    place = sys.argv[2] if len(sys.argv) > 2 else "."
    with tempfile.NamedTemporaryFile(dir=place) as file:
        for _ in range(BATCHES):
            file.write(os.urandom(1 << 20) * (BATCH >> 20))
        file.flush()
        os.fsync(file.fileno())
        read(file.name, work(0.02))


def read(path: str, piece) -> None:
    """Reads batch after batch; where O_DIRECT is refused, the cache is emptied behind the reader."""
    buffer = mmap.mmap(-1, BATCH)  # aligned, as O_DIRECT needs it
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        fd = os.open(path, os.O_RDONLY)
    for number in ticks():
        offset = number % BATCHES * BATCH
        got = 0
        while got < BATCH:
            got += os.preadv(fd, [memoryview(buffer)[got : got + (4 << 20)]], offset + got)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        torch.frombuffer(buffer, dtype=torch.uint8)[: 16 << 20].to(DEVICE)
        piece()


main()
