"""What a person would call a picture of a directory.

Decides a checkpoint's name, its step and the moment of its state: from the library's own directories where there are
some, else from the newest file. Must not know about stores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeGuard

from windfall.agent.sync.manifests import FileEntry

_STEP = re.compile(r"(?:.*/)?(step-(\d{9,15}))/manifest\.json\Z")
#: A manifest of the library is far smaller; something larger is somebody else's file of that name.
_LARGEST_BYTES = 64 << 20
_MOST = 2**53


@dataclass(frozen=True, slots=True)
class Title:
    """The name of a picture."""

    name: str
    state_at: int
    step: int | None = None


def title_of(files: Collection[FileEntry], read: Callable[[FileEntry], bytes | None]) -> Title:
    """The title of a picture; `read` brings a small file's content, or None where it cannot."""
    if not files:
        return Title("empty", 0)
    newest = max(files, key=lambda file: (file.mtime_ns, file.path))
    written_at = newest.mtime_ns // 1_000_000
    steps = [(int(match[2]), match[1], file) for file in files if (match := _STEP.match(file.path))]
    if not steps:
        return Title(newest.path, written_at)
    step, name, file = max(steps, key=lambda found: found[:2])
    told = _told(file, read)
    saved_at, saved_step = told.get("saved_at"), told.get("step")
    return Title(
        name,
        saved_at if _is_countable(saved_at) else file.mtime_ns // 1_000_000,
        saved_step if _is_countable(saved_step) else step,
    )


def _is_countable(told: object) -> TypeGuard[int]:
    """Whether a job's word can be a time or a step: a larger number cannot be reckoned with everywhere."""
    return isinstance(told, int) and abs(told) <= _MOST


def _told(file: FileEntry, read: Callable[[FileEntry], bytes | None]) -> dict[str, object]:
    content = read(file) if file.bytes <= _LARGEST_BYTES else None
    try:
        told = json.loads(content) if content else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
