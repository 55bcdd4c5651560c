"""Ticks: decided once, started, queued, replaced, skipped with a reason, caught up after a time without a daemon."""

from __future__ import annotations

import pytest

from tests.unit.control.schedules import BERLIN, KEY, a_calendar, a_schedule, ms
from windfall.capacity.environments import Switch
from windfall.control.calendar import LOOKS_MAX
from windfall.control.commands.calendar import CreateSchedule, DeleteSchedule, UpdateSchedule
from windfall.control.instructions import InvokeTarget, StopAttempt
from windfall.control.timekeeping import next_due
from windfall.jobs.states import FAILED, RUNNABLE, STARTING
from windfall.schedules.due_times import window_offset_ms
from windfall.schedules.schedule import TickOutcome

DUE, WAITING, STARTED, SKIPPED = (
    TickOutcome.DUE,
    TickOutcome.WAITING,
    TickOutcome.STARTED,
    TickOutcome.SKIPPED,
)
DAILY = "cron(0 2 * * ? *)"
MON, TUE, WED, THU = (ms(f"2026-11-{day} 02:00") for day in (16, 17, 18, 19))
MINUTE = 60_000


def test_a_due_time_starts_one_run_and_the_tick_says_which_and_how_it_ended():
    calendar = a_calendar().makes(a_schedule(DAILY)).until(MON)
    assert calendar.world.state_of(calendar.runs(MON)) in (RUNNABLE, STARTING)
    tick = calendar.tick(MON)
    assert (tick.outcome, tick.run, tick.done_at) == (STARTED, calendar.runs(MON), MON)
    assert calendar.world.state.schedules[KEY].last_run == calendar.runs(MON)
    calendar.world.ready()
    calendar.world.starts(calendar.runs(MON))
    calendar.world.now += 5_000
    calendar.ends(MON)
    tick = calendar.tick(MON)
    assert (tick.run_succeeded, tick.run_ended_at) == (True, MON + 5_000)
    assert calendar.world.state.ticks == {}
    assert calendar.world.state.calendar_index.runs == {}


def test_nothing_happens_between_due_times():
    calendar = a_calendar().makes(a_schedule(DAILY)).until(MON - 1)
    assert calendar.outcomes() == []
    assert calendar.until(MON).until(TUE - 1).outcomes() == [STARTED]


def test_overlap_is_allowed_unless_a_tag_says_otherwise():
    calendar = a_calendar().makes(a_schedule(DAILY)).until(TUE)
    assert calendar.outcomes() == [STARTED, STARTED]


def test_a_tick_is_skipped_while_the_run_before_is_not_over_and_names_it():
    calendar = a_calendar().makes(a_schedule(DAILY), overlap="skip").until(TUE)
    assert calendar.outcomes() == [STARTED, SKIPPED]
    assert calendar.runs(MON) in (calendar.tick(TUE).reason or "")
    assert "the run of 2026-11-16 02:00:00 UTC" in (calendar.tick(TUE).reason or "")
    calendar.ends(MON).until(WED)
    assert calendar.outcomes() == [STARTED, SKIPPED, STARTED]


def test_of_queued_ticks_the_newest_waits_and_starts_when_the_run_before_ends():
    calendar = a_calendar().makes(a_schedule(DAILY), overlap="queue").until(WED)
    assert calendar.outcomes() == [STARTED, SKIPPED, WAITING]
    assert "took its place" in (calendar.tick(TUE).reason or "")
    calendar.world.now += MINUTE
    calendar.ends(MON)
    assert calendar.outcomes() == [STARTED, SKIPPED, STARTED]
    assert calendar.tick(WED).done_at == WED + MINUTE
    assert "waited for the end of the run of 2026-11-16" in (calendar.tick(WED).reason or "")


def test_a_queued_tick_survives_a_restart():
    calendar = a_calendar().makes(a_schedule(DAILY), overlap="queue").until(TUE)
    calendar.world.restarted()
    assert calendar.ends(MON).outcomes() == [STARTED, STARTED]


