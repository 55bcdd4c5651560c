"""cron(), rate() and at() as AWS reads them: its examples, its traps, and what is refused in which words."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.unit.schedules.schedules import a_schedule, clock_times
from windfall.schedules.errors import ExpressionError
from windfall.schedules.expressions import At, Cron, Rate, parse

#: Sunday, 15 November 2026.
NOW = "2026-11-15T12:00:00"

NEXT = [
    # AWS counts weekdays from 1 = Sunday: 2-6 is Monday to Friday, not Tuesday to Saturday.
    ("cron(0 2 ? * 2-6 *)", ["Mon 2026-11-16 02:00", "Tue 2026-11-17 02:00", "Wed 2026-11-18 02:00"]),
    ("cron(0 2 ? * MON-FRI *)", ["Mon 2026-11-16 02:00", "Tue 2026-11-17 02:00", "Wed 2026-11-18 02:00"]),
    ("cron(0 2 ? * mon-fri *)", ["Mon 2026-11-16 02:00", "Tue 2026-11-17 02:00", "Wed 2026-11-18 02:00"]),
    ("cron(0 2 ? * 1 *)", ["Sun 2026-11-22 02:00", "Sun 2026-11-29 02:00"]),
    ("cron(0 2 ? * 7 *)", ["Sat 2026-11-21 02:00", "Sat 2026-11-28 02:00"]),
    ("cron(0 12 ? * 2#1 *)", ["Mon 2026-12-07 12:00", "Mon 2027-01-04 12:00", "Mon 2027-02-01 12:00"]),
    ("cron(0 12 ? * TUE#5 *)", ["Tue 2026-12-29 12:00", "Tue 2027-03-30 12:00", "Tue 2027-06-29 12:00"]),
    ("cron(0 10 ? * 6L 2026-2027)", ["Fri 2026-11-27 10:00", "Fri 2026-12-25 10:00", "Fri 2027-01-29 10:00"]),
    ("cron(0 10 ? * FRIL *)", ["Fri 2026-11-27 10:00", "Fri 2026-12-25 10:00"]),
    ("cron(0 10 ? * L *)", ["Sat 2026-11-21 10:00", "Sat 2026-11-28 10:00"]),
    ("cron(0/15 8-9 ? * MON *)", ["Mon 2026-11-16 08:00", "Mon 2026-11-16 08:15", "Mon 2026-11-16 08:30"]),
    ("cron(0 18 ? * MON-FRI *)", ["Mon 2026-11-16 18:00", "Tue 2026-11-17 18:00"]),
    ("cron(0 8 1 * ? *)", ["Tue 2026-12-01 08:00", "Fri 2027-01-01 08:00", "Mon 2027-02-01 08:00"]),
    ("cron(15 10 * * ? *)", ["Mon 2026-11-16 10:15", "Tue 2026-11-17 10:15"]),
    ("cron(0 0 L * ? *)", ["Mon 2026-11-30 00:00", "Thu 2026-12-31 00:00", "Sun 2027-01-31 00:00"]),
    ("cron(0 0 L-2 * ? *)", ["Sat 2026-11-28 00:00", "Tue 2026-12-29 00:00"]),
    ("cron(0 0 LW * ? *)", ["Mon 2026-11-30 00:00", "Thu 2026-12-31 00:00", "Fri 2027-01-29 00:00"]),
    # The 15th of August 2027 is a Sunday and the 15th of May a Saturday; a W never leaves its month.
    ("cron(0 0 15W 5,8 ? *)", ["Fri 2027-05-14 00:00", "Mon 2027-08-16 00:00"]),
    ("cron(0 0 1W 5 ? 2027)", ["Mon 2027-05-03 00:00"]),
    ("cron(0 0 31W 10 ? 2027)", ["Fri 2027-10-29 00:00"]),
    ("cron(0 0 31 * ? 2027)", ["Sun 2027-01-31 00:00", "Wed 2027-03-31 00:00", "Mon 2027-05-31 00:00"]),
    ("cron(0 0 29 2 ? *)", ["Tue 2028-02-29 00:00", "Sun 2032-02-29 00:00"]),
    ("cron(0 0 1 JAN/3 ? *)", ["Fri 2027-01-01 00:00", "Thu 2027-04-01 00:00", "Thu 2027-07-01 00:00"]),
    ("cron(0 0 1 1 ? 2027/2)", ["Fri 2027-01-01 00:00", "Mon 2029-01-01 00:00"]),
    ("cron(0 0 1 1 ? 2028,2030)", ["Sat 2028-01-01 00:00", "Tue 2030-01-01 00:00"]),
    ("cron(0 22-1 * * ? *)", ["Sun 2026-11-15 22:00", "Sun 2026-11-15 23:00", "Mon 2026-11-16 00:00"]),
    ("cron(0 5 ? * FRI-MON *)", ["Mon 2026-11-16 05:00", "Fri 2026-11-20 05:00", "Sat 2026-11-21 05:00"]),
    ("cron(10/20 13 * * ? *)", ["Sun 2026-11-15 13:10", "Sun 2026-11-15 13:30", "Sun 2026-11-15 13:50"]),
    ("cron(*/30 13 * * ? *)", ["Sun 2026-11-15 13:00", "Sun 2026-11-15 13:30", "Mon 2026-11-16 13:00"]),
    ("cron(20-40/10 13 * * ? *)", ["Sun 2026-11-15 13:20", "Sun 2026-11-15 13:30", "Sun 2026-11-15 13:40"]),
    ("  cron( 0  2   ? * MON * )  ", ["Mon 2026-11-16 02:00"]),
    ("at(2027-01-04T02:00:30)", ["Mon 2027-01-04 02:00"]),
    # Not later than now.
    ("cron(0 12 15 11 ? 2026)", []),
    ("cron(1 12 15 11 ? 2026)", ["Sun 2026-11-15 12:01"]),
    # Never.
    ("cron(0 0 31 2 ? *)", []),
    ("cron(0 0 30W 2 ? *)", []),
    ("cron(0 0 1 1 ? 1999)", []),
    ("at(2026-01-01T00:00:00)", []),
]


@pytest.mark.parametrize(("expression", "expected"), NEXT, ids=[expression for expression, _ in NEXT])
def test_the_next_times_are_those_of_aws(expression, expected):
    # A list that is shorter than asked for is all there is, where it is the whole story of the expression.
    found = [
        text.removesuffix(" +0000") for text in clock_times(a_schedule(expression), NOW, len(expected) or 3)
    ]
    assert found == expected


def test_a_cron_that_is_over_ends():
    assert clock_times(a_schedule("cron(0 0 1 1 ? 2027)"), NOW, 9) == ["Fri 2027-01-01 00:00 +0000"]
    last = clock_times(a_schedule("cron(59 23 31 12 ? *)"), "2198-01-01T00:00:00", 9)
    assert [text[:14] for text in last] == ["Mon 2198-12-31", "Tue 2199-12-31"]


@pytest.mark.parametrize(
    ("expression", "value", "unit", "period_ms"),
    [
        ("rate(1 minute)", 1, "minute", 60_000),
        ("rate(5 minutes)", 5, "minute", 300_000),
        ("rate(1 hours)", 1, "hour", 3_600_000),
        ("rate(12 hour)", 12, "hour", 43_200_000),
        ("rate(7 days)", 7, "day", 604_800_000),
    ],
)
def test_a_rate_has_a_value_and_a_unit(expression, value, unit, period_ms):
    rate = parse(expression)
    assert rate == Rate(value, unit)
    assert rate.period_ms == period_ms


def test_at_is_a_local_time():
    assert parse("at(2027-03-28T02:30:00)") == At(datetime(2027, 3, 28, 2, 30))  # noqa: DTZ001 (local time is meant)


def test_a_field_is_all_its_values_in_order():
    cron = parse("cron(45,0,15,0 */6 1,15 DEC,JAN ? 2027)")
    assert isinstance(cron, Cron)
    assert cron.minutes == (0, 15, 45)
    assert cron.hours == (0, 6, 12, 18)
    assert cron.months == (1, 12)
    assert cron.years == (2027,)


REFUSED = [
    ("", "Write cron(minutes hours day-of-month month day-of-week year), rate(value unit) or at(time)"),
    ("0 2 * * ? *", "Write cron("),
    ("every day", "Write cron("),
    ("CRON(0 2 * * ? *)", "Write cron("),
    ("cron(0 2 * * ? *", "Write cron("),
    ("cron(0 2 * * MON)", "has 5 fields and needs six"),
    ("cron(0 2 * * MON)", "without the year: add * at the end"),
    ("cron()", "has 0 fields"),
    ("cron(0 0 2 * * ? *)", "has 7 fields"),
    ("cron(0 2 * * * *)", "One of Day-of-month and Day-of-week must be ?"),
    ("cron(0 2 ? * ? *)", "One of Day-of-month and Day-of-week must be ?, and not both"),
    ("cron(0 2 1 * MON *)", "write ? in the one that does not matter"),
    ("cron(60 2 * * ? *)", "Minutes '60' is not between 0 and 59"),
    ("cron(-1 2 * * ? *)", "Minutes '' is not between 0 and 59"),
    ("cron(0 24 * * ? *)", "Hours '24' is not between 0 and 23"),
    ("cron(0 0 0 * ? *)", "Day-of-month '0' is not between 1 and 31"),
    ("cron(0 0 32 * ? *)", "Day-of-month '32'"),
    ("cron(0 0 1 13 ? *)", "Month '13' is not between 1 and 12, or JAN to DEC"),
    ("cron(0 0 1 MAI ? *)", "Month 'MAI'"),
    # Unix's Sunday.
    ("cron(0 0 ? * 0 *)", "Day-of-week '0' is not between 1 and 7, counted from 1 = Sunday, or SUN to SAT"),
    ("cron(0 0 ? * 8 *)", "Day-of-week '8'"),
    ("cron(0 0 ? * MONDAY *)", "Day-of-week 'MONDAY'"),
    ("cron(0 0 ? * 2#6 *)", "write 1 to 5 after #"),
    ("cron(0 0 ? * 2#0 *)", "write 1 to 5 after #"),
    ("cron(0 0 ? * 2#1,6#3 *)", "one # and nothing beside it"),
    ("cron(0 0 1 1 ? 1969)", "Year '1969' is not between 1970 and 2199"),
    ("cron(0 0 1 1 ? 2200)", "Year '2200'"),
    ("cron(0 0 1 1 ? 2030-2027)", "Year 2030-2027 goes backwards; write 2027-2030"),
    ("cron(0/0 0 1 1 ? *)", "Minutes has the step '0'; write a number above 0"),
    ("cron(0/ 0 1 1 ? *)", "Minutes has the step ''"),
    ("cron(0/x 0 1 1 ? *)", "Minutes has the step 'x'"),
    ("cron(1,,2 0 1 1 ? *)", "Minutes '1,,2' has an empty entry"),
    ("cron(? 0 1 1 ? *)", "Minutes '?'"),
    ("cron(0 L 1 1 ? *)", "Hours 'L'"),
    ("cron(0 0 ? * 3W *)", "Day-of-week '3W'"),
    ("cron(0 0 W * ? *)", "Day-of-month ''"),
    ("cron(٣ 0 1 1 ? *)", "Minutes '٣'"),
    ("rate(5)", "with a blank between them, as in rate(12 hours)"),
    ("rate(5minutes)", "with a blank between them"),
    ("rate(0 minutes)", "must be above 0"),
    ("rate(-1 minutes)", "Write a whole number"),
    ("rate(1.5 hours)", "Write a whole number"),
    ("rate(30 seconds)", "minutes, hours or days"),
    ("rate(1 week)", "minutes, hours or days"),
    ("at(2027-01-04)", "Write at(yyyy-mm-ddThh:mm:ss)"),
    ("at(2027-01-04T02:00)", "Write at(yyyy-mm-ddThh:mm:ss)"),
    ("at(2027-01-04T02:00:00Z)", "the zone goes into ScheduleExpressionTimezone"),
    ("at(2027-01-04 02:00:00)", "Write at(yyyy-mm-ddThh:mm:ss)"),
    ("at(2027-02-30T02:00:00)", "There is no such day or time"),
    ("at(2027-01-04T24:00:00)", "There is no such day or time"),
    ("at(0001-01-01T00:00:00)", "Write a year between 1970 and 2199"),
]


@pytest.mark.parametrize(("expression", "advice"), REFUSED)
def test_what_is_wrong_is_said_with_what_to_write(expression, advice):
    with pytest.raises(ExpressionError) as refused:
        parse(expression)
    assert str(refused.value).startswith(f"Invalid Schedule Expression {expression}")
    assert advice in str(refused.value)


def test_a_long_expression_is_not_repeated_whole():
    with pytest.raises(ExpressionError) as refused:
        parse("x" * 10_000)
    assert len(str(refused.value)) < 500
