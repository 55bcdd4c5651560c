"""The bytes that go through a training job's pipes, epoch by epoch.

Decides the order of the objects, decompression, and the framing of records. Must not know processes or pipes.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterator

from windfall.agent.courier.channels import Piece, named_in_file, pieces_of
from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.stores import Stores
from windfall.jobs.staging import Channel

_RANGE_BYTES = 4 << 20
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
        content = _ranges(piece)
        if channel.compression == "Gzip":
            content = _unzipped(content, piece.key)
        if channel.record_wrapper == "RecordIO":
            yield from record(b"".join(content))
        else:
            yield from content


def record(content: bytes) -> Iterator[bytes]:
    """Frame one record in RecordIO: magic, length, content, padding to four bytes; a very long one in parts."""
    parts = [content[at : at + _MOST_BYTES] for at in range(0, len(content), _MOST_BYTES)] or [b""]
    for index, part in enumerate(parts):
        kind = _MIDDLE
        if len(parts) == 1:
            kind = _WHOLE
        elif index == 0:
            kind = _FIRST
        elif index == len(parts) - 1:
            kind = _LAST
        yield _HEADER.pack(_MAGIC, kind << 29 | len(part)) + part + bytes(-len(part) % 4)


def _shuffle(pieces: list[Piece] | list[bytes], channel: Channel, number: int) -> None:
    if channel.shuffle_seed is not None:
        random.Random(channel.shuffle_seed + number).shuffle(pieces)


def _ranges(piece: Piece) -> Iterator[bytes]:
    start = 0
    while True:
        content = piece.store.get_range(piece.key, start, start + _RANGE_BYTES)
        if content:
            yield content
        if len(content) < _RANGE_BYTES:
            return
        start += len(content)


def _unzipped(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Decompress; several gzip members in a row are one stream, and one that ends too early is an error."""
    opener = zlib.decompressobj(_GZIP)
    begun = False
    try:
        for piece in pieces:
            while piece:
                begun = True
                if content := opener.decompress(piece):
                    yield content
                piece = opener.unused_data
                if opener.eof:
                    opener, begun = zlib.decompressobj(_GZIP), False
    except zlib.error as error:
        raise CannotBring(f"{name} is not compressed by gzip: {error}") from None
    if begun:
        raise CannotBring(f"{name} is cut off: the end of its gzip stream is missing")


def _augmented(channel: Channel, stores: Stores, number: int) -> Iterator[bytes]:
    store, name = stores.open_object(channel.uri)
    part, parts = channel.part
    lines = [line for line in store.get(name).splitlines() if line.strip()][part::parts]
    _shuffle(lines, channel, number)
    for line in lines:
        for content in _attributes(channel, json.loads(line), stores):
            if channel.record_wrapper == "RecordIO":
                yield from record(content)
            else:
                yield content


def _attributes(channel: Channel, line: dict[str, object], stores: Stores) -> Iterator[bytes]:
    for attribute in channel.attributes:
        if attribute not in line:
            raise CannotBring(f"channel {channel.name}: a line of {channel.uri} has no {attribute}")
        value = line[attribute]
        if attribute.endswith("-ref"):
            store, name = stores.open_object(named_in_file(str(value), channel, stores))
            yield store.get(name)
        else:
            yield value.encode() if isinstance(value, str) else json.dumps(value).encode()
