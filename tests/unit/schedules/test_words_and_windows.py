"""What a schedule says in plain words, flexible windows, policy tags, and the core without a zone database."""

from __future__ import annotations

import pytest

from tests.unit.schedules.schedules import a_schedule
from windfall.schedules.due_times import window_offset_ms
from windfall.schedules.errors import ScheduleError, UnknownZone
from windfall.schedules.schedule import CatchUp, Overlap, ScheduleGroup, SummerTime
from windfall.schedules.tag_rules import Policies, check_policy_tags, policies_of
from windfall.schedules.wording import describe
from windfall.schedules.zones import utc_only


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("cron(0 2 ? * MON-FRI *)", "Monday to Friday at 02:00 Europe/Berlin"),
        ("cron(0 2 ? * 2-6 *)", "Monday to Friday at 02:00 Europe/Berlin"),
        ("cron(0 2 ? * 1-5 *)", "Monday to Thursday and Sunday at 02:00 Europe/Berlin"),
        ("cron(0 2 ? * SAT,SUN *)", "Saturday and Sunday at 02:00 Europe/Berlin"),
        ("cron(0 2 * * ? *)", "every day at 02:00 Europe/Berlin"),
        ("cron(0 2 ? * * *)", "every day at 02:00 Europe/Berlin"),
        ("cron(0,30 2,14 * * ? *)", "every day at 02:00, 02:30, 14:00 and 14:30 Europe/Berlin"),
        ("cron(* * * * ? *)", "every minute Europe/Berlin"),
        ("cron(0/5 * * * ? *)", "every 5 minutes Europe/Berlin"),
        ("cron(0 * * * ? *)", "every hour Europe/Berlin"),
        ("cron(20 * * * ? *)", "every hour at minute 20 Europe/Berlin"),
        ("cron(0 */2 * * ? *)", "every 2 hours Europe/Berlin"),
        ("cron(7 */2 * * ? *)", "every 2 hours at minute 7 Europe/Berlin"),
        ("cron(0/15 */2 * * ? *)", "every 15 minutes of every 2nd hour Europe/Berlin"),
        (
            "cron(0/15 8-10 ? * MON *)",
            "Monday every 15 minutes in the hours 08 to 10 Europe/Berlin",
        ),
        ("cron(0 12 ? * 2#1 *)", "the first Monday of the month at 12:00 Europe/Berlin"),
        ("cron(0 12 ? * 6L *)", "the last Friday of the month at 12:00 Europe/Berlin"),
        ("cron(0 0 L * ? *)", "the last day of the month at 00:00 Europe/Berlin"),
        ("cron(0 0 L-3 * ? *)", "3 days before the last day of the month at 00:00 Europe/Berlin"),
        ("cron(0 0 LW * ? *)", "the last weekday of the month at 00:00 Europe/Berlin"),
        ("cron(0 0 15W * ? *)", "the weekday nearest to the 15th of the month at 00:00 Europe/Berlin"),
        (
            "cron(0 0 1,11-13,22 * ? *)",
            "the 1st, the 11th to 13th and the 22nd of the month at 00:00 Europe/Berlin",
        ),
        ("cron(0 0 3 1,7 ? 2027)", "the 3rd of the month in January and July in 2027 at 00:00 Europe/Berlin"),
        ("rate(1 hour)", "every hour"),
        ("rate(5 minutes)", "every 5 minutes"),
        ("at(2027-01-04T02:00:00)", "once on 2027-01-04 at 02:00 Europe/Berlin"),
        ("at(2027-01-04T02:00:30)", "once on 2027-01-04 at 02:00:30 Europe/Berlin"),
    ],
)
def test_a_schedule_says_when_it_runs(expression, words):
    assert describe(a_schedule(expression, "Europe/Berlin")) == words


def test_a_window_moves_a_tick_by_the_same_each_time_and_never_out_of_it():
    offsets = [window_offset_ms("default/nightly", due_at, 15) for due_at in range(0, 100_000_000, 1_000_000)]
    assert offsets == [
        window_offset_ms("default/nightly", due_at, 15) for due_at in range(0, 100_000_000, 1_000_000)
    ]
    assert all(0 <= offset < 15 * 60_000 for offset in offsets)
    assert len({offset // 60_000 for offset in offsets}) == 15
    assert window_offset_ms("default/other", 0, 15) != offsets[0]


def test_without_a_window_a_tick_is_on_time():
    assert window_offset_ms("default/nightly", 5, None) == 0


def test_tags_say_what_aws_cannot_and_the_schedules_own_win():
    group = ScheduleGroup("g", tags={"windfall:overlap": "skip", "windfall:catch-up": "all", "team": "a"})
    schedule = a_schedule("rate(1 hour)", tags={"windfall:overlap": "queue", "windfall:summer-time": "shift"})
    assert policies_of(schedule, group) == Policies(Overlap.QUEUE, CatchUp.ALL, SummerTime.SHIFT)
    assert policies_of(a_schedule("rate(1 hour)"), None) == Policies(
        Overlap.ALLOW, CatchUp.ONCE, SummerTime.AWS
    )


@pytest.mark.parametrize(
    ("tag", "allowed"),
    [
        ("windfall:overlap", "allow, skip, queue, replace"),
        ("windfall:catch-up", "once, all, skip"),
        ("windfall:summer-time", "aws, shift"),
    ],
)
def test_a_tag_that_means_nothing_is_refused(tag, allowed):
    with pytest.raises(ScheduleError, match=f"Tag {tag} is 'later'; write one of {allowed}"):
        check_policy_tags({"team": "later", tag: "later"})


def test_a_tag_of_ours_that_no_schedule_has_is_refused_with_those_there_are():
    with pytest.raises(
        ScheduleError, match="no tag windfall:overlaps; there are windfall:overlap, windfall:catch"
    ):
        check_policy_tags({"team": "vision", "windfall:overlaps": "skip"})


def test_a_core_that_was_given_no_zones_has_one():
    assert utc_only("UTC").utcoffset(None) is not None
    with pytest.raises(UnknownZone, match="there is UTC alone"):
        utc_only("Europe/Berlin")
