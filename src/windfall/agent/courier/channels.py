"""The inputs of a training job that are there as files when it starts: File mode, and FastFile, which is served
the same way here because nothing is mounted.

Decides which objects a channel names and where each becomes a file. Must not know attempts or how a store is
opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from windfall.agent.courier.errors import CannotBring
from windfall.agent.courier.stores import Opener, split_object
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


def pieces_of(channel: Channel, opener: Opener) -> list[Piece]:
    """Return the objects that a channel names, in the order of their names; CannotBring where there are none.

    Of a channel that is divided among nodes only this one's: every so many objects one.
    """
    number, parts = channel.part
    if channel.kind == "ManifestFile":
        return list(_of_manifest(channel.uri, opener))[number::parts]
    found = list(_below(channel.uri, opener))
    if not found:
        raise CannotBring(
            f'Data download failed for channel {channel.name}: no objects are found under "{channel.uri}"'
        )
    return found[number::parts]


def _below(uri: str, opener: Opener) -> Iterator[Piece]:
    """The objects below a prefix; or the one object of that very name; or those whose names begin so, as S3 has it."""
    store = opener(uri.rstrip("/"))
    entries = _plain(store.list())
    if entries:
        yield from (Piece(store, entry.key, entry.key) for entry in entries)
        return
    above, name = split_object(uri)
    if not name or above.endswith(("/", ":")):
        return
    store = opener(above)
    if store.head(name) is not None:
        yield Piece(store, name, name)
        return
    for entry in _plain(store.list()):
        if entry.key.startswith(name):
            yield Piece(store, entry.key, entry.key)


def _of_manifest(uri: str, opener: Opener) -> Iterator[Piece]:
    above, name = split_object(uri)
    try:
        lines = json.loads(opener(above).get(name))
        prefix, keys = lines[0]["prefix"], [str(key) for key in lines[1:]]
    except (ValueError, LookupError, TypeError):
        raise CannotBring(
            f'{uri} is no manifest: it must read [{{"prefix": "s3://..."}}, "key", ...]'
        ) from None
    # The prefix is one of names, so it need not end at a slash.
    root, begin = split_object(str(prefix))
    store = opener(root)
    for key in keys:
        yield Piece(store, begin + key, key)


def _plain(entries: Iterator[Entry]) -> list[Entry]:
    return sorted((entry for entry in entries if not entry.key.endswith("/")), key=lambda entry: entry.key)


def bring_channel(channel: Channel, opener: Opener, tree: Tree, check: Callable[[], None]) -> None:
    """Make every object of a channel a file of the job."""
    base = f"{INPUT}/{checked_name(channel.name)}"
    tree.make(base)
    pieces = pieces_of(channel, opener)
    for piece in pieces:
        above = os.path.dirname(_checked_path(piece.name))
        if above:
            tree.give_directory(f"{base}/{above}")

    def bring(piece: Piece) -> None:
        check()
        path = f"{tree.root}/{base}/{piece.name}"
        try:
            piece.store.get_file(piece.key, path)
            if tree.owner is not None:
                os.chown(path, *tree.owner, follow_symlinks=False)
            os.chmod(path, 0o644)
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
