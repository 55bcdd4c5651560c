"""Moments that people write: a time with its zone, or how long from now."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
#: A hundred years: more is a slip of the pen.
_MOST_S = 100 * 365 * 86_400


def duration_s(text: str) -> float | None:
    """The seconds of `90m`, `8h` or `1d12h`; None for anything else."""
    word = text.strip().lower().replace(" ", "")
    if len(word) > 40 or not _DURATION.fullmatch(word):
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(word))
    return seconds if 0 < seconds <= _MOST_S else None


def instant_ms(text: str) -> int | None:
    """The moment of `2026-11-20T08:00:00Z`, in milliseconds since the epoch; None for anything else."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
