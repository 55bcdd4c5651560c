"""Due times: zones, the change of the clocks, dates, and rates."""

from __future__ import annotations

from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from tests.unit.schedules.schedules import a_schedule, clock_times, dues, ms
from windfall.schedules.due_times import due_times, next_due
from windfall.schedules.schedule import SummerTime

BERLIN, SHIFT = "Europe/Berlin", SummerTime.SHIFT
NIGHTLY = a_schedule("cron(30 2 * * ? *)", BERLIN)


def test_a_time_of_day_stays_when_the_offset_changes():
    assert clock_times(a_schedule("cron(0 9 * * ? *)", BERLIN), "2027-03-27T00:00:00", 3) == [
        "Sat 2027-03-27 09:00 +0100",
        "Sun 2027-03-28 09:00 +0200",
        "Mon 2027-03-29 09:00 +0200",
    ]


def test_a_time_that_does_not_exist_is_skipped_and_said():
    assert clock_times(NIGHTLY, "2027-03-27T12:00:00", 2) == [
        "(Sun 2027-03-28 03:00 +0200)",
        "Mon 2027-03-29 02:30 +0200",
    ]
    assert dues(NIGHTLY, "2027-03-27T12:00:00", 1)[0].note == (
        "02:30 does not exist on 2027-03-28: the clocks go from 02:00 to 03:00; skipped, as on AWS"
    )


def test_or_run_when_the_clocks_go_forward():
    assert clock_times(NIGHTLY, "2027-03-27T12:00:00", 2, SHIFT) == [
        "Sun 2027-03-28 03:00 +0200",
        "Mon 2027-03-29 02:30 +0200",
    ]
    assert dues(NIGHTLY, "2027-03-27T12:00:00", 1, SHIFT)[0].note == (
        "02:30 does not exist on 2027-03-28: the clocks go from 02:00 to 03:00; run once, at 03:00"
    )


@pytest.mark.parametrize("policy", SummerTime)
def test_a_time_that_comes_twice_is_run_the_first_time(policy):
    assert clock_times(NIGHTLY, "2027-10-30T12:00:00", 2, policy) == [
        "Sun 2027-10-31 02:30 +0200",
        "Mon 2027-11-01 02:30 +0100",
    ]
    first, second = dues(NIGHTLY, "2027-10-30T12:00:00", 2, policy)
    assert first.note == (
        "02:30 comes twice on 2027-10-31, as the clocks go back; it runs the first time and not again"
    )
    assert second.note is None


def test_all_times_that_are_left_out_make_one():
    often = a_schedule("cron(0/10 2 * * ? *)", BERLIN)
    (skipped,) = [due for due in dues(often, "2027-03-28T00:00:00", 4) if due.skipped]
    assert skipped.at == ms("2027-03-28T01:00:00")
    assert (skipped.note or "").startswith("02:00, 02:10, 02:20, 02:30 and 2 more do not exist on 2027-03-28")


@pytest.mark.parametrize("policy", SummerTime)
def test_what_is_due_at_that_moment_anyway_stands_for_them(policy):
    both = a_schedule("cron(30,0 2,3 * * ? *)", BERLIN)
    first, second = dues(both, "2027-03-28T00:00:00", 2, policy)
    assert (first.at, first.skipped) == (ms("2027-03-28T01:00:00"), False)
    assert (first.note or "").endswith("the clocks go from 02:00 to 03:00; this one runs")
    assert second.at == ms("2027-03-28T01:30:00")


def test_every_minute_pauses_while_the_hour_repeats_as_on_aws():
    found = dues(a_schedule("cron(* * * * ? *)", BERLIN), "2027-10-31T00:58:30", 2)
    assert [due.at for due in found] == [ms("2027-10-31T00:59:00"), ms("2027-10-31T02:00:00")]


