"""A deadline as people write it: a time of this host's clock, or how long from now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from windfall.cli.errors import BadUsage

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"(?:(?P<day>[a-z]{3,9})\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})")
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?\s*[smhd]\s*)+", re.IGNORECASE)


def read_deadline(text: str, now: datetime) -> str:
    """The value of the tag: spans stay as they are, times become UTC. `now` is aware, in the zone that is meant."""
    word = text.strip()
    if _SPAN.fullmatch(word):
        return word.replace(" ", "").lower()
    moment = _clock(word.lower(), now) or _date(word, now)
    if moment is None:
        raise BadUsage(
            f"--deadline {text!r} is not a time; write it as 8h, 18:30, 'fri 08:00', '2026-11-20 08:00' or"
            " 2026-11-20T08:00:00Z"
        )
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _clock(word: str, now: datetime) -> datetime | None:
    """The next time at which a clock shows this, perhaps on a day of the week."""
    match = _CLOCK.fullmatch(word)
    if match is None or int(match["hour"]) > 23 or int(match["minute"]) > 59:
        return None
    ahead = 0
    if match["day"] is not None:
        weekday = next((number for number, day in enumerate(_DAYS) if day == match["day"][:3]), None)
        if weekday is None:
            return None
        ahead = (weekday - now.weekday()) % 7
    # Of the wall clock: an offset that changes on the way is the one of that day.
    wall = now.replace(tzinfo=None) + timedelta(days=ahead)
    moment = wall.replace(hour=int(match["hour"]), minute=int(match["minute"]), second=0, microsecond=0)
    if _aware(moment, now) <= now:
        moment += timedelta(days=7 if match["day"] is not None else 1)
    return _aware(moment, now)


def _date(word: str, now: datetime) -> datetime | None:
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else _aware(moment, now)


def _aware(wall: datetime, now: datetime) -> datetime:
    return wall.replace(tzinfo=now.tzinfo)