def test_replace_terminates_the_run_before_and_starts_when_it_has_ended():
    calendar = a_calendar().makes(a_schedule(DAILY), overlap="replace").until(MON)
    calendar.world.ready()
    calendar.world.starts(calendar.runs(MON))
    calendar.until(TUE)
    assert calendar.outcomes() == [STARTED, WAITING]
    assert [one for one in calendar.world.asked if isinstance(one, StopAttempt)]
    calendar.ends(MON, code=143)
    assert calendar.outcomes() == [STARTED, STARTED]
    before = calendar.world.job(calendar.runs(MON))
    assert (before.state, before.status_reason) == (
        FAILED,
        f"Replaced by the run of 2026-11-17 02:00:00 UTC of schedule {KEY}",
    )


def test_replace_ends_a_run_that_has_no_place_yet_at_once():
    calendar = a_calendar().makes(a_schedule(DAILY), overlap="replace").until(TUE)
    assert calendar.outcomes() == [STARTED, STARTED]
    assert calendar.world.state_of(calendar.runs(MON)) is FAILED


@pytest.mark.parametrize(
    ("policy", "outcomes"),
    [
        ({}, [SKIPPED, SKIPPED, STARTED]),
        ({"catch_up": "once"}, [SKIPPED, SKIPPED, STARTED]),
        ({"catch_up": "all"}, [STARTED, STARTED, STARTED]),
        ({"catch_up": "skip"}, [SKIPPED, SKIPPED, SKIPPED]),
    ],
)
def test_ticks_that_were_missed_are_made_up_for_by_policy(policy, outcomes):
    hourly = a_schedule("cron(0 * * * ? *)")
    calendar = a_calendar("2026-11-15 12:30").makes(hourly, **policy)
    calendar.down_until(ms("2026-11-15 15:30"))
    assert calendar.outcomes() == outcomes
    last = calendar.tick(ms("2026-11-15 15:00"))
    assert last.caught_up is (last.outcome is STARTED)
    assert "no daemon ran at its time" in (last.reason or "")
    assert calendar.until(ms("2026-11-15 16:00")).outcomes() == [*outcomes, STARTED]


def test_a_daemon_that_is_back_within_a_minute_has_missed_nothing():
    calendar = a_calendar().makes(a_schedule(DAILY), catch_up="skip").down_until(MON + MINUTE)
    assert calendar.outcomes() == [STARTED]
    assert calendar.tick(MON).reason is None


def test_what_is_older_than_the_retry_policy_allows_is_skipped_with_that_reason():
    calendar = a_calendar().makes(a_schedule(DAILY, max_age_s=3600)).down_until(WED + 2 * 3_600_000)
    assert calendar.outcomes() == [SKIPPED]
    reason = calendar.tick(MON).reason or ""
    assert "MaximumEventAgeInSeconds (3600 s)" in reason
    assert "every other due time before 2026-11-18" in reason
    assert calendar.until(THU).outcomes() == [SKIPPED, STARTED]


def test_all_missed_ticks_run_one_after_the_other_when_they_queue():
    hourly = a_schedule("cron(0 * * * ? *)")
    calendar = a_calendar("2026-11-15 12:30").makes(hourly, catch_up="all", overlap="queue")
    calendar.down_until(ms("2026-11-15 15:30"))
    assert calendar.outcomes() == [STARTED, WAITING, WAITING]
    calendar.ends(ms("2026-11-15 13:00"))
    assert calendar.outcomes() == [STARTED, STARTED, WAITING]
    calendar.ends(ms("2026-11-15 14:00"))
    assert calendar.outcomes() == [STARTED, STARTED, STARTED]


def test_a_flexible_window_delays_the_run_and_not_the_tick():
    calendar = a_calendar().makes(a_schedule(DAILY, window_minutes=30)).until(MON)
    offset = window_offset_ms(KEY, MON, 30)
    assert 0 < offset < 30 * MINUTE
    assert (calendar.tick(MON).outcome, calendar.tick(MON).at) == (DUE, MON + offset)
    calendar.world.restarted()
    assert calendar.until(MON + offset - 1).outcomes() == [DUE]
    assert calendar.until(MON + offset).outcomes() == [STARTED]


def test_a_killed_daemon_asks_again_and_starts_nothing_twice():
    calendar = a_calendar().makes(a_schedule(DAILY))
    calendar.deaf = True
    calendar.until(MON)
    assert calendar.outcomes() == [DUE]
    calendar.world.restarted()
    calendar.deaf = False
    calendar.until(MON + 1000)
    assert calendar.outcomes() == [STARTED]
    (late,) = calendar.undone
    assert isinstance(late, InvokeTarget)
    calendar.does(late)
    assert [job for job in calendar.world.store.jobs if job.startswith("nightly")] == [calendar.runs(MON)]


