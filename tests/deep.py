"""Directories deeper than Python's stack and a path's longest length allow, and what removes them again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windfall.agent.walking import removed

LEVELS = 1500


@contextmanager
def deep_directory(where: Path, levels: int = LEVELS, name: str = "d") -> Iterator[str]:
    """A file `leaf` below so many directories, the highest of which is in `where`; yields their path in there."""
    at = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(levels):
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        leaf = os.open("leaf", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at)
        os.write(leaf, b"leaf")
        os.close(leaf)
    finally:
        os.close(at)
    try:
        yield "/".join([name] * levels)
    finally:
        removed(str(where / name))
