"""One prefix that several nodes of a job write to: each has pictures of its own, and restores those of all.

The first writer's pictures lie where a job of one node has them, every other's in a part of the reserved area of their
own; files under plain names are one flat set. Decides whose version of a file is restored: the newest. What a node has
restored of others, and not changed since, does not count in its own pictures, so it never deletes what it has not
written. Must not know the directory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from windfall.agent.sync.errors import DamagedError, NeighbourDamagedError
from windfall.agent.sync.manifests import (
    CHUNKS,
    PUBLISHED,
    RESERVED,
    DirectoryEntry,
    FileEntry,
    LinkEntry,
    Manifest,
    Order,
    chunk_key,
    decode,
    order_of,
)
from windfall.objects.errors import NotFound
from windfall.objects.port import Content, Entry, LocalPath, ObjectStore

WRITERS = f"{RESERVED}/writers"
#: What a writer has restored of others: path -> [bytes, mtime_ns]; and the directories that came with it.
RESTORED = f"{RESERVED}/restored.json"


class WriterObjects:
    """The objects of a prefix as one writer sees them: its own part of the reserved area stands for all of it."""

    def __init__(self, objects: ObjectStore, writer: int) -> None:
        self._objects = objects
        self._own = RESERVED if writer == 0 else f"{WRITERS}/{writer}"
        self.uri = objects.uri

    def get(self, key: str) -> bytes:
        return self._objects.get(self.place_of(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._objects.get_range(self.place_of(key), start, end)

    def put(self, key: str, content: Content, *, create_only: bool = False) -> None:
        self._objects.put(self.place_of(key), content, create_only=create_only)

    def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        self._objects.put_pieces(self.place_of(key), pieces)

    def put_file(self, key: str, path: LocalPath) -> int:
        return self._objects.put_file(self.place_of(key), path)

    def get_file(self, key: str, path: LocalPath) -> int:
        return self._objects.get_file(self.place_of(key), path)

    def get_into(self, key: str, descriptor: int) -> int:
        return self._objects.get_into(self.place_of(key), descriptor)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """The entries below a prefix; without one, those of other writers stay in the reserved area."""
        if not prefix.startswith(RESERVED):
            yield from self._objects.list(prefix)
            return
        for entry in self._objects.list(self.place_of(prefix)):
            yield Entry(RESERVED + entry.key[len(self._own) :], entry.bytes, entry.changed_at)

    def head(self, key: str) -> Entry | None:
        return self._objects.head(self.place_of(key))

    def copy(self, source: str, target: str) -> None:
        self._objects.copy(self.place_of(source), self.place_of(target))

    def delete(self, keys: Iterable[str]) -> None:
        self._objects.delete([self.place_of(key) for key in keys])

    def place_of(self, key: str) -> str:
        """Where an object lies below the prefix."""
        if key == RESERVED or key.startswith(f"{RESERVED}/"):
            return self._own + key[len(RESERVED) :]
        return key


@dataclass(slots=True)
class Neighbour:
    """Another writer's pictures, to be read alone."""

    writer: int
    objects: WriterObjects
    orders: list[Order] = field(default_factory=list)
    pieces: dict[str, int] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def newest(self, before: int) -> Manifest | None:
        """The newest whole picture of an attempt before a fence."""
        for order in sorted(self.orders, reverse=True):
            if order.fence >= before:
                continue
            try:
                manifest = decode(self.objects.get(order.key), order)
            except (NotFound, DamagedError):
                continue
            if all(self.pieces.get(digest) == size for digest, size in manifest.piece_bytes().items()):
                return manifest
        return None

    def drop(self, order: Order) -> None:
        """Use this picture no more: a piece of it is not what it should be."""
        self.orders = [one for one in self.orders if one != order]

    def get_piece(self, digest: str) -> bytes:
        """A piece that verifies; NeighbourDamagedError where it is not there, or something else."""
        try:
            content = self.objects.get(chunk_key(digest))
        except NotFound as error:
            raise NeighbourDamagedError(self.writer, digest) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise NeighbourDamagedError(self.writer, digest)
        return content

    def published(self) -> set[str]:
        """The plain names that are its own."""
        try:
            return set(json.loads(self.objects.get(PUBLISHED)))
        except (NotFound, ValueError):
            return set()


