"""Which files a process was still writing when it was killed.

Decides by times alone, since the process is gone: a file whose last change was a write, just before the end, may be
half of what it was to become, and a picture with it would be worse than the committed one before it. A file that was
renamed or given its mode after its last write was finished, and so is a checkpoint of the library, which appears as a
whole. Must not know about stores.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from windfall.agent.sync.scanning import Look

_LIBRARY_MANIFEST = re.compile(r"(.*/)?step-\d{9,}/manifest\.json\Z")
#: A program that writes in place hardly pauses for longer between two writes of one file.
PAUSE_MS = 1000


def half_written(look: Look, changed: Collection[str], killed_at: int) -> list[str]:
    """Changed files that may be torn, for a process that was killed at this moment (milliseconds)."""
    whole = tuple(path.removesuffix("manifest.json") for path in look.files if _LIBRARY_MANIFEST.match(path))
    since_ns = (killed_at - PAUSE_MS) * 1_000_000
    return [
        path
        for path in changed
        if look.files[path].stamp.mtime_ns >= since_ns
        and look.files[path].stamp.ctime_ns <= look.files[path].stamp.mtime_ns
        and not path.startswith(whole)
    ]
