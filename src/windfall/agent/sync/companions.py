"""Files that are one thing together: a SQLite database with its log and its journal.

A database without the log that belongs to it, or with the log of another moment, is damaged. Decides by names alone.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection

_ENDINGS = ("-wal", "-shm", "-journal")


def stem_of(path: str) -> str:
    """The name of the database that a file would belong to; its own for all other files."""
    for ending in _ENDINGS:
        if path.endswith(ending) and len(path) > len(ending):
            return path[: -len(ending)]
    return path


def databases(paths: Collection[str]) -> set[str]:
    """The names of databases of which there is more than one file."""
    return {path[: -len(ending)] for path in paths for ending in _ENDINGS if path.endswith(ending)}


def with_companions(paths: Collection[str], of: Collection[str]) -> set[str]:
    """Some paths, and those of `of` that belong together with one of them."""
    if not paths:
        return set()
    stems = {stem_of(path) for path in paths}
    return {*paths, *(path for path in of if stem_of(path) in stems)}
