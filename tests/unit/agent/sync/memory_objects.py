"""Object storage in a dictionary, which can be told to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from windfall.objects.errors import AlreadyThere, NotFound
from windfall.objects.port import Content, Entry, LocalPath, checked_key


class MemoryObjects:
    """The port over a dictionary; `fail` may raise before any call is carried out."""

    def __init__(self) -> None:
        self.uri = "memory://here"
        self.objects: dict[str, bytes] = {}
        self.changed_at: dict[str, int] = {}
        self.now_ms = 0
        self.calls: list[tuple[str, str]] = []
        self.fail: Callable[[str, str], None] = lambda _call, _key: None

    def _asked(self, call: str, key: str) -> None:
        self.calls.append((call, key))
        self.fail(call, key)

    def get(self, key: str) -> bytes:
        self._asked("get", key)
        if key not in self.objects:
            raise NotFound(key)
        return self.objects[key]

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self.get(key)[start:end]

    def put(self, key: str, content: Content, *, create_only: bool = False) -> None:
        self._asked("put", checked_key(key))
        if create_only and key in self.objects:
            raise AlreadyThere(key)
        self.objects[key] = bytes(content)
        self.changed_at[key] = self.now_ms

    def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        self.put(key, b"".join(pieces))

    def put_file(self, key: str, path: LocalPath) -> int:
        self.put(key, Path(path).read_bytes())
        return len(self.objects[key])

    def get_file(self, key: str, path: LocalPath) -> int:
        content = self.get(key)
        Path(path).write_bytes(content)
        return len(content)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        self._asked("list", prefix)
        for key, content in list(self.objects.items()):
            if not prefix or key.startswith(prefix.rstrip("/") + "/"):
                yield Entry(key, len(content), self.changed_at[key])

    def head(self, key: str) -> Entry | None:
        self._asked("head", key)
        content = self.objects.get(key)
        return None if content is None else Entry(key, len(content), self.changed_at[key])

    def copy(self, source: str, target: str) -> None:
        self._asked("copy", target)
        if source not in self.objects:
            raise NotFound(source)
        self.objects[target] = self.objects[source]
        self.changed_at[target] = self.now_ms

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._asked("delete", key)
            self.objects.pop(key, None)

    def copied(self) -> MemoryObjects:
        """Another store with the same objects."""
        other = MemoryObjects()
        other.objects, other.changed_at = dict(self.objects), dict(self.changed_at)
        return other

    def below(self, prefix: str) -> list[str]:
        """Keys that begin so, sorted."""
        return sorted(key for key in self.objects if key.startswith(prefix))

    def plain(self) -> dict[str, bytes]:
        """What stands under plain names."""
        return {key: content for key, content in self.objects.items() if not key.startswith(".windfall/")}
