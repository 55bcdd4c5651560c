"""Object storage in a directory that can be away, or hold up whoever asks, when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from windfall.agent.courier.stores import Stores
from windfall.jobs.storage import StorageAccess
from windfall.objects.errors import Full, Refused, Unreachable
from windfall.objects.files import FileObjects
from windfall.objects.port import Content, Entry, LocalPath


class Mood:
    """How all stores of one test behave."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.away = threading.Event()
        self.full = threading.Event()
        #: It can be read, and every write is refused.
        self.read_only = threading.Event()
        #: Whoever asks waits for this.
        self.flowing = threading.Event()
        self.flowing.set()
        #: Set when somebody waits.
        self.waiting = threading.Event()
        self.calls = 0

    def open(self, uri: str) -> MoodyObjects:
        return MoodyObjects(self, uri)

    def stores(self, access: StorageAccess | None = None) -> Stores:
        """The stores of an attempt that may open everything, unless it is said what."""
        return Stores(None, access or StorageAccess(), self.open)

    def ask(self) -> None:
        self.calls += 1
        if not self.flowing.is_set():
            self.waiting.set()
            self.flowing.wait(60)
        if self.away.is_set():
            raise Unreachable("the store is away")

    def give(self) -> None:
        self.ask()
        if self.read_only.is_set():
            raise Refused("AccessDenied: writing is not allowed")


class MoodyObjects:
    """URIs of any scheme are directories below the mood's root."""

    def __init__(self, mood: Mood, uri: str) -> None:
        self.uri = uri
        self._mood = mood
        self._inner = FileObjects(mood.root / uri.partition("://")[2].lstrip("/"), uri)

    def get(self, key: str) -> bytes:
        self._mood.ask()
        return self._inner.get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        self._mood.ask()
        return self._inner.get_range(key, start, end)

    def put(self, key: str, content: Content, *, create_only: bool = False) -> None:
        self._mood.give()
        self._inner.put(key, content, create_only=create_only)

    def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        self._mood.give()
        if self._mood.full.is_set():
            raise Full("no room; make some")
        self._inner.put_pieces(key, pieces)

    def put_file(self, key: str, path: LocalPath) -> int:
        self._mood.give()
        return self._inner.put_file(key, path)

    def get_file(self, key: str, path: LocalPath) -> int:
        self._mood.ask()
        return self._inner.get_file(key, path)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        self._mood.ask()
        return self._inner.list(prefix)

    def head(self, key: str) -> Entry | None:
        self._mood.ask()
        return self._inner.head(key)

    def copy(self, source: str, target: str) -> None:
        self._mood.give()
        self._inner.copy(source, target)

    def delete(self, keys: Iterable[str]) -> None:
        self._mood.give()
        self._inner.delete(keys)
