"""How a directory of ours appears in a sandbox at a path that the host does not have.

bubblewrap makes missing mount points, but on the host. So where the path is missing, the nearest directory
above it is covered by an empty one in which everything that was there is shown again; only the sandbox sees the
cover. Must not know attempts; it reads directories and builds options.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

TMP = "/tmp"
WHOLE_ROOT = ("--dev-bind", "/", "/")


class Shown(NamedTuple):
    """A file or directory of the host's /tmp that the job sees at the same path."""

    path: str
    #: `device:inode`.
    identity: str = ""
    #: What the path leads to, where it is a symbolic link; the job follows it by itself.
    target: str | None = None


class Mounts(NamedTuple):
    """Options in the order in which bubblewrap must meet them."""

    root: tuple[str, ...]
    #: Before anything is hidden, because it shows again what was there.
    covers: tuple[str, ...]
    #: After everything else.
    binds: tuple[str, ...]


def plan_mounts(binds: Iterable[tuple[str, str]], private: Sequence[str]) -> Mounts:
    """Return how each (real, seen) pair is shown; what is below a private place of the sandbox needs no cover."""
    root: tuple[str, ...] = WHOLE_ROOT
    covers: list[str] = []
    shown: list[str] = []
    covered: set[str] = set()
    for real, seen in binds:
        above = _nearest(seen)
        # Those between would be made for root alone.
        shown += [*_directories(above, seen), "--bind", real, seen]
        if above == seen or any(is_within(seen, place) for place in private):
            continue
        if above == "/":
            # Nothing covers the root itself: it is put together from its parts instead.
            root = tuple(_shown_again("/"))
        elif above not in covered:
            covered.add(above)
            covers += ["--tmpfs", above, *_shown_again(above)]
    return Mounts(root, tuple(covers), tuple(shown))


def is_within(path: str, ancestor: str) -> bool:
    """Tell whether a path is a directory or something below it."""
    ancestor = os.path.normpath(ancestor)
    return os.path.commonpath([os.path.normpath(path), ancestor]) == ancestor


def _nearest(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _directories(above: str, path: str) -> list[str]:
    options: list[str] = []
    parts = os.path.relpath(os.path.dirname(path), above).split("/") if above != path else []
    for part in parts:
        if part != ".":
            above = os.path.join(above, part)
            options += ["--dir", above]
    return options


def _shown_again(directory: str) -> list[str]:
    options: list[str] = []
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        else:
            options += ["--dev-bind", path, path]
    return options
