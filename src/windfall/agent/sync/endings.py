"""Which files a process was still writing when it was killed.

Decides by times alone, since the process is gone: a file whose last change was a write, just before the end, may be
half of what it was to become, and a picture with it would be worse than the committed one before it. A file that was
renamed or given its mode after its last write was finished, and so is a checkpoint of the library, which appears as a
whole. A SQLite database is whole whenever its process ends. Must not know about stores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from windfall.agent.sync.companions import stem_of
from windfall.agent.sync.scanning import Look
from windfall.agent.sync.uploading import read_piece

_LIBRARY_MANIFEST = re.compile(r"(.*/)?step-\d{9,}/manifest\.json\Z")
#: A program that writes in place hardly pauses for longer between two writes of one file.
PAUSE_MS = 1000
_SQLITE = b"SQLite format 3\0"


def half_written(look: Look, changed: Collection[str], killed_at: int, directory: str) -> list[str]:
    """Changed files that may be torn, for a process that was killed at this moment (milliseconds)."""
    whole = tuple(path.removesuffix("manifest.json") for path in look.files if _LIBRARY_MANIFEST.match(path))
    since_ns = (killed_at - PAUSE_MS) * 1_000_000
    return [
        path
        for path in changed
        if look.files[path].stamp.mtime_ns >= since_ns
        and look.files[path].stamp.ctime_ns <= look.files[path].stamp.mtime_ns
        and not path.startswith(whole)
        and not _is_of_database(path, look, directory)
    ]


def told(torn: Sequence[str], *, written_over: bool) -> str:
    """What is said of files that may be torn."""
    others = f", and {len(torn) - 1} more" if len(torn) > 1 else ""
    stands = "what was written over since the checkpoint before stands as it was there"
    return (
        f"{torn[0]} was being written when the process was killed{others}; "
        f"{stands if written_over else 'it is left out'}"
    )


def _is_of_database(path: str, look: Look, directory: str) -> bool:
    stem = stem_of(path)
    try:
        return stem in look.files and read_piece(directory, stem, 0, len(_SQLITE)) == _SQLITE
    except OSError:
        return False
