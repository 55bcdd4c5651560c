"""One output of nodes on several machines: each machine stores its part, and the one that finds all makes one of them.

Parts lie beside the output, below `NAME.parts/`, until they are one; where a machine is lost they stay there. A part
says how many nodes are in it, so that it is certain when all are there. Archives are joined without being unpacked:
what they hold never becomes a path here. Must not know processes.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterator

from windfall.agent.courier.archives import packed
from windfall.agent.courier.stores import Stores
from windfall.jobs.staging import Output
from windfall.objects.errors import NotFound
from windfall.objects.port import ObjectStore

#: As archives.py packs.
_LEVEL = 1


def store_part(output: Output, stores: Stores, whole: int, part: tuple[str, int], scratch: str) -> None:
    """Store what the nodes of this machine have left, and the output itself if all nodes of the try are there now.

    `part` is the machine's name within the try, and how many of its nodes are in the open directory.
    """
    store = open_parts(output, stores)
    machine, nodes = part
    of_try = hashlib.sha256(str(output.merged_as).encode()).hexdigest()[:16]
    store.put_pieces(f"{of_try}/{machine}-{nodes:04}.tar.gz", packed(whole))
    parts = _newest(store, of_try)
    if sum(nodes for _, nodes in parts.values()) < output.merged_of:
        return
    target, name = stores.open_object(output.uri, write=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="meeting-") as directory:
        try:
            paths = list(_brought(store, [key for key, _ in parts.values()], directory))
        except NotFound:
            return  # Another machine has found all parts too, and has stored the output.
        path = os.path.join(directory, "whole")
        join(paths, path)
        target.put_file(name, path)
    store.delete([entry.key for entry in store.list()])


def open_parts(output: Output, stores: Stores) -> ObjectStore:
    """Open what holds the parts of an output."""
    return stores.open(f"{output.uri}.parts", write=True)


def _newest(store: ObjectStore, of_try: str) -> dict[str, tuple[str, int]]:
    """The newest part of each machine and how many nodes it has, in the order in which they were stored."""
    parts: dict[str, tuple[str, int]] = {}
    for entry in sorted(store.list(of_try), key=lambda entry: (entry.changed_at, entry.key)):
        machine, _, nodes = entry.key.rpartition("/")[2].removesuffix(".tar.gz").rpartition("-")
        if machine and nodes.isdecimal() and int(nodes) >= parts.get(machine, ("", 0))[1]:
            parts.pop(machine, None)
            parts[machine] = (entry.key, int(nodes))
    return parts


def _brought(store: ObjectStore, keys: list[str], directory: str) -> Iterator[str]:
    for number, key in enumerate(keys):
        path = os.path.join(directory, str(number))
        store.get_file(key, path)
        yield path


def join(paths: list[str], target: str) -> None:
    """Write one archive with the members of several; of those with one name the last stands."""
    last: dict[str, int] = {}
    for number, path in enumerate(paths):
        with tarfile.open(path, "r:gz") as archive:
            last |= dict.fromkeys(archive.getnames(), number)
    with tarfile.open(target, "w:gz", compresslevel=_LEVEL) as whole:
        for number, path in enumerate(paths):
            with tarfile.open(path, "r:gz") as archive:
                for member in archive:
                    if last[member.name] == number:
                        whole.addfile(member, archive.extractfile(member) if member.isreg() else None)
