"""Due times against a slow calendar of another make: minute by minute in UTC, asking each what the clocks show.

The expressions are drawn as values and written down afterwards, so that what is expected does not come from our parser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.schedules.due_times import due_times, local_time, next_due, window_offset_ms
from windfall.schedules.expressions import parse
from windfall.schedules.schedule import Schedule, SummerTime, Target
from windfall.schedules.wording import describe

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
#: Zones with a day on which each changes its clocks: forward, back, by half an hour, at midnight, over a whole day.
CHANGES = [
    ("Europe/Berlin", "2027-03-28"),
    ("Europe/Berlin", "2027-10-31"),
    ("America/New_York", "2027-03-14"),
    ("America/New_York", "2027-11-07"),
    ("Australia/Lord_Howe", "2027-04-04"),
    ("Australia/Lord_Howe", "2027-10-03"),
    ("America/Santiago", "2027-04-04"),
    ("America/Santiago", "2027-09-05"),
    ("Africa/Casablanca", "2027-02-07"),
    ("Pacific/Apia", "2011-12-30"),
    ("Asia/Kathmandu", "2027-01-01"),
    ("UTC", "2027-06-30"),
]


@dataclass(frozen=True)
class Field:
    text: str
    has: Callable[[datetime], bool]

    def __repr__(self) -> str:
        return self.text


def number_field(low: int, high: int, read: Callable[[datetime], int]) -> st.SearchStrategy[Field]:
    def some(values: list[int]) -> Field:
        return Field(",".join(map(str, values)), lambda t: read(t) in values)

    def span(ends: tuple[int, int]) -> Field:
        first, last = sorted(ends)
        return Field(f"{first}-{last}", lambda t: first <= read(t) <= last)

    def steps(begin_and_step: tuple[int, int]) -> Field:
        begin, step = begin_and_step
        return Field(f"{begin}/{step}", lambda t: read(t) >= begin and (read(t) - begin) % step == 0)

    number = st.integers(low, high)
    return st.one_of(
        st.just(Field("*", lambda _: True)),
        st.lists(number, min_size=1, max_size=4).map(some),
        st.tuples(number, number).map(span),
        st.tuples(number, st.integers(1, high)).map(steps),
    )


def weekday(moment: datetime) -> int:
    return int(moment.strftime("%w")) + 1


def last_day(moment: datetime) -> bool:
    return (moment + timedelta(days=1)).month != moment.month


def nearest_weekday(day: int) -> Callable[[datetime], bool]:
    def has(moment: datetime) -> bool:
        try:
            wanted = moment.replace(day=day)
        except ValueError:
            return False
        order = [0, -1, 1, -2, 2]
        near = [wanted + timedelta(days=by) for by in order]
        near = [one for one in near if one.month == wanted.month and weekday(one) not in (1, 7)]
        return near[0].day == moment.day

    return has


days_of_month = st.one_of(
    number_field(1, 31, lambda t: t.day),
    st.just(Field("L", last_day)),
    st.integers(1, 31).map(lambda day: Field(f"{day}W", nearest_weekday(day))),
).map(lambda field: (field, Field("?", lambda _: True)))
days_of_week = st.one_of(
    number_field(1, 7, weekday),
    st.integers(1, 7).map(lambda day: Field(NAMES[day - 1], lambda t: weekday(t) == day)),
    st.integers(1, 7).map(
        lambda day: Field(f"{day}L", lambda t: weekday(t) == day and (t + timedelta(days=7)).month != t.month)
    ),
    st.tuples(st.integers(1, 7), st.integers(1, 5)).map(
        lambda it: Field(f"{it[0]}#{it[1]}", lambda t: weekday(t) == it[0] and (t.day - 1) // 7 + 1 == it[1])
    ),
).map(lambda field: (Field("?", lambda _: True), field))

crons = st.tuples(
    number_field(0, 59, lambda t: t.minute),
    number_field(0, 23, lambda t: t.hour),
    st.one_of(days_of_month, days_of_week),
    number_field(1, 12, lambda t: t.month),
)


def text_of(cron) -> str:
    minutes, hours, (day, of_week), month = cron
    return f"cron({minutes.text} {hours.text} {day.text} {month.text} {of_week.text} *)"


def matches(cron, local: datetime) -> bool:
    minutes, hours, days, month = cron
    return all(field.has(local) for field in (minutes, hours, *days, month))


def a_schedule(expression: str, zone: str, **more) -> Schedule:
    return Schedule("default", "any", expression, Target("arn", "role"), timezone=zone, **more)


def ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def slow_due_times(cron, zone: ZoneInfo, begin: datetime, end: datetime) -> list[int]:
    """Every minute of a period whose local time matches, the second time of a repeated hour left out."""
    found = []
    moment = begin
    while moment < end:
        local = moment.astimezone(zone)
        if not local.fold and matches(cron, local.replace(tzinfo=None)):
            found.append(ms(moment))
        moment += MINUTE
    return found


def slow_changes(zone: ZoneInfo, begin: datetime, end: datetime) -> dict[int, list[datetime]]:
    """Every moment of a period at which the clocks go forward, with the local minutes that are left out."""
    found = {}
    moment = begin
    while moment < end:
        before = (moment - MINUTE).astimezone(zone).replace(tzinfo=None)
        after = moment.astimezone(zone).replace(tzinfo=None)
        if after - before > MINUTE:
            count = (after - before) // MINUTE - 1
            found[ms(moment)] = [before + MINUTE * (number + 1) for number in range(count)]
        moment += MINUTE
    return found


@settings(max_examples=80, deadline=None)
@given(crons, st.sampled_from(CHANGES), st.integers(-600, 600), st.sampled_from(SummerTime))
def test_around_a_change_of_the_clocks_nothing_is_lost_or_twice(cron, change, shift_minutes, policy):
    name, day = change
    zone = ZoneInfo(name)
    begin = datetime.fromisoformat(f"{day}T00:00:00+00:00") + timedelta(minutes=shift_minutes, hours=-20)
    end = begin + timedelta(hours=60)
    found = []
    for due in due_times(a_schedule(text_of(cron), name), ms(begin) - 1, zone, policy):
        if due.at >= ms(end):
            break
        found.append(due)
    assert [due.at for due in found] == sorted({due.at for due in found})
    real = slow_due_times(cron, zone, begin, end)
    extra = [due for due in found if due.at not in real]
    assert [due.at for due in found if due not in extra] == real
    for due in extra:
        # Only the moment of a change can be there beside: it stands for times that the day does not have.
        assert due.note is not None
        assert due.skipped is (policy is SummerTime.AWS)
    changes = slow_changes(zone, begin, end)
    assert {due.at for due in extra} <= set(changes)
    for at, left_out in changes.items():
        wanted = any(matches(cron, local) for local in left_out)
        assert wanted == any(due.at == at and "not exist" in (due.note or "") for due in found)


@settings(max_examples=150, deadline=None)
@given(crons, st.sampled_from(CHANGES), st.integers(0, 2**31))
def test_due_times_increase_and_match_and_can_be_taken_up_anywhere(cron, change, after_s):
    name = change[0]
    zone, schedule = ZoneInfo(name), a_schedule(text_of(cron), name)
    found = list(islice(due_times(schedule, after_s * 1000, zone), 12))
    assert all(one.at < two.at for one, two in pairwise(found))
    assert all(due.at > after_s * 1000 for due in found)
    for due in found:
        if not due.skipped:
            assert matches(cron, local_time(due.at, zone).replace(tzinfo=None))
    for one, two in pairwise(found):
        assert next_due(schedule, one.at, zone) == two
        assert next_due(schedule, two.at - 1, zone) == two


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5000),
    st.sampled_from([("minutes", 60_000), ("hours", 3_600_000), ("days", 86_400_000)]),
    st.integers(0, 2**42),
    st.integers(-(2**42), 2**42),
)
def test_a_rate_keeps_its_distance_from_where_it_began(value, unit, base, offset):
    schedule = a_schedule(f"rate({value} {unit[0]})", "UTC", created_at=base)
    after = base + offset
    found = [due.at for due in islice(due_times(schedule, after, UTC), 4)]
    period = value * unit[1]
    assert found[0] == base if after < base else after < found[0] <= after + period
    assert all((at - base) % period == 0 for at in found)
    assert [two - one for one, two in pairwise(found)] == [period] * 3


@settings(max_examples=100, deadline=None)
@given(crons, st.integers(0, 2**31), st.integers(0, 2**31))
def test_nothing_is_due_outside_of_the_dates(cron, one_s, other_s):
    start, end = sorted((one_s * 1000, other_s * 1000))
    schedule = a_schedule(text_of(cron), "UTC", start_at=start, end_at=end)
    assert all(start <= due.at <= end for due in islice(due_times(schedule, 0, UTC), 5))


@given(st.text(max_size=20), st.integers(0, 2**42), st.integers(1, 1440))
def test_a_flexible_tick_stays_in_its_window(key, due_at, minutes):
    assert 0 <= window_offset_ms(key, due_at, minutes) < minutes * 60_000


@given(crons)
def test_every_expression_can_be_said_in_words(cron):
    words = describe(a_schedule(text_of(cron), "Europe/Berlin"))
    assert words.endswith(" Europe/Berlin")
    assert parse(text_of(cron)) == parse(f"  {text_of(cron)} ")
