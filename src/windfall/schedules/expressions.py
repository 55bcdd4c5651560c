"""Schedule expressions: cron(), rate() and at(), as EventBridge Scheduler reads them.

Decides what an expression means, in local time without a zone; due_times.py puts zones, dates and the change of the
clocks on top. AWS's weekdays are counted from 1 = Sunday. Must not know schedules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import lru_cache

from windfall.schedules.cron_fields import HOURS, MINUTES, MONTH, YEAR, FieldError, read_days
from windfall.schedules.errors import ExpressionError
from windfall.schedules.month_days import MonthDays

_FORM = re.compile(r"(cron|rate|at)\((.*)\)", re.DOTALL)
_RATE = re.compile(r"([0-9]{1,9}) +(minute|hour|day)s?", re.ASCII)
_AT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}", re.ASCII)
_FIELDS = 6
_UNIT_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


@dataclass(frozen=True, slots=True)
class Rate:
    """A fixed time between two times, whatever the clocks do: a day is 24 hours."""

    value: int
    #: `minute`, `hour` or `day`
    unit: str

    @property
    def period_ms(self) -> int:
        """The time from one to the next."""
        return self.value * _UNIT_MS[self.unit]


@dataclass(frozen=True, slots=True)
class At:
    """Once."""

    #: Local time in the schedule's zone, without it.
    moment: datetime


@dataclass(frozen=True, slots=True)
class Cron:
    """Times of day on days of the calendar."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: MonthDays
    months: tuple[int, ...]
    years: tuple[int, ...]

    def local_times(self, after: datetime) -> Iterator[datetime]:
        """The local times that match and are later than `after`, in order; ends with the last year."""
        for year in self.years:
            if year < after.year:
                continue
            for month in self.months:
                if (year, month) < (after.year, after.month):
                    continue
                for day in self.days.of(year, month):
                    if (year, month, day) >= (after.year, after.month, after.day):
                        yield from self._times_of(date(year, month, day), after)

    def _times_of(self, day: date, after: datetime) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                moment = datetime.combine(day, time(hour, minute))
                if moment > after:
                    yield moment


Expression = Cron | Rate | At


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """What an expression means; raises ExpressionError."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ExpressionError(
            text,
            "Write cron(minutes hours day-of-month month day-of-week year), rate(value unit) or at(time)",
        )
    kind, inside = form[1], form[2].strip()
    if kind == "cron":
        return _cron(text, inside)
    return _rate(text, inside) if kind == "rate" else _at(text, inside)


def _rate(text: str, inside: str) -> Rate:
    match = _RATE.fullmatch(inside)
    if match is None:
        raise ExpressionError(
            text,
            "Write a whole number and minutes, hours or days, with a blank between them, as in rate(12 hours)",
        )
    if int(match[1]) == 0:
        raise ExpressionError(text, "The value of a rate must be above 0; the shortest is rate(1 minute)")
    return Rate(int(match[1]), match[2])


def _at(text: str, inside: str) -> At:
    if _AT.fullmatch(inside) is None:
        raise ExpressionError(
            text,
            "Write at(yyyy-mm-ddThh:mm:ss), as in at(2027-01-04T02:00:00); the zone goes into "
            "ScheduleExpressionTimezone",
        )
    try:
        moment = datetime.fromisoformat(inside)
    except ValueError:
        raise ExpressionError(text, "There is no such day or time; write one that the calendar has") from None
    if not YEAR.least <= moment.year <= YEAR.most:
        raise ExpressionError(text, f"Write a year between {YEAR.least} and {YEAR.most}")
    return At(moment)


def _cron(text: str, inside: str) -> Cron:
    fields = inside.split()
    if len(fields) != _FIELDS:
        hint = (
            "; Unix's cron has five, without the year: add * at the end" if len(fields) == _FIELDS - 1 else ""
        )
        raise ExpressionError(
            text,
            f"It has {len(fields)} fields and needs six: minutes hours day-of-month month day-of-week year{hint}",
        )
    minutes, hours, day_of_month, month, day_of_week, year = fields
    try:
        return Cron(
            MINUTES.numbers(minutes),
            HOURS.numbers(hours),
            read_days(day_of_month, day_of_week),
            MONTH.numbers(month),
            YEAR.numbers(year),
        )
    except FieldError as error:
        raise ExpressionError(text, str(error)) from None
