"""When a schedule is due: its expression in its zone, between its dates, over every change of the clocks.

Decides instants. The zone is an argument; so is what happens when the clocks change. AWS skips a time of day that does
not exist and takes the first of one that comes twice; what happened is told in a note, so that it can be recorded. The
offset within a flexible window looks random and is always the same, so that a restarted daemon comes to the same time,
and schedules that are due together spread over the window. Must not know what is done at a due time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count, islice, takewhile

from windfall.schedules.expressions import At, Cron, Rate, parse
from windfall.schedules.schedule import Schedule, SummerTime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
#: The calendar of Python ends in 9999; what comes later is never due.
_LAST = datetime(9999, 12, 30, tzinfo=UTC)
_LAST_MS = (_LAST - _EPOCH) // _MS
#: How many left-out times a note names.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Due:
    """One due time."""

    at: int
    #: What a change of the clocks did to it, for people.
    note: str | None = None
    #: Whether nothing is to be done, because the time of day does not exist on that day.
    skipped: bool = False


def due_times(
    schedule: Schedule, after_ms: int, zone: tzinfo, summer_time: SummerTime = SummerTime.AWS
) -> Iterator[Due]:
    """The due times later than `after_ms`, lazily and strictly increasing; ends when nothing more can come.

    One-time schedules know no start and end date, as on AWS. All the times of day that one change of the clocks leaves
    out make one Due, at the moment of the change.
    """
    expression = parse(schedule.expression)
    if isinstance(expression, At):
        yield from (
            due for due in _resolved(iter([expression.moment]), zone, summer_time) if due.at > after_ms
        )
        return
    if schedule.start_at is not None:
        after_ms = max(after_ms, schedule.start_at - 1)
    end_at = _LAST_MS if schedule.end_at is None else min(schedule.end_at, _LAST_MS)
    if after_ms >= end_at:
        return
    if isinstance(expression, Cron):
        dues = _cron(expression, max(after_ms, -1), zone, summer_time)
    else:
        dues = _rate(expression, schedule, after_ms)
    yield from takewhile(lambda due: due.at <= end_at, dues)


def next_due(
    schedule: Schedule, after_ms: int, zone: tzinfo, summer_time: SummerTime = SummerTime.AWS
) -> Due | None:
    """The first due time later than `after_ms`, if there is one."""
    return next(due_times(schedule, after_ms, zone, summer_time), None)


def local_time(at_ms: int, zone: tzinfo) -> datetime:
    """An instant as clocks in the zone show it."""
    return (_EPOCH + at_ms * _MS).astimezone(zone)


def _rate(rate: Rate, schedule: Schedule, after_ms: int) -> Iterator[Due]:
    base = schedule.created_at if schedule.start_at is None else schedule.start_at
    first = max(0, (after_ms - base) // rate.period_ms + 1)
    return (Due(base + number * rate.period_ms) for number in count(first))


def _cron(cron: Cron, after_ms: int, zone: tzinfo, summer_time: SummerTime) -> Iterator[Due]:
    # Local times in order are instants in order, so that none before this one can be later than `after_ms`.
    after = local_time(after_ms, zone).replace(tzinfo=None, fold=0)
    dues = _resolved(cron.local_times(after), zone, summer_time)
    return (due for due in dues if due.at > after_ms)


def _resolved(times: Iterator[datetime], zone: tzinfo, summer_time: SummerTime) -> Iterator[Due]:
    """Local times as instants; those that do not exist are gathered at the moment the clocks go forward."""
    gap: _Gap | None = None
    for local in times:
        at, note = _instant(local, zone)
        if at is None:
            if gap is None or not gap.has(local):
                if gap is not None:
                    yield gap.due(summer_time)
                gap = _Gap.around(local, zone)
            gap.left_out.append(local)
            continue
        if gap is not None:
            if gap.at == at:
                note = f"{gap.description}; this one runs"
            else:
                yield gap.due(summer_time)
            gap = None
        yield Due(at, note)
    if gap is not None:
        yield gap.due(summer_time)


def _instant(local: datetime, zone: tzinfo) -> tuple[int | None, str | None]:
    """The instant of a local time and a note if it comes twice; None for one that does not exist."""
    aware = local.replace(tzinfo=zone)
    utc = aware.astimezone(UTC)
    if utc.astimezone(zone).replace(tzinfo=None, fold=0) != local:
        return None, None
    note = None
    if aware.utcoffset() != aware.replace(fold=1).utcoffset():
        note = (
            f"{local:%H:%M} comes twice on {local:%Y-%m-%d}, as the clocks go back; "
            "it runs the first time and not again"
        )
    return (utc - _EPOCH) // _MS, note


@dataclass(slots=True)
class _Gap:
    """Local times that a change of the clocks leaves out."""

    change: datetime
    #: The local times before and after the change.
    begins: datetime
    ends: datetime
    left_out: list[datetime]

    @classmethod
    def around(cls, local: datetime, zone: tzinfo) -> _Gap:
        """The gap that a local time falls into."""
        # Read with the later offset it lies before the change, with the earlier one after it.
        low = _utc(local, local.replace(tzinfo=zone, fold=1).utcoffset())
        high = _utc(local, local.replace(tzinfo=zone, fold=0).utcoffset())
        before = low.astimezone(zone).utcoffset()
        while high - low > _SECOND:
            middle = low + (high - low) // 2
            if middle.astimezone(zone).utcoffset() == before:
                low = middle
            else:
                high = middle
        change = high.replace(microsecond=0)
        begins = (change - _SECOND).astimezone(zone).replace(tzinfo=None, fold=0) + _SECOND
        return cls(change, begins, change.astimezone(zone).replace(tzinfo=None, fold=0), [])

    def has(self, local: datetime) -> bool:
        return self.begins <= local < self.ends

    @property
    def at(self) -> int:
        return (self.change - _EPOCH) // _MS

    @property
    def description(self) -> str:
        """What was left out, and why."""
        named = ", ".join(f"{local:%H:%M}" for local in islice(self.left_out, _NAMED))
        more = len(self.left_out) - _NAMED
        times = f"{named} and {more} more" if more > 0 else named
        verb = "does" if len(self.left_out) == 1 else "do"
        return (
            f"{times} {verb} not exist on {self.begins:%Y-%m-%d}: "
            f"the clocks go from {self.begins:%H:%M} to {self.ends:%H:%M}"
        )

    def due(self, summer_time: SummerTime) -> Due:
        """The one due time that stands for all that were left out."""
        if summer_time is SummerTime.AWS:
            return Due(self.at, f"{self.description}; skipped, as on AWS", skipped=True)
        return Due(self.at, f"{self.description}; run once, at {self.ends:%H:%M}")


def _utc(local: datetime, offset: timedelta | None) -> datetime:
    return (local - (offset or timedelta(0))).replace(tzinfo=UTC)


MINUTE_MS = 60_000


def window_offset_ms(key: str, due_at: int, window_minutes: int | None) -> int:
    """Milliseconds from the due time to the tick, below the window's length; 0 without a window."""
    if window_minutes is None:
        return 0
    digest = hashlib.blake2b(f"{key}@{due_at}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (window_minutes * MINUTE_MS)
