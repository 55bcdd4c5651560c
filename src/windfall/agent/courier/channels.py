"""The inputs of a training job that are there as files when it starts: File mode, and FastFile, which is served
the same way here because nothing is mounted.

Decides which objects a channel names and where each becomes a file. Must not know attempts or how a store is
opened. What a manifest names is text that somebody has stored: it is s3:// alone, and checked like the request's own.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.stores import Stores
from windfall.agent.courier.tree import Tree
from windfall.jobs.staging import Channel
from windfall.objects.port import Entry, ObjectStore

INPUT = "input/data"
_AT_ONCE = 8


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
    manifest, name = stores.open_object(uri)
    try:
        lines = json.loads(manifest.get(name))
        prefix, keys = lines[0]["prefix"], [str(key) for key in lines[1:]]
    except (ValueError, LookupError, TypeError):
        raise CannotBring(
            f'{uri} is not a manifest: it must read [{{"prefix": "s3://..."}}, "key", ...]'
        ) from None
    # The prefix is one of names, so it need not end at a slash.
    root, _, begin = named_in_file(str(prefix), channel, stores).rpartition("/")
    store = stores.open_some(root, (begin + key for key in keys))
    for key in keys:
        yield Piece(store, begin + key, key)


def named_in_file(uri: str, channel: Channel, stores: Stores) -> str:
    """Return where an object is that a manifest names; CannotBring unless it is named by its bucket."""
    if not uri.startswith("s3://"):
        raise CannotBring(
            f'channel {channel.name}: {channel.uri} names "{uri}"; a manifest may name s3:// objects alone'
        )
    return stores.access.resolved(uri)


def _plain(entries: Iterator[Entry]) -> list[Entry]:
    return sorted((entry for entry in entries if not entry.key.endswith("/")), key=lambda entry: entry.key)


def bring_channel(channel: Channel, stores: Stores, tree: Tree, incoming: str) -> None:
    """Make every object of a channel a file of the job; it comes by way of a directory that the job cannot write."""
    base = f"{INPUT}/{checked_name(channel.name)}"
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
        for done in [pool.submit(bring, piece) for piece in pieces]:
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
