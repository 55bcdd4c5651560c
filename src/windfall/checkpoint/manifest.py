"""The one file that makes a directory a checkpoint: its form, its own checksum, and nothing about where it lies.

manifest.json is a JSON object: schema, step, saved_at, attempt, final, versions, trees (structure and plain values of
each tracked object), segments (file, length, CRC-32 of each piece) and leaves. Its last member is the CRC-32 of
all text before it, so that a torn or edited manifest is told from a whole one without a second file.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windfall.checkpoint.errors import Damaged

SCHEMA = 1
FILE_NAME = "manifest.json"
#: Checksums are kept for pieces of this size: small enough to spread over threads, large enough to be few.
PIECE_BYTES = 32 << 20

_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\s*\Z')


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment file with what it must contain."""

    file: str
    start: int
    length: int
    piece_bytes: int
    crc32: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredExtent:
    """Where a leaf lies in the image."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that is whole and makes sense in itself; the segment files have yet to be compared with it."""

    step: int
    saved_at: int
    final: bool
    trees: Mapping[str, Any]
    segments: tuple[StoredSegment, ...]
    leaves: Mapping[str, StoredExtent]

    @property
    def size(self) -> int:
        """Bytes of the image."""
        return sum(segment.length for segment in self.segments)


def encode(head: Mapping[str, Any], table: Mapping[str, Any], crcs: list[list[int]]) -> bytes:
    """Joins what the trainer said, the leaf table and the checksums of the written pieces, and seals them."""
    body = {
        "schema": SCHEMA,
        **head,
        "segments": [
            {"file": file, "length": length, "piece_bytes": PIECE_BYTES, "crc32": pieces}
            for (file, _, length), pieces in zip(table["segments"], crcs, strict=True)
        ],
        "leaves": table["leaves"],
    }
    text = json.dumps(body, separators=(",", ":")).encode()[:-1]
    return text + b',"crc32":"%08x"}\n' % zlib.crc32(text)


def decode(raw: bytes) -> Manifest:
    """Reads a manifest; raises Damaged for one that is torn, changed, or of another schema."""
    seal = _SEAL.search(raw)
    if seal is None or zlib.crc32(raw[: seal.start()]) != int(seal[1], 16):
        raise Damaged("its manifest.json is incomplete or was changed")
    body = json.loads(raw)
    if body.get("schema") != SCHEMA:
        raise Damaged(f"its schema is {body.get('schema')!r}; this version of windfall reads {SCHEMA}")
    try:
        return _parse(body)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Damaged(f"its manifest.json lacks a part: {error!r}") from error


def _parse(body: Mapping[str, Any]) -> Manifest:
    segments: list[StoredSegment] = []
    start = 0
    for entry in body["segments"]:
        file = str(entry["file"])
        if "/" in file or file in {"", ".", ".."}:
            raise Damaged(f"it names a segment outside of its directory: {file!r}")
        segment = StoredSegment(file, start, entry["length"], entry["piece_bytes"], tuple(entry["crc32"]))
        segments.append(segment)
        start += segment.length
    leaves: dict[str, StoredExtent] = {}
    for path, kind, dtype, shape, number, offset, nbytes in body["leaves"]:
        segment = segments[number]
        if offset < 0 or nbytes < 0 or offset + nbytes > segment.length:
            raise Damaged(f"the leaf {path} lies outside of its segment")
        leaves[path] = StoredExtent(kind, dtype, tuple(shape), segment.start + offset, nbytes)
    return Manifest(
        step=int(body["step"]),
        saved_at=int(body["saved_at"]),
        final=bool(body.get("final", False)),
        trees=body["trees"],
        segments=tuple(segments),
        leaves=leaves,
    )
