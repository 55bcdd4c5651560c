"""Reads the six fields of a cron expression as AWS writes them, and says what is wrong in which field.

Weekdays count from 1 = Sunday to 7 = Saturday, which is neither Unix's (0 = Sunday) nor Python's numbering. Must not
know days of a calendar or times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from windfall.schedules.month_days import SATURDAY, MonthDays

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)


class FieldError(ValueError):
    """A field that cannot be read; the text says what to write instead. Never leaves this folder."""


@dataclass(frozen=True, slots=True)
class Field:
    """One of the six: what it is called, its bounds and its names."""

    name: str
    least: int
    most: int
    names: Mapping[str, int]
    #: Whether a range may pass the end and begin anew, as FRI-MON does.
    wraps: bool = True

    def numbers(self, text: str) -> tuple[int, ...]:
        """All values that a field without special words means, in order."""
        numbers: set[int] = set()
        for item in self.items(text):
            numbers.update(self.range_of(item))
        return tuple(sorted(numbers))

    def items(self, text: str) -> list[str]:
        """The parts of a list."""
        items = text.split(",")
        if not all(items):
            raise FieldError(
                f"{self.name} {text!r} has an empty entry; write values between commas, as in 1,15"
            )
        return items

    def range_of(self, item: str) -> list[int]:
        """The values of one entry: a value, `*`, a range, or either with a step."""
        span, slash, step_text = item.partition("/")
        step = self._step(step_text) if slash else 1
        if span == "*" or (slash and not span):
            first, last = self.least, self.most
        elif "-" in span:
            start, _, end = span.partition("-")
            first, last = self.number(start), self.number(end)
        else:
            first = self.number(span)
            last = self.most if slash else first
        if first <= last:
            return list(range(first, last + 1, step))
        if not self.wraps:
            raise FieldError(f"{self.name} {span} goes backwards; write {last}-{first}")
        size = self.most - self.least + 1
        return [(value - self.least) % size + self.least for value in range(first, last + size + 1, step)]

    def number(self, text: str) -> int:
        """One value, by number or by name."""
        value = self.names.get(text.upper())
        if value is None:
            value = int(text) if _NUMBER.fullmatch(text) else None
        if value is None or not self.least <= value <= self.most:
            raise FieldError(f"{self.name} {text!r} is not {self._allowed()}")
        return value

    def _step(self, text: str) -> int:
        if not _NUMBER.fullmatch(text) or int(text) == 0:
            raise FieldError(f"{self.name} has the step {text!r}; write a number above 0, as in 0/15")
        return int(text)

    def _allowed(self) -> str:
        span = f"between {self.least} and {self.most}"
        if not self.names:
            return span
        names = list(self.names)
        count = ", counted from 1 = Sunday" if self.names is _WEEKDAY_NUMBERS else ""
        return f"{span}{count}, or {names[0]} to {names[-1]}"


_MONTH_NUMBERS = {name: number for number, name in enumerate(_MONTHS, 1)}
_WEEKDAY_NUMBERS = {name: number for number, name in enumerate(_WEEKDAYS, 1)}

MINUTES = Field("Minutes", 0, 59, {})
HOURS = Field("Hours", 0, 23, {})
DAY_OF_MONTH = Field("Day-of-month", 1, 31, {})
MONTH = Field("Month", 1, 12, _MONTH_NUMBERS)
DAY_OF_WEEK = Field("Day-of-week", 1, 7, _WEEKDAY_NUMBERS)
YEAR = Field("Year", 1970, 2199, {}, wraps=False)


def read_days(day_of_month: str, day_of_week: str) -> MonthDays:
    """The days that the two day fields mean; exactly one of them must be `?`."""
    if (day_of_month == "?") == (day_of_week == "?"):
        raise FieldError(
            "One of Day-of-month and Day-of-week must be ?, and not both: "
            "write ? in the one that does not matter, as in cron(0 2 ? * MON-FRI *) or cron(0 2 1 * ? *)"
        )
    return _days_of_month(day_of_month) if day_of_week == "?" else _days_of_week(day_of_week)


def _days_of_month(text: str) -> MonthDays:
    numbers: set[int] = set()
    from_last: set[int] = set()
    nearest: set[int] = set()
    last_weekday = False
    for item in DAY_OF_MONTH.items(text):
        upper = item.upper()
        if upper == "L":
            from_last.add(0)
        elif upper in ("LW", "WL"):
            last_weekday = True
        elif upper.startswith("L-"):
            from_last.add(DAY_OF_MONTH.number(upper[2:]))
        elif upper.endswith("W"):
            nearest.add(DAY_OF_MONTH.number(upper[:-1]))
        else:
            numbers.update(DAY_OF_MONTH.range_of(item))
    return MonthDays(frozenset(numbers), frozenset(from_last), frozenset(nearest), last_weekday)


def _days_of_week(text: str) -> MonthDays:
    weekdays: set[int] = set()
    last_of: set[int] = set()
    nth: set[tuple[int, int]] = set()
    items = DAY_OF_WEEK.items(text)
    for item in items:
        upper = item.upper()
        if upper == "L":
            weekdays.add(SATURDAY)
        elif upper.endswith("L"):
            last_of.add(DAY_OF_WEEK.number(upper[:-1]))
        elif "#" in upper:
            nth.add(_nth(upper, len(items)))
        else:
            weekdays.update(DAY_OF_WEEK.range_of(item))
    return MonthDays(weekdays=frozenset(weekdays), last_of=frozenset(last_of), nth=frozenset(nth))


def _nth(item: str, entries: int) -> tuple[int, int]:
    weekday, _, number = item.partition("#")
    if entries > 1:
        raise FieldError("Day-of-week can have one # and nothing beside it; make a second schedule")
    if number not in {"1", "2", "3", "4", "5"}:
        raise FieldError(f"Day-of-week {item} asks for week {number!r}; write 1 to 5 after #, as in 2#1")
    return DAY_OF_WEEK.number(weekday), int(number)