def test_a_disabled_schedule_does_nothing_and_misses_nothing():
    calendar = a_calendar().makes(a_schedule(DAILY, switch=Switch.DISABLED)).until(TUE + MINUTE)
    assert calendar.outcomes() == []
    calendar.world.happens(UpdateSchedule(a_schedule(DAILY)))
    assert calendar.until(WED).outcomes() == [STARTED]


def test_what_waits_goes_with_its_schedule_and_what_runs_goes_on():
    calendar = a_calendar().makes(a_schedule(DAILY), overlap="queue").until(TUE)
    calendar.world.happens(DeleteSchedule(KEY))
    assert calendar.outcomes() == [STARTED, SKIPPED]
    assert "the schedule was deleted" in (calendar.tick(TUE).reason or "")
    assert calendar.ends(MON).tick(MON).run_succeeded is True


def test_a_run_that_is_asked_for_after_its_schedule_was_deleted_is_not_started():
    calendar = a_calendar().makes(a_schedule(DAILY))
    calendar.deaf = True
    calendar.until(MON)
    calendar.world.happens(DeleteSchedule(KEY))
    calendar.deaf = False
    calendar.does(calendar.undone[0])
    assert calendar.outcomes() == [SKIPPED]
    assert calendar.runs(MON) not in calendar.world.store.jobs


def test_a_one_time_schedule_is_removed_after_its_tick_if_it_says_so():
    at = ms("2026-11-16 02:00")
    calendar = a_calendar().makes(a_schedule("at(2026-11-16T02:00:00)", delete_when_done=True)).until(at)
    assert calendar.outcomes() == [STARTED]
    assert calendar.world.state.schedules == {}
    assert calendar.ends(at).tick(at).run_succeeded is True
    kept = a_calendar().makes(a_schedule("at(2026-11-16T02:00:00)")).until(at)
    assert KEY in kept.world.state.schedules


def test_a_schedule_with_an_end_is_removed_after_its_last_tick_and_not_before():
    calendar = a_calendar().makes(a_schedule(DAILY, end_at=TUE, delete_when_done=True)).until(MON)
    assert KEY in calendar.world.state.schedules
    assert calendar.until(TUE).outcomes() == [STARTED, STARTED]
    assert calendar.world.state.schedules == {}


def test_a_time_that_summer_time_leaves_out_is_recorded():
    spring = a_schedule("cron(30 2 * * ? *)", timezone=BERLIN)
    calendar = a_calendar("2027-03-27 12:00").makes(spring).until(ms("2027-03-29 12:00"))
    assert calendar.outcomes() == [SKIPPED, STARTED]
    assert "does not exist on 2027-03-28" in (calendar.tick(ms("2027-03-28 01:00")).reason or "")
    shifted = a_calendar("2027-03-27 12:00").makes(spring, summer_time="shift")
    assert shifted.until(ms("2027-03-29 12:00")).outcomes() == [STARTED, STARTED]


def test_the_history_of_a_busy_schedule_is_cut_now_and_then():
    calendar = a_calendar().makes(a_schedule("rate(1 minute)"))
    cut = []
    for _ in range(250):
        calendar.world.now += MINUTE
        before = calendar.world.state.calendar_index.uncut.get(KEY, 0)
        calendar.until(calendar.world.now)
        cut.append(calendar.world.state.calendar_index.uncut[KEY] < before)
    assert cut.count(True) == 2


def test_thousands_that_are_due_at_once_are_done_over_several_rounds():
    calendar = a_calendar()
    calendar.world.happens(*(CreateSchedule(a_schedule(DAILY, f"s{number}")) for number in range(LOOKS_MAX)))
    calendar.deaf = True
    calendar.world.now = MON
    calendar.world.later(0)
    calendar.carries_out()
    assert 0 < len(calendar.undone) < LOOKS_MAX
    assert next_due(calendar.world.state) == MON
    calendar.until(MON)
    assert len(calendar.undone) == LOOKS_MAX
    assert len({task.schedule.key for task in calendar.undone}) == LOOKS_MAX
