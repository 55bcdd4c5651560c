"""Which files were moved to their names: those are finished, however young they are.

A write and a rename within one tick of the clock leave the same times, so the file system is asked to report moves
(inotify). Decides nothing about files of which nothing was told: where the kernel cannot tell, or told too much at
once, nothing is known. Must not know about stores.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Collection
from contextlib import suppress

from windfall.agent.walking import opened_directory, opened_root

#: As linux/inotify.h has them.
_MOVED_FROM, _MOVED_TO = 0x40, 0x80
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_ONLY_DIRECTORIES, _IS_DIRECTORY = 0x01000000, 0x40000000
_EVENT = struct.Struct("iIII")
_BUFFER_BYTES = 1 << 16
#: The kernel has a limited number for all programs of a user; a tree of more directories is watched in part.
_MOST_WATCHED = 256


class Moves:
    """Hears of moves below a directory from the first `listen` on."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._watched: dict[int, str] = {}
        #: Names, also of directories, and when they were heard of, in nanoseconds since the epoch.
        self._moved: dict[str, int] = {}
        self._is_useless = False

    def listen(self, directories: Collection[str], names: Collection[str] = ()) -> None:
        """Hear of moves in the directory and some below it from now on.

        `directories` and `names` are those of a look. Names that were heard of before it and are not in it are
        forgotten; one that is heard of now may have been moved after the look.
        """
        if self._is_useless:
            return
        if self._descriptor is None:
            self._descriptor = _inotify()
            self._is_useless = self._descriptor is None
        known = set(self._watched.values())
        for path in ("", *directories):
            if path not in known and len(known) < _MOST_WATCHED and not self._is_useless:
                self._watch(path)
                known.add(path)
        self._moved = {path: at for path, at in self._moved.items() if path in names or path in directories}
        self.hear()

    def hear(self) -> None:
        """Take in what has been told since the last time."""
        if self._descriptor is None:
            return
        with suppress(BlockingIOError):
            while events := os.read(self._descriptor, _BUFFER_BYTES):
                self._take(events, time.time_ns())

    def has(self, path: str, written_ns: int) -> bool:
        """Whether a file was moved to its name, alone or with a directory, and not written to since."""
        places = (path, *(path[:cut] for cut in range(len(path)) if path[cut] == "/"))
        return any(self._moved.get(place, -1) >= written_ns for place in places)

    def close(self) -> None:
        """Hear nothing more; what was heard stays known."""
        descriptor, self._descriptor, self._is_useless = self._descriptor, None, True
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        # A user has few of them (128 on many hosts), so none may outlive the one that listens.
        self.close()

    def _watch(self, path: str) -> None:
        assert self._descriptor is not None
        with suppress(OSError):
            root = opened_root(self._directory)
            try:
                opened = opened_directory(root, path)
            finally:
                os.close(root)
            try:
                # By the open directory: a name on the way may have become a link.
                place = f"/proc/self/fd/{opened}".encode()
                mask = _MOVED_TO | _MOVED_FROM | _ONLY_DIRECTORIES
                number = ctypes.CDLL(None).inotify_add_watch(self._descriptor, place, mask)
            finally:
                os.close(opened)
            if number >= 0:
                self._watched[number] = path

    def _take(self, events: bytes, now_ns: int) -> None:
        at = 0
        while at < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            if mask & _OVERFLOW:
                self._moved = {}
            above = self._watched.get(number)
            if above is None:
                continue
            if mask & _IGNORED:
                del self._watched[number]
                continue
            name = os.fsdecode(events[at - length : at].rstrip(b"\0"))
            path = f"{above}/{name}" if above else name
            if mask & _MOVED_TO:
                self._moved[path] = now_ns
            elif mask & _IS_DIRECTORY:
                # What is in it has other names from now on; those that are left are watched anew at the next look.
                gone = [one for one, place in self._watched.items() if f"{place}/".startswith(f"{path}/")]
                for one in gone:
                    del self._watched[one]
                self._moved = {
                    place: at for place, at in self._moved.items() if not f"{place}/".startswith(f"{path}/")
                }
            else:
                self._moved.pop(path, None)


def _inotify() -> int | None:
    try:
        descriptor: int = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return None
    return descriptor if descriptor >= 0 else None
