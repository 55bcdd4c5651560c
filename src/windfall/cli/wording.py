"""Times, amounts and devices as people read them: local, relative where that is short.

Pure: what time it is now is an argument. All times are milliseconds since the epoch.
"""

from __future__ import annotations

from datetime import UTC, datetime

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def ago(at: int | None, now: int) -> str:
    """How long ago a time was: `12 s ago`, `3 min ago`; a date when it is more than a day."""
    if at is None:
        return ""
    passed = now - at
    if passed < _SECOND:
        return "just now"
    if passed >= _DAY:
        return moment(at)
    return f"{_largest_unit(passed)} ago"


def ahead(at: int, now: int) -> str:
    """How far ahead a time is: `in 3 min`; the time itself when it is more than a day."""
    if at - now >= _DAY:
        return moment(at)
    return "now" if at - now < _SECOND else f"in {_largest_unit(at - now)}"


def moment(at: int | None) -> str:
    """A time in the zone of the user, to the second."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock(at: int) -> str:
    """The time of day in the zone of the user."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%H:%M:%S")


def duration(span: int | None) -> str:
    """A span with its two largest units: `0.4 s`, `12 s`, `3 min 10 s`, `2 h 5 min`."""
    if span is None:
        return ""
    if span < 10 * _SECOND:
        return f"{max(span, 0) / _SECOND:.1f} s"
    if span < _MINUTE:
        return f"{span // _SECOND} s"
    if span < _HOUR:
        return _two(span // _MINUTE, "min", span % _MINUTE // _SECOND, "s")
    if span < _DAY:
        return _two(span // _HOUR, "h", span % _HOUR // _MINUTE, "min")
    return _two(span // _DAY, "d", span % _DAY // _HOUR, "h")


def memory(mib: int | None) -> str:
    """An amount of memory: MiB below ten GiB, GiB above."""
    if mib is None:
        return ""
    return f"{mib:,} MiB" if mib < 10 * 1024 else f"{mib / 1024:,.1f} GiB".replace(".0 ", " ")


def amount(number: float) -> str:
    """A count of vCPUs without a tail of zeros."""
    return f"{number:,.2f}".rstrip("0").rstrip(".")


def counted(number: float, noun: str) -> str:
    """A number with its noun, which takes an s unless there is one of it."""
    return f"{amount(number)} {noun}{'' if number == 1 else 's'}"


def gpu_name(name: str, *, simulated: bool) -> str:
    """The name of a GPU, which says so when it is simulated."""
    return f"{name} (simulated)" if simulated and "simulated" not in name.lower() else name


def _largest_unit(span: int) -> str:
    if span < _MINUTE:
        return f"{span // _SECOND} s"
    if span < _HOUR:
        return f"{span // _MINUTE} min"
    return f"{span // _HOUR} h"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large:,} {large_unit} {small} {small_unit}" if small else f"{large:,} {large_unit}"
