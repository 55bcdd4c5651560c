"""Names of unix sockets below any directory: the kernel takes 107 bytes of a path, and a data directory may be deeper.

A longer path is reached through a descriptor of its directory, as `/proc/self/fd/N/NAME`. Decides nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

#: What fits into a sockaddr_un with the null byte at its end.
_MOST_BYTES = 107


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """A name of the same socket that the kernel takes, for as long as the context lasts."""
    if len(os.fsencode(path)) <= _MOST_BYTES:
        yield path
        return
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
