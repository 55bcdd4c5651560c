"""The inputs of a training job that are there as files when it starts: File mode, and FastFile, which is served
the same way here because nothing is mounted.

Decides which objects a channel names and where each becomes a file. Must not know attempts or how a store is
opened. What a manifest names is text that somebody has stored: it is s3:// alone, and checked like the request's own.
"""

from __future__ import annotations

import codecs
import json
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.stores import Stores
from windfall.agent.courier.tree import Tree
from windfall.agent.places import INPUT
from windfall.jobs.staging import Channel
from windfall.objects.port import Entry, ObjectStore

_AT_ONCE, _ASKED_FOR = 8, 256
_RANGE_BYTES = 4 << 20
#: Names of about two million objects.
_MANIFEST_BYTES = 64 << 20


class Piece(NamedTuple):
    """One object of a channel."""

    store: ObjectStore
    key: str
    #: The file that it becomes, below the channel's directory.
    name: str


def pieces_of(channel: Channel, stores: Stores) -> list[Piece]:
    """Return the objects that a channel names, in the order of their names; CannotBring where there are none.

    Of a channel that is divided among nodes only this one's: one object in N.
    """
    number, parts = channel.part
    if channel.kind == "ManifestFile":
        return list(_of_manifest(channel, stores))[number::parts]
    found = list(_below(channel.uri, stores))
    if not found:
        raise CannotBring(
            f'Data download failed for channel {channel.name}: no objects are found under "{channel.uri}"'
        )
    return found[number::parts]


def _below(uri: str, stores: Stores) -> Iterator[Piece]:
    """The objects below a prefix; or the one object of that very name; or those whose names begin so, as S3 has it."""
    store = stores.open(uri.rstrip("/"))
    entries = _plain(store.list())
    if entries:
        yield from (Piece(store, entry.key, entry.key) for entry in entries)
        return
    above, _, name = uri.rpartition("/")
    if not name or above.endswith(("/", ":")):
        return
    store, _ = stores.open_object(uri)
    if store.head(name) is not None:
        yield Piece(store, name, name)
        return
    if not stores.may(above):
        return  # Names that begin so are others' to read.
    for entry in _plain(store.list()):
        if entry.key.startswith(name):
            yield Piece(store, entry.key, entry.key)


def _of_manifest(channel: Channel, stores: Stores) -> Iterator[Piece]:
    uri = channel.uri
    try:
        lines = json.loads(manifest_of(channel, stores, _MANIFEST_BYTES).decode())
        prefix, keys = lines[0]["prefix"], lines[1:]
        if not all(isinstance(text, str) for text in (prefix, *keys)):
            raise TypeError
        for text in (prefix, *keys):
            text.encode()  # JSON can spell half a character, which names nothing.
    except (ValueError, LookupError, TypeError, RecursionError):
        raise CannotBring(
            f'{uri} is not a manifest: it must read [{{"prefix": "s3://..."}}, "key", ...]'
        ) from None
    # The prefix is one of names, so it need not end at a slash.
    root, _, begin = named_in_file(prefix, channel, stores).rpartition("/")
    store = stores.open_some(root, (begin + key for key in keys))
    for key in keys:
        yield Piece(store, begin + key, key)


def manifest_of(channel: Channel, stores: Stores, most_bytes: int) -> bytes:
    """Return a channel's manifest, without a mark of its encoding; CannotBring where it is larger than `most_bytes`."""
    store, name = stores.open_object(channel.uri)
    content = bytearray()
    for part in ranges(Piece(store, name, name)):
        content += part
        if len(content) > most_bytes:
            raise CannotBring(
                f"channel {channel.name}: {channel.uri} is larger than {most_bytes >> 20} MiB, which is the most that a"
                " manifest may have; divide it among several channels"
            )
    return bytes(content).removeprefix(codecs.BOM_UTF8)


def ranges(piece: Piece) -> Iterator[bytes]:
    """Yield an object in pieces that fit into memory."""
    start = 0
    while True:
        content = piece.store.get_range(piece.key, start, start + _RANGE_BYTES)
        if content:
            yield content
        if len(content) < _RANGE_BYTES:
            return
        start += len(content)


def named_in_file(uri: str, channel: Channel, stores: Stores) -> str:
    """Return where an object is that a manifest names; CannotBring unless it is named by its bucket."""
    if not uri.startswith("s3://"):
        raise CannotBring(
            f'channel {channel.name}: {channel.uri} names "{uri}"; a manifest may name s3:// objects alone'
        )
    encoded(uri, channel)
    return stores.access.resolved(uri)


def encoded(text: str, channel: Channel) -> bytes:
    """Return what a manifest says as bytes; CannotBring for half a character, which JSON can spell."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise CannotBring(
            f"channel {channel.name}: {channel.uri} has a text that is not valid Unicode: {text[:100]!a}"
        ) from None


def _plain(entries: Iterator[Entry]) -> list[Entry]:
    return sorted((entry for entry in entries if not entry.key.endswith("/")), key=lambda entry: entry.key)


def bring_channel(
    channel: Channel, stores: Stores, tree: Tree, incoming: str, base: str | None = None
) -> None:
    """Make every object of a channel a file of the job; it comes by way of a directory that the job cannot write.

    `base` is a directory of its own, relative to the attempt's; None means that of its name.
    """
    base = base or f"{INPUT}/{checked_name(channel.name)}"
    tree.make(base)
    pieces = pieces_of(channel, stores)
    for piece in pieces:
        above = os.path.dirname(_checked_path(piece.name))
        if above:
            tree.give_directory(f"{base}/{above}")

    def bring(piece: Piece) -> None:
        stores.check()
        path = f"{incoming}/{secrets.token_hex(8)}"
        try:
            piece.store.get_file(piece.key, path)
            tree.take_in(path, f"{base}/{piece.name}")
        except (IsADirectoryError, NotADirectoryError):
            raise CannotBring(
                f"channel {channel.name}: {piece.name} is both an object and the prefix of others"
            ) from None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # Not all at once: there may be millions, and after a failure those that are asked for still come.
        for at in range(0, len(pieces), _ASKED_FOR):
            for done in [pool.submit(bring, piece) for piece in pieces[at : at + _ASKED_FOR]]:
                done.result()


def checked_name(name: str) -> str:
    """Return the name of a channel if it can name a file."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise CannotBring(f'"{name}" cannot be the name of a channel')
    return name


def _checked_path(name: str) -> str:
    if not name or any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise CannotBring(f'the object "{name}" cannot become a file')
    return name
