"""Flexible time windows: how long after its due time a tick is done.

Decides an offset that looks random, and is the same at every reckoning: a daemon that was killed and started again
comes to the same time, and schedules that are due together spread over the window. Must not know the clock.
"""

from __future__ import annotations

import hashlib

MINUTE_MS = 60_000


def window_offset_ms(key: str, due_at: int, window_minutes: int | None) -> int:
    """Milliseconds from the due time to the tick, below the window's length; 0 without a window."""
    if window_minutes is None:
        return 0
    digest = hashlib.blake2b(f"{key}@{due_at}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (window_minutes * MINUTE_MS)
