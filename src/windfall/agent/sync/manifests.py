"""The committed picture of a checkpoint directory, and where everything lies below the job's prefix.

Decides keys, the manifest's form, and which paths a manifest may name: it comes from a store that others may write to.
Must not know how pieces are moved.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from windfall.agent.sync.errors import DamagedError
from windfall.agent.sync.links import stays_inside
from windfall.agent.walking import LONGEST_PATH
from windfall.jobs.staging import Mark

#: Ours, below the prefix; a job's own file of that name is not synced.
RESERVED = ".windfall"
CHUNKS = f"{RESERVED}/chunks"
MANIFESTS = f"{RESERVED}/manifests"
FENCE = f"{RESERVED}/fence"
#: Pieces that did not verify are moved here, so that they are neither used nor counted as present again.
DAMAGED = f"{RESERVED}/damaged"
#: What stands under plain names, where the files are published.
PUBLISHED = f"{RESERVED}/published.json"

_VERSION = 1
#: Pieces are 16 MiB; a manifest that says far more would take that much of its reader's memory.
_LARGEST_CHUNK_BYTES = 1 << 30
#: Larger numbers cannot be given to the kernel: a file's length, and the time of a change.
_MOST_BYTES, _MOST_NS = 2**63 - 1, (2**63 - 1) * 10**9
_NAME = re.compile(rf"{re.escape(MANIFESTS)}/(\d{{13}})-(\d{{6}})\.json\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True, order=True)
class Order:
    """Which manifest is newer: the later attempt's, then the later of one attempt."""

    fence: int
    seq: int

    @property
    def key(self) -> str:
        """Where the manifest lies."""
        return f"{MANIFESTS}/{self.fence:013d}-{self.seq:06d}.json"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a picture."""

    path: str
    bytes: int
    mtime_ns: int
    mode: int
    #: SHA-256 of each piece, in order; all pieces but the last are as long as the manifest says.
    pieces: tuple[str, ...]

    @property
    def content(self) -> str:
        """A name for what the file holds, equal for equal content cut the same way."""
        return hashlib.sha256("".join(self.pieces).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One directory of a picture, so that empty ones come back too."""

    path: str
    mode: int


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """One symbolic link of a picture."""

    path: str
    #: Relative, and inside of the directory.
    target: str
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole directory at one moment."""

    order: Order
    #: When it was committed.
    at: int
    #: When the state in it was captured.
    state_at: int
    name: str
    step: int | None
    chunk_bytes: int
    files: tuple[FileEntry, ...]
    directories: tuple[DirectoryEntry, ...] = ()
    links: tuple[LinkEntry, ...] = ()

    @property
    def bytes(self) -> int:
        """Length of all files together."""
        return sum(file.bytes for file in self.files)

    @property
    def mark(self) -> Mark:
        """What the rest of Windfall knows of it."""
        return Mark(self.name, self.at, self.state_at, self.bytes, self.step)

    def digests(self) -> set[str]:
        """Every piece that must be there for it to be restored."""
        return {digest for file in self.files for digest in file.pieces}

    def piece_bytes(self) -> dict[str, int]:
        """Every piece with its length."""
        return {
            digest: min(self.chunk_bytes, file.bytes - index * self.chunk_bytes)
            for file in self.files
            for index, digest in enumerate(file.pieces)
        }


def chunk_key(digest: str) -> str:
    """Where a piece lies."""
    return f"{CHUNKS}/{digest[:2]}/{digest}"


def order_of(key: str) -> Order | None:
    """The order that a manifest's key states, or None for a key of something else."""
    match = _NAME.match(key)
    return Order(int(match[1]), int(match[2])) if match else None


def encode(manifest: Manifest) -> bytes:
    """JSON with a digest over itself at the end, so that a damaged one is told from a whole one."""
    body: dict[str, Any] = {
        "version": _VERSION,
        "fence": manifest.order.fence,
        "seq": manifest.order.seq,
        "at": manifest.at,
        "state_at": manifest.state_at,
        "name": manifest.name,
        "step": manifest.step,
        "chunk_bytes": manifest.chunk_bytes,
        "bytes": manifest.bytes,
        "directories": [[entry.path, entry.mode] for entry in manifest.directories],
        "files": [
            [entry.path, entry.bytes, entry.mtime_ns, entry.mode, list(entry.pieces)]
            for entry in manifest.files
        ],
    }
    if manifest.links:
        # Readers that do not know of links pass over it.
        body["links"] = [[entry.path, entry.target, entry.mtime_ns] for entry in manifest.links]
    text = json.dumps(body, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{text[:-1]},"digest":"{digest}"}}'.encode()


