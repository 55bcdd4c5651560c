"""Which days of a month a cron expression means: numbers, `L`, `W`, weekdays, `6L`, `2#1`.

Decides by the calendar alone. Must not know how these are written; cron_fields.py reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

SUNDAY, FRIDAY, SATURDAY = 1, 6, 7
_WEEK = 7


def aws_weekday(day: date) -> int:
    """The number that AWS gives a weekday: 1 is Sunday, 7 is Saturday."""
    return day.isoweekday() % _WEEK + 1


def month_length(year: int, month: int) -> int:
    """How many days a month has."""
    following = date(year + month // 12, month % 12 + 1, 1)
    return (following - date(year, month, 1)).days


@dataclass(frozen=True, slots=True)
class MonthDays:
    """What the day fields of one cron expression ask for; a day counts if any of them has it."""

    #: Days by number, 1 to 31.
    numbers: frozenset[int] = frozenset()
    #: Days before the last one of the month: 0 is `L`, 3 is `L-3`.
    from_last: frozenset[int] = frozenset()
    #: `15W`: the working day nearest to a day, in the same month.
    nearest_weekday: frozenset[int] = frozenset()
    #: `LW`: the last working day.
    last_weekday: bool = False
    #: 1 (Sunday) to 7.
    weekdays: frozenset[int] = frozenset()
    #: `6L`: the last Friday.
    last_of: frozenset[int] = frozenset()
    #: `2#1`: the first Monday, as (2, 1).
    nth: frozenset[tuple[int, int]] = frozenset()

    def of(self, year: int, month: int) -> list[int]:
        """The days of a month that are meant, in order."""
        return sorted({day for day in self._meant(year, month) if day is not None})

    def _meant(self, year: int, month: int) -> Iterator[int | None]:
        length = month_length(year, month)
        first = aws_weekday(date(year, month, 1))
        yield from (day for day in self.numbers if day <= length)
        yield from (length - back for back in self.from_last if back < length)
        yield from (_nearest(day, first, length) for day in self.nearest_weekday if day <= length)
        if self.last_weekday:
            yield _nearest(length, first, length)
        for weekday in self.weekdays:
            yield from range(_first_of(weekday, first), length + 1, _WEEK)
        yield from (_nth_of(weekday, first, length, None) for weekday in self.last_of)
        yield from (_nth_of(weekday, first, length, number) for weekday, number in self.nth)


def _first_of(weekday: int, first: int) -> int:
    """The first such weekday of a month whose first day is the weekday `first`."""
    return (weekday - first) % _WEEK + 1


def _nth_of(weekday: int, first: int, length: int, number: int | None) -> int | None:
    """The nth such weekday, the last one for None; None when the month has none."""
    days = range(_first_of(weekday, first), length + 1, _WEEK)
    if number is None:
        return days[-1]
    return days[number - 1] if number <= len(days) else None


def _nearest(day: int, first: int, length: int) -> int:
    """The working day nearest to a day without leaving the month."""
    weekday = (first + day - 2) % _WEEK + 1
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == SUNDAY:
        return day + 1 if day < length else day - 2
    return day
