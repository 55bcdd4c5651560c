"""Timestamps on the wire. For handlers a modelled timestamp is a number of seconds since the epoch.

Decides how the three forms of AWS (seconds, ISO 8601, RFC 822) are read and written. Must not know shapes.
Batch and CloudWatch Logs use plain integers of milliseconds in most places; those are not timestamps in this
sense.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any


def parse_timestamp(value: Any) -> float | None:
    """Return seconds since the epoch for a number or a text in any of the three forms, else None."""
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, int | float):
            seconds = float(value)
        elif isinstance(value, str):
            seconds = _parse_text(value)
        else:
            return None
        datetime.fromtimestamp(seconds, UTC)  # refuses what no calendar has
    except (ValueError, OverflowError, OSError):
        return None
    return seconds


def _parse_text(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        moment = _parse_date(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(seconds):
        raise ValueError(text)
    return seconds


def _parse_date(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return parsedate_to_datetime(text)


def dump_timestamp(value: Any, form: str) -> float | str:
    """Write seconds since the epoch, or an aware datetime, in the given form of AWS's models."""
    seconds = value.timestamp() if isinstance(value, datetime) else float(value)
    if form == "unixTimestamp":
        return round(seconds, 3)
    moment = datetime.fromtimestamp(seconds, UTC)
    if form == "rfc822":
        return format_datetime(moment, usegmt=True)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