def decode(content: bytes, order: Order) -> Manifest:
    """A manifest that is whole, of a version that is known, and names nothing outside of its directory."""
    text, mark, tail = content.decode("utf-8", "replace").rpartition(',"digest":"')
    if not mark or tail != hashlib.sha256(f"{text}}}".encode()).hexdigest() + '"}':
        raise DamagedError(f"{order.key} is incomplete or was changed")
    try:
        body = json.loads(f"{text}}}")
        if body["version"] != _VERSION:
            raise DamagedError(
                f"{order.key} is of version {body['version']!r}, this Windfall knows {_VERSION}"
            )
        files = tuple(_file(row) for row in body["files"])
        directories = tuple(DirectoryEntry(_path(path), int(mode)) for path, mode in body["directories"])
        links = tuple(_link(row) for row in body.get("links", []))
        chunk_bytes = int(body["chunk_bytes"])
        _check_lengths(files, chunk_bytes)
        _check_places(files, directories, links)
        return Manifest(
            order=Order(int(body["fence"]), int(body["seq"])),
            at=int(body["at"]),
            state_at=int(body["state_at"]),
            name=str(body["name"]),
            step=None if body["step"] is None else int(body["step"]),
            chunk_bytes=chunk_bytes,
            files=files,
            directories=directories,
            links=links,
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedError(f"{order.key} makes no sense: {error!r}") from error


def _file(row: list[Any]) -> FileEntry:
    path, size, mtime_ns, mode, pieces = row
    if not all(_DIGEST.match(digest) for digest in pieces):
        raise DamagedError(f"{path!r} has a piece whose name is not a digest")
    if not 0 <= int(size) <= _MOST_BYTES:
        raise DamagedError(f"{path!r} cannot have {size} bytes")
    return FileEntry(_path(path), int(size), _changed_ns(mtime_ns), int(mode), tuple(pieces))


def _link(row: list[Any]) -> LinkEntry:
    path, target, mtime_ns = row
    if not stays_inside(_path(path), target) or not _is_a_name(target):
        raise DamagedError(f"the link {path!r} would lead out of the checkpoint directory")
    return LinkEntry(path, target, _changed_ns(mtime_ns))


def _changed_ns(told: Any) -> int:
    if abs(int(told)) > _MOST_NS:
        raise DamagedError(f"{told} cannot be the time of a change")
    return int(told)


def _check_places(
    files: Iterable[FileEntry], directories: Iterable[DirectoryEntry], links: Iterable[LinkEntry]
) -> None:
    """See that nothing would be written through a link."""
    names = {entry.path for entry in links}
    if not names:
        return
    others = [*(file.path for file in files), *(entry.path for entry in directories)]
    for path in (*others, *names):
        if any(path[:cut] in names for cut in range(len(path)) if path[cut] == "/"):
            raise DamagedError(f"{path!r} would lie behind a link")
    if not names.isdisjoint(others):
        raise DamagedError("a link has the name of a file or a directory")


def _path(path: str) -> str:
    if not is_safe(path):
        raise DamagedError(f"{path!r} would lie outside of the checkpoint directory")
    return path


def _check_lengths(files: Iterable[FileEntry], chunk_bytes: int) -> None:
    for file in files:
        if not 0 < chunk_bytes <= _LARGEST_CHUNK_BYTES or len(file.pieces) != -(-file.bytes // chunk_bytes):
            raise DamagedError(f"{file.path!r} has {len(file.pieces)} pieces for {file.bytes} bytes")


def is_safe(path: object) -> bool:
    """Whether a relative path stays below where it is put."""
    return (
        isinstance(path, str)
        and "\0" not in path
        and len(path) <= 2 * LONGEST_PATH
        and all(segment not in ("", ".", "..") for segment in path.split("/"))
        and _is_a_name(path)
    )


def _is_a_name(path: str) -> bool:
    """Whether the kernel can be given the text: half of a surrogate pair has no bytes."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True