def neighbours(objects: ObjectStore, writer: int) -> list[Neighbour]:
    """All other writers that have ever written below a prefix, in their order."""
    found: dict[int, Neighbour] = {}
    for entry in objects.list(WRITERS if writer == 0 else RESERVED):
        name = _writer_of(entry.key)
        if name is None or name[0] == writer:
            continue
        number, key = name
        one = found.setdefault(number, Neighbour(number, WriterObjects(objects, number)))
        one.keys.append(entry.key)
        order = order_of(key)
        if order is not None:
            one.orders.append(order)
        elif key.startswith(f"{CHUNKS}/"):
            one.pieces[key.rpartition("/")[2]] = entry.bytes
    return [found[number] for number in sorted(found)]


def _writer_of(key: str) -> tuple[int, str] | None:
    """Whose an object of the reserved area is, and how its writer calls it."""
    if not key.startswith(f"{WRITERS}/"):
        return 0, key
    number, slash, rest = key[len(WRITERS) + 1 :].partition("/")
    return (int(number), f"{RESERVED}/{rest}") if slash and number.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Part:
    """What is taken of one writer's picture: the files of which it has the newest version, and its directories."""

    source: Neighbour | None
    manifest: Manifest
    files: tuple[FileEntry, ...]
    links: tuple[LinkEntry, ...] = ()


def merged(own: Manifest | None, others: Sequence[tuple[Neighbour, Manifest]]) -> list[Part]:
    """The pictures of all writers as one: of a file that several have, the newest version; one's own, if equal."""
    pictures: list[tuple[Neighbour | None, Manifest]] = [] if own is None else [(None, own)]
    pictures += others
    winner: dict[str, tuple[int, int]] = {}
    for number, (_, manifest) in enumerate(pictures):
        entries: list[FileEntry | LinkEntry] = [*manifest.files, *manifest.links]
        for entry in entries:
            if entry.path not in winner or entry.mtime_ns > winner[entry.path][0]:
                winner[entry.path] = (entry.mtime_ns, number)
    return [
        Part(
            source,
            manifest,
            tuple(file for file in manifest.files if winner[file.path][1] == number),
            tuple(link for link in manifest.links if winner[link.path][1] == number),
        )
        for number, (source, manifest) in enumerate(pictures)
    ]


@dataclass(slots=True)
class OfOthers:
    """What a writer has restored of others, and has not changed."""

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()
    links: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        files: Iterable[FileEntry],
        directories: Iterable[DirectoryEntry],
        links: Iterable[LinkEntry] = (),
    ) -> OfOthers:
        """What came with these."""
        known = {file.path: (file.bytes, file.mtime_ns) for file in files}
        targets = {link.path: link.target for link in links}
        parents = {path[:cut] for path in (*known, *targets) for cut in range(len(path)) if path[cut] == "/"}
        return cls(known, frozenset(parents | {entry.path for entry in directories}), targets)

    @classmethod
    def read(cls, objects: ObjectStore) -> OfOthers:
        """What was written down by an earlier process of this attempt."""
        try:
            body = json.loads(objects.get(RESTORED))
            files = {str(path): (int(size), int(mtime)) for path, (size, mtime) in body["files"].items()}
            links = {str(path): str(target) for path, target in body.get("links", {}).items()}
            return cls(files, frozenset(map(str, body["directories"])), links)
        except (NotFound, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def write(self, objects: ObjectStore) -> None:
        """Write it down, for a process that has not restored it itself."""
        body = {"files": self.files, "directories": sorted(self.directories), "links": self.links}
        objects.put(RESTORED, json.dumps(body, separators=(",", ":")).encode())

    def is_unchanged(self, path: str, size: int, mtime_ns: int) -> bool:
        """Whether a file is as it came from another writer; once changed, it is one's own for good."""
        if self.files.get(path) == (size, mtime_ns):
            return True
        self.files.pop(path, None)
        return False
