"""The port: what the rest of Windfall may ask of object storage, whichever kind it is.

Decides the words and their promises. Must not know how any store keeps them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from windfall.objects.errors import BadUri

#: What can be written: bytes, or a view of them.
Content = bytes | bytearray | memoryview
LocalPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as a listing shows it."""

    #: Relative to where the store was opened.
    key: str
    bytes: int
    #: When it was last written, by the store's own clock.
    changed_at: int


class ObjectStore(Protocol):
    """Objects below one prefix. Keys are relative to it, with `/` between segments; calls may come from any thread.

    A put is whole or not at all, and once it returns, as durable as the store can make it. Every call may raise
    Unreachable, Refused or BadUri of `windfall.objects.errors`.
    """

    #: Where it was opened, without credentials.
    uri: str

    def get(self, key: str) -> bytes:
        """The whole object; NotFound where there is none."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes `start` up to, not including, `end`; fewer where the object is shorter."""
        ...

    def put(self, key: str, content: Content, *, create_only: bool = False) -> None:
        """Write one object; with `create_only`, AlreadyThere instead of replacing one. Full where there is no room."""
        ...

    def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        """Write one object from pieces as they come; an exception of the iterable leaves no object behind."""
        ...

    def put_file(self, key: str, path: LocalPath) -> int:
        """Write a local file, in parallel parts where it is large; the answer is its length."""
        ...

    def get_file(self, key: str, path: LocalPath) -> int:
        """Bring an object to a local path, which appears when it is whole; the answer is its length."""
        ...

    def get_into(self, key: str, descriptor: int) -> int:
        """Write an object into an open file, from where it stands; the answer is its length. What is there after a
        failure is not the object.
        """
        ...

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix of whole segments, in no order: `a` finds `a/b`, not `ab`."""
        ...

    def head(self, key: str) -> Entry | None:
        """The object's entry, or None where there is none."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Make a second object with the same content without moving bytes through here; NotFound."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, many at a time; one that is not there is no error."""
        ...


def checked_key(key: str) -> str:
    """The key itself when every segment names something below the prefix; BadUri otherwise."""
    if not key or "\0" in key or any(segment in ("", ".", "..") for segment in key.split("/")):
        raise BadUri(f"{key!r} cannot name an object: give segments with single slashes, without . and ..")
    return key
