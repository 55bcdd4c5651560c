"""The bytes that go through a training job's pipes, epoch by epoch.

Decides the order of the objects, decompression, and the framing of records. Must not know processes or pipes.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterable, Iterator

from windfall.agent.courier.channels import Piece, encoded, manifest_of, named_in_file, pieces_of, ranges
from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.stores import Stores
from windfall.jobs.staging import Channel

#: What is made of compressed bytes at a time.
_OPENED_BYTES = 4 << 20
_MANIFEST_BYTES = 1 << 30
_MAGIC = 0xCED7230A
_HEADER = struct.Struct("<II")
#: The length has 29 bits; the three above say which part of a record it is.
_MOST_BYTES = (1 << 29) - 4
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_GZIP = 31


def epoch(channel: Channel, stores: Stores, number: int) -> Iterator[bytes]:
    """Yield all that a channel's pipe says in one epoch."""
    if channel.kind == "AugmentedManifestFile":
        yield from _augmented(channel, stores, number)
        return
    pieces = pieces_of(channel, stores)
    _shuffle(pieces, channel, number)
    for piece in pieces:
        content = ranges(piece)
        if channel.compression == "Gzip":
            content = _unzipped(content, piece.key)
        if channel.record_wrapper == "RecordIO":
            yield from record(content)
        else:
            yield from content


def record(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Frame one record in RecordIO: magic, length, content, padding to four bytes; a very long one in parts."""
    held, is_first = bytearray(), True
    for piece in pieces:
        held += piece
        while len(held) > _MOST_BYTES:
            yield from _part(_FIRST if is_first else _MIDDLE, bytes(held[:_MOST_BYTES]))
            del held[:_MOST_BYTES]
            is_first = False
    yield from _part(_WHOLE if is_first else _LAST, bytes(held))


def _part(kind: int, content: bytes) -> Iterator[bytes]:
    yield _HEADER.pack(_MAGIC, kind << 29 | len(content))
    yield content
    yield bytes(-len(content) % 4)


def _shuffle(pieces: list[Piece] | list[bytes], channel: Channel, number: int) -> None:
    if channel.shuffle_seed is not None:
        random.Random(channel.shuffle_seed + number).shuffle(pieces)


def _unzipped(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Decompress; several gzip members in a row are one stream, and one that ends too early is an error."""
    opener, begun = zlib.decompressobj(_GZIP), False
    try:
        for piece in pieces:
            content = b""
            # What is small may become a thousand times as much; of a full portion, some may be left inside.
            while piece or len(content) == _OPENED_BYTES:
                begun = True
                if content := opener.decompress(piece, _OPENED_BYTES):
                    yield content
                piece = opener.unconsumed_tail
                if opener.eof:
                    piece, content = opener.unused_data, b""
                    opener, begun = zlib.decompressobj(_GZIP), False
    except zlib.error as error:
        raise CannotBring(f"{name} is not compressed by gzip: {error}") from None
    if begun:
        raise CannotBring(f"{name} is cut off: the end of its gzip stream is missing")


def _augmented(channel: Channel, stores: Stores, number: int) -> Iterator[bytes]:
    part, parts = channel.part
    manifest = manifest_of(channel, stores, _MANIFEST_BYTES)
    lines = [line for line in manifest.splitlines() if line.strip()][part::parts]
    _shuffle(lines, channel, number)
    for line in lines:
        for content in _attributes(channel, _parsed(line, channel), stores):
            yield from record(content) if channel.record_wrapper == "RecordIO" else content


def _parsed(line: bytes, channel: Channel) -> dict[str, object]:
    try:
        parsed = json.loads(line.decode())
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise CannotBring(f"channel {channel.name}: a line of {channel.uri} is not a JSON object")
    return parsed


def _attributes(channel: Channel, line: dict[str, object], stores: Stores) -> Iterator[Iterable[bytes]]:
    for attribute in channel.attributes:
        if attribute not in line:
            raise CannotBring(f"channel {channel.name}: a line of {channel.uri} has no {attribute}")
        value = line[attribute]
        if attribute.endswith("-ref"):
            store, name = stores.open_object(named_in_file(str(value), channel, stores))
            yield ranges(Piece(store, name, name))
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            yield [encoded(text, channel)]
