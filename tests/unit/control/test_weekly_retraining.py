"""The retraining of docs/schedules.md over a year of weeks: GPU jobs of several hours, Monday to Friday, in Berlin.

The real reactor, calendar and scheduler with a clock of their own. Both changes of summer time lie within the year.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.unit.control.schedules import BERLIN, KEY, Calendar, a_calendar, a_schedule, ms
from windfall.control.timekeeping import next_due
from windfall.schedules.forecast import ForecastVerdict, durations_ms, forecast
from windfall.schedules.schedule import Tick, TickOutcome

HOUR_MS = 3_600_000
BEGIN, END = "2026-11-15 12:00", ms("2027-11-14 12:00")
WEEKDAYS = "cron(0 2 ? * MON-FRI *)"
WEEKLY = "cron(0 2 ? * MON *)"


def a_year_of(calendar: Calendar, run_hours: float) -> list[Tick]:
    """Let a year pass in which every run takes so long."""
    world = calendar.world
    ends: list[tuple[int, str]] = []
    while world.now < END:
        due = next_due(world.state)
        upcoming = min([END, *([due] if due is not None else []), *(at for at, _ in ends)])
        calendar.until(upcoming)
        world.ready()
        for at, job_id in [end for end in ends if end[0] <= upcoming]:
            ends.remove((at, job_id))
            world.exits(job_id)
        calendar.until(upcoming)
        known = {job_id for _, job_id in ends}
        ends += [
            (world.now + int(run_hours * HOUR_MS), job.id)
            for job in world.state.jobs.values()
            if job.id not in known
        ]
        world.ready()
    return [world.store.ticks[key] for key in sorted(world.store.ticks)]


def local(tick: Tick) -> datetime:
    return datetime.fromtimestamp(tick.due_at / 1000, UTC).astimezone(ZoneInfo(BERLIN))


@pytest.mark.parametrize(("expression", "runs"), [(WEEKDAYS, 260), (WEEKLY, 52)])
def test_a_year_has_a_run_for_each_of_its_days_at_two_in_the_morning_summer_and_winter(expression, runs):
    calendar = a_calendar(BEGIN).makes(a_schedule(expression, timezone=BERLIN), overlap="skip")
    ticks = a_year_of(calendar, run_hours=5)
    assert len(ticks) == runs
    assert {tick.outcome for tick in ticks} == {TickOutcome.STARTED}
    assert {(one.hour, one.minute) for one in map(local, ticks)} == {(2, 0)}
    days = Counter(one.strftime("%a") for one in map(local, ticks))
    assert days == ({"Mon": 52} if runs == 52 else dict.fromkeys(["Mon", "Tue", "Wed", "Thu", "Fri"], 52))
    # 02:00 in Berlin is 01:00 UTC in winter and 00:00 UTC in summer: both were met.
    assert {datetime.fromtimestamp(tick.due_at / 1000, UTC).hour for tick in ticks} == {0, 1}
    done = [tick for tick in ticks if tick.run_ended_at is not None]
    assert all((tick.run_ended_at or 0) - (tick.done_at or 0) == 5 * HOUR_MS for tick in done)
    assert len({tick.run for tick in ticks}) == runs


def test_runs_that_last_into_the_next_day_are_skipped_over_and_the_forecast_says_so():
    calendar = a_calendar(BEGIN).makes(a_schedule(WEEKDAYS, timezone=BERLIN), overlap="skip")
    ticks = a_year_of(calendar, run_hours=30)
    outcomes = Counter(tick.outcome for tick in ticks)
    # Monday runs and lasts over Tuesday's time, Wednesday over Thursday's; Friday has the weekend.
    assert outcomes == {TickOutcome.STARTED: 156, TickOutcome.SKIPPED: 104}
    assert all("was not over" in (tick.reason or "") for tick in ticks if tick.outcome is TickOutcome.SKIPPED)
    monday = [ms("2027-11-15 01:00"), ms("2027-11-16 01:00")]
    assert forecast(durations_ms(ticks), monday).verdict is ForecastVerdict.OVERRUNS
    friday = [ms("2027-11-19 01:00"), ms("2027-11-22 01:00")]
    assert forecast(durations_ms(ticks), friday).verdict is ForecastVerdict.FITS


def test_a_daemon_that_is_started_on_wednesday_makes_up_for_what_it_missed_once():
    calendar = a_calendar(BEGIN).makes(a_schedule(WEEKDAYS, timezone=BERLIN))
    calendar.down_until(ms("2026-11-17 22:00"))
    (monday, tuesday) = (calendar.tick(ms(f"2026-11-{day} 01:00")) for day in (16, 17))
    assert (monday.outcome, tuesday.outcome) == (TickOutcome.SKIPPED, TickOutcome.STARTED)
    assert "older than MaximumEventAgeInSeconds" in (monday.reason or "")
    assert "done late" in (tuesday.reason or "")
    assert calendar.world.state.schedules[KEY].last_run == tuesday.run