@pytest.mark.parametrize(
    ("zone", "expression", "after", "expected"),
    [
        # Half an hour, in the southern hemisphere.
        ("Australia/Lord_Howe", "cron(15 2 * * ? *)", "2027-10-02T12:00:00", "(Sun 2027-10-03 02:30 +1100)"),
        ("America/New_York", "cron(30 2 * * ? *)", "2027-03-13T12:00:00", "(Sun 2027-03-14 03:00 -0400)"),
        # Midnight itself is left out.
        ("America/Santiago", "cron(0 0 * * ? *)", "2027-09-04T12:00:00", "(Sun 2027-09-05 01:00 -0300)"),
        # A whole day is left out.
        ("Pacific/Apia", "cron(0 8 30 12 ? 2011)", "2011-12-01T00:00:00", "(Sat 2011-12-31 00:00 +1400)"),
        ("Asia/Kolkata", "cron(0 6 * * ? *)", "2027-01-01T00:00:00", "Fri 2027-01-01 06:00 +0530"),
        ("Asia/Kathmandu", "cron(0 6 * * ? *)", "2027-01-01T00:00:00", "Fri 2027-01-01 06:00 +0545"),
        ("Europe/London", "at(2027-10-31T01:30:00)", "2027-01-01T00:00:00", "Sun 2027-10-31 01:30 +0100"),
        ("Europe/London", "at(2027-03-28T01:30:00)", "2027-01-01T00:00:00", "(Sun 2027-03-28 02:00 +0100)"),
        # Beyond the changes that the database lists one by one.
        ("Europe/Berlin", "cron(0 2 ? 3 1L 2150)", "2149-01-01T00:00:00", "(Sun 2150-03-29 03:00 +0200)"),
    ],
)
def test_zones_of_all_kinds(zone, expression, after, expected):
    assert clock_times(a_schedule(expression, zone), after, 1) == [expected]


def test_asking_again_from_any_due_time_goes_on_as_before():
    often = a_schedule("cron(0/20 1-3 * * ? *)", BERLIN)
    for day in ("2027-03-27T20:00:00", "2027-10-30T20:00:00"):
        whole = dues(often, day, 30)
        for place, due in enumerate(whole[:-1]):
            assert next_due(often, due.at, ZoneInfo(BERLIN)) == whole[place + 1]


def test_start_and_end_dates_bound_it_and_count():
    bounded = a_schedule(
        "cron(0 0/12 * * ? *)", start_at=ms("2027-01-01T12:00:00"), end_at=ms("2027-01-02T12:00:00")
    )
    assert clock_times(bounded, "2026-01-01T00:00:00", 9) == [
        "Fri 2027-01-01 12:00 +0000",
        "Sat 2027-01-02 00:00 +0000",
        "Sat 2027-01-02 12:00 +0000",
    ]
    assert clock_times(bounded, "2027-01-02T12:00:00") == []


def test_a_one_time_schedule_knows_no_dates():
    once = a_schedule("at(2027-01-04T02:00:00)", start_at=ms("2028-01-01T00:00:00"), end_at=0)
    assert clock_times(once, "2026-01-01T00:00:00") == ["Mon 2027-01-04 02:00 +0000"]


def test_a_rate_begins_at_its_creation_and_at_once():
    rate = a_schedule("rate(90 minutes)", created_at=ms("2027-01-01T00:00:30"))
    assert [due.at for due in dues(rate, "2027-01-01T00:00:29", 3)] == [
        ms("2027-01-01T00:00:30"),
        ms("2027-01-01T01:30:30"),
        ms("2027-01-01T03:00:30"),
    ]
    assert dues(rate, "2027-01-01T01:30:30", 1)[0].at == ms("2027-01-01T03:00:30")


def test_a_rate_with_a_start_date_begins_there():
    rate = a_schedule(
        "rate(1 day)", BERLIN, start_at=ms("2027-03-27T08:00:00"), created_at=ms("2026-01-01T00:00:00")
    )
    # A day is 24 hours, also the one on which the clocks change.
    assert clock_times(rate, "2026-01-01T00:00:00", 3) == [
        "Sat 2027-03-27 09:00 +0100",
        "Sun 2027-03-28 10:00 +0200",
        "Mon 2027-03-29 10:00 +0200",
    ]


def test_a_rate_ends_with_its_end_date_and_with_the_calendar():
    rate = a_schedule("rate(999999999 days)", created_at=0)
    assert dues(rate, "2027-01-01T00:00:00") == []
    ending = a_schedule("rate(1 hour)", created_at=0, end_at=3 * 3_600_000)
    assert [due.at // 3_600_000 for due in islice(due_times(ending, -1, ZoneInfo("UTC")), 9)] == [0, 1, 2, 3]


def test_dates_at_the_ends_of_the_calendar_break_nothing():
    far = a_schedule("cron(0 0 1 1 ? *)", "Pacific/Kiritimati", start_at=ms("9999-12-31T00:00:00"))
    assert dues(far, "2027-01-01T00:00:00") == []
    old = a_schedule("cron(0 0 1 1 ? *)", "Pacific/Kiritimati", start_at=-62_135_596_800_000)
    assert next_due(old, -62_135_596_800_000, ZoneInfo("Pacific/Kiritimati")) is not None
