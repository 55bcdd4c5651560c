"""A target that cannot be invoked is asked again, less and less often, and in the end told as a dead letter."""

from __future__ import annotations

from tests.unit.control.schedules import KEY, a_calendar, a_schedule, ms
from windfall.control.calendar_runs import RETRY_MS
from windfall.control.commands.calendar import DeadLetterWritten, TargetFailed
from windfall.schedules.schedule import TickOutcome

DAILY = "cron(0 2 * * ? *)"
MON = ms("2026-11-16 02:00")
QUEUE = "arn:aws:sqs:us-east-1:123456789012:failed-ticks"


def test_a_target_is_asked_again_with_doubled_pauses_until_it_answers():
    calendar = a_calendar().makes(a_schedule(DAILY))
    calendar.refusal = "the store is busy"
    calendar.until(MON)
    tick = calendar.tick(MON)
    assert (tick.outcome, tick.attempts, tick.at, tick.error) == (
        TickOutcome.DUE,
        1,
        MON + 1_000,
        "the store is busy",
    )
    assert calendar.until(MON + 1_000).tick(MON).at == MON + 3_000
    assert calendar.until(MON + 3_000).tick(MON).at == MON + 7_000
    calendar.world.restarted()
    calendar.refusal = None
    tick = calendar.until(MON + 7_000).tick(MON)
    assert (tick.outcome, tick.attempts, tick.error) == (TickOutcome.STARTED, 4, None)


def test_the_defaults_of_aws_fit_together_185_retries_fill_a_day():
    calendar = a_calendar().makes(a_schedule(DAILY))
    calendar.refusal = "no"
    calendar.until(MON + 86_400_000 - 1)
    tick = calendar.tick(MON)
    assert tick.outcome is TickOutcome.FAILED
    assert 180 <= tick.attempts <= 186
    assert (tick.done_at or 0) > MON + 86_400_000 - 5 * RETRY_MS.most


def test_it_gives_up_after_the_retries_that_were_allowed():
    calendar = a_calendar().makes(a_schedule(DAILY, retries=2))
    calendar.refusal = "no"
    tick = calendar.until(MON + 60_000).tick(MON)
    assert (tick.outcome, tick.attempts, tick.reason) == (TickOutcome.FAILED, 3, "asked 3 times: no")
    assert calendar.letters == []


def test_it_gives_up_at_once_when_asking_again_is_no_help():
    calendar = a_calendar().makes(a_schedule(DAILY))
    calendar.refusal, calendar.again = "JobQueue gone does not exist", False
    tick = calendar.until(MON).tick(MON)
    assert (tick.outcome, tick.reason) == (TickOutcome.FAILED, "asked once: JobQueue gone does not exist")


def test_a_dead_letter_is_written_once_it_was_asked_for_and_again_after_a_crash():
    calendar = a_calendar().makes(a_schedule(DAILY, retries=0, dead_letter=QUEUE))
    calendar.deaf = True
    calendar.until(MON)
    calendar.world.happens(TargetFailed(KEY, MON, "no", again=True))
    calendar.until(MON)
    assert calendar.tick(MON).letter_due
    calendar.world.restarted()
    calendar.deaf = False
    calendar.until(MON + 1)
    assert [(letter.error, letter.attempts) for letter in calendar.letters] == [("no", 1)]
    assert not calendar.tick(MON).undone
    calendar.world.happens(DeadLetterWritten(KEY, MON))
    calendar.world.restarted()
    calendar.until(MON + 2)
    assert len(calendar.letters) == 1


def test_a_schedule_that_goes_when_done_stays_until_its_letter_is_written():
    once = a_schedule("at(2026-11-16T02:00:00)", delete_when_done=True, retries=0, dead_letter=QUEUE)
    calendar = a_calendar().makes(once)
    calendar.deaf = True
    calendar.until(MON)
    calendar.world.happens(TargetFailed(KEY, MON, "no"))
    assert KEY in calendar.world.state.schedules
    calendar.deaf = False
    calendar.until(MON + 1)
    assert calendar.world.state.schedules == {}
    assert len(calendar.letters) == 1


def test_a_late_answer_for_a_tick_that_is_closed_changes_nothing():
    calendar = a_calendar().makes(a_schedule(DAILY)).until(MON)
    before = calendar.tick(MON)
    calendar.world.happens(TargetFailed(KEY, MON, "late", again=True))
    assert calendar.tick(MON) == before


def test_a_run_that_fails_says_so_in_its_tick():
    calendar = a_calendar().makes(a_schedule(DAILY)).until(MON).ends(MON, code=3)
    tick = calendar.tick(MON)
    assert (tick.outcome, tick.run_succeeded) == (TickOutcome.STARTED, False)
