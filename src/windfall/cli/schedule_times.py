"""When a schedule runs, as people write it: `--every 6h`, `--cron '0 2 * * 1-5'`, `--at '2027-01-04 02:00'`.

Decides how that becomes an expression of EventBridge Scheduler, whose cron has six fields and counts weekdays from
Sunday. Must not talk to the daemon: the daemon decides whether the expression makes sense.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from windfall.cli.errors import BadUsage

_SPAN = re.compile(r"([1-9][0-9]{0,5})(m|h|d|w)")
_UNITS = {"m": ("minute", 1), "h": ("hour", 1), "d": ("day", 1), "w": ("day", 7)}
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def expression(every: str | None, cron: str | None, at: str | None) -> str:
    """The expression of exactly one of the three options."""
    given = [option for option in (every, cron, at) if option is not None]
    if len(given) != 1:
        raise BadUsage(
            "say when it runs with one of --every 6h, --cron '0 2 * * 1-5' and --at '2027-01-04 02:00'"
        )
    if every is not None:
        return _rate(every)
    return _cron(cron) if cron is not None else _at(str(at))


def _rate(text: str) -> str:
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise BadUsage(f"--every {text!r} is not a time span; write it as 30m, 6h, 1d or 2w")
    unit, times = _UNITS[match[2]]
    number = int(match[1]) * times
    return f"rate({number} {unit}{'' if number == 1 else 's'})"


def _at(text: str) -> str:
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise BadUsage(f"--at {text!r} is not a time; write it as '2027-01-04 02:00'")
    return f"at({match[1]}T{match[2]}{match[3] or ':00'})"


def _cron(text: str) -> str:
    fields = text.strip().removeprefix("cron(").removesuffix(")").split()
    if len(fields) == 6:
        return f"cron({' '.join(fields)})"
    if len(fields) != 5:
        raise BadUsage(
            f"--cron {text!r} has {len(fields)} fields; write five, as in a crontab (minute hour day month weekday)"
        )
    minute, hour, day, month, weekday = fields
    if day != "*" and weekday != "*":
        raise BadUsage(
            f"--cron {text!r} names days of the month and of the week; a crontab means either of them, which takes two"
            " schedules here"
        )
    if weekday == "*":
        return f"cron({minute} {hour} {day} {month} ? *)"
    return f"cron({minute} {hour} ? {month} {_weekdays(weekday, text)} *)"


def _weekdays(field: str, whole: str) -> str:
    """The weekdays of a crontab, 0 or 7 being Sunday, as names; those that are names already stay."""
    if not re.search(r"[0-9]", field):
        return field.upper()
    days: set[int] = set()
    for part in field.split(","):
        match = re.fullmatch(r"(?:\*|([0-7])(?:-([0-7]))?)(?:/([1-7]))?", part)
        if match is None:
            raise BadUsage(
                f"--cron {whole!r}: {part!r} is not a weekday; write 0-7 (0 and 7 are Sunday) or MON-FRI"
            )
        first = int(match[1] or 0)
        last = int(match[2]) if match[2] else 6 if match[1] is None or match[3] else first
        days |= {day % 7 for day in range(first, last + 1, int(match[3] or 1))}
    if not days:
        raise BadUsage(f"--cron {whole!r}: {field!r} names no weekday; the first must not be after the last")
    return ",".join(_DAYS[day] for day in sorted(days))


def local_timezone(environment: Mapping[str, str] = os.environ, root: Path = Path("/etc")) -> str:
    """The name of this host's time zone, or UTC where it has none."""
    named = environment.get("TZ", "").lstrip(":")
    if "/" in named and not named.startswith("/"):
        return named
    link = root / "localtime"
    if link.is_symlink():
        _, separator, name = str(link.readlink()).partition("zoneinfo/")
        if separator and "/" in name:
            return name
    return "UTC"
