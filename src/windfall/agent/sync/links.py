"""Symbolic links inside of a checkpoint directory, such as `latest -> epoch-2`.

Decides which links may be kept: those that cannot lead out of the directory, whatever else is in it. A target goes up
first and then only down; with every other link of the directory being so too, no way leads out. An absolute target
inside of the directory is kept as a relative one, because the next attempt has its directory elsewhere. Pure.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """What a link says, and when it was made."""

    target: str
    mtime_ns: int


def kept_target(path: str, target: str, known_as: Collection[str] = ()) -> str | None:
    """The target to keep for a link at a path of the directory; None for one that may lead out of it."""
    if target.startswith("/"):
        for place in known_as:
            if target == place or target.startswith(f"{place}/"):
                inside = target[len(place) :].strip("/")
                if ".." in inside.split("/"):
                    return None
                target = posixpath.relpath(inside or ".", posixpath.dirname(path) or ".")
                break
    return target if stays_inside(path, target) else None


def stays_inside(path: object, target: object) -> bool:
    """Whether a link at a path cannot lead out of the directory that the path is relative to."""
    if not isinstance(path, str) or not isinstance(target, str):
        return False
    if not target or target.startswith("/") or "\0" in target:
        return False
    steps = [step for step in target.split("/") if step not in ("", ".")]
    up = 0
    while up < len(steps) and steps[up] == "..":
        up += 1
    return ".." not in steps[up:] and up <= path.count("/")


def led_to(path: str, target: str) -> str:
    """Where a link that stays inside leads, as a path of the directory; empty for the directory itself."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return "" if joined == "." else joined
