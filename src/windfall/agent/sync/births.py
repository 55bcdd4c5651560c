"""When a file was made, which tells a new file from the one whose number it has got.

A file system gives the number of a deleted inode to the next file: a program that replaces its file in a steady rhythm
can show the same number at every look. Decides nothing; 0 stands for a time that the file system does not keep.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import cache

#: As linux/stat.h has them.
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_MASK = struct.Struct("=I")
_BIRTH, _BIRTH_AT = struct.Struct("=qI"), 80

Statx = Callable[[int, bytes], bytes | None]


def born_ns(name: str, descriptor: int) -> int:
    """When the file of a name in an open directory was made, in nanoseconds; 0 if nobody knows."""
    found = _statx()(descriptor, os.fsencode(name))
    if found is None or not _MASK.unpack_from(found)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _BIRTH.unpack_from(found, _BIRTH_AT)
    return int(seconds * 1_000_000_000 + nanoseconds)


@cache
def _statx() -> Statx:
    """The C library's call, which Python does not have before 3.15."""
    import ctypes

    try:
        statx = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return lambda _descriptor, _name: None
    statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)

    def call(descriptor: int, name: bytes) -> bytes | None:
        answer = ctypes.create_string_buffer(_STATX_BYTES)
        failed = statx(descriptor, name, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, answer)
        return None if failed else answer.raw

    return call
