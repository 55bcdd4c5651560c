"""How `windfall schedule` reads times, and what it asks of EventBridge Scheduler's API."""

from __future__ import annotations

import pytest

from windfall.cli.errors import BadUsage
from windfall.cli.schedule import expression, local_timezone, schedule
from windfall.schedules.expressions import parse


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("every", "30m", "rate(30 minutes)"),
        ("every", "1h", "rate(1 hour)"),
        ("every", "1d", "rate(1 day)"),
        ("every", "2w", "rate(14 days)"),
        ("at", "2127-01-04 02:00", "at(2127-01-04T02:00:00)"),
        ("at", "2127-01-04T02:00:30", "at(2127-01-04T02:00:30)"),
        ("cron", "0 2 * * *", "cron(0 2 * * ? *)"),
        ("cron", "0 2 1 * *", "cron(0 2 1 * ? *)"),
        ("cron", "0 2 * * 1-5", "cron(0 2 ? * MON,TUE,WED,THU,FRI *)"),
        ("cron", "0 2 * * 0", "cron(0 2 ? * SUN *)"),
        ("cron", "0 2 * * 7", "cron(0 2 ? * SUN *)"),
        ("cron", "0 2 * * 5-7", "cron(0 2 ? * SUN,FRI,SAT *)"),
        ("cron", "*/15 8-17 * * mon-fri", "cron(*/15 8-17 ? * MON-FRI *)"),
        ("cron", "0 2 * * */2", "cron(0 2 ? * SUN,TUE,THU,SAT *)"),
        ("cron", "0 2 ? * MON-FRI *", "cron(0 2 ? * MON-FRI *)"),
        ("cron", "cron(0 2 ? * MON-FRI *)", "cron(0 2 ? * MON-FRI *)"),
    ],
)
def test_times_become_expressions_that_the_daemon_reads(option, text, said):
    given = dict.fromkeys(("every", "cron", "at")) | {option: text}
    assert expression(**given) == said
    parse(said)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "one of --every"),
        ({"every": "1d", "at": "2127-01-04 02:00"}, "one of --every"),
        ({"every": "often"}, "30m, 6h, 1d or 2w"),
        ({"every": "0h"}, "30m, 6h, 1d or 2w"),
        ({"at": "tomorrow"}, "'2027-01-04 02:00'"),
        ({"cron": "0 2 * *"}, "has 4 fields"),
        ({"cron": "0 2 1 * 1"}, "two schedules"),
        ({"cron": "0 2 * * 8"}, "not a weekday"),
        ({"cron": "0 2 * * 5-1"}, "names no weekday"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(given, said):
    with pytest.raises(BadUsage, match=said):
        expression(**(dict.fromkeys(("every", "cron", "at")) | given))


def test_the_time_zone_is_that_of_the_host(tmp_path):
    assert local_timezone({"TZ": "Europe/Berlin"}, tmp_path) == "Europe/Berlin"
    assert local_timezone({"TZ": "CET-1CEST"}, tmp_path) == "UTC"
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/America/New_York")
    assert local_timezone({}, tmp_path) == "America/New_York"


def test_the_options_of_run_are_those_of_create():
    options = {option for parameter in schedule.commands["create"].params for option in parameter.opts}
    assert {"--gpus", "--checkpoint", "--spot", "--every", "--cron", "--at", "--timezone"} <= options


def test_a_job_that_is_over_by_then_cannot_be_waited_for(windfall):
    ran = windfall("schedule", "create", "x", "--every", "1d", "--after", "a", "--", "true")
    assert (ran.code, "--after" in ran.err) == (2, True)
    assert windfall("schedule", "create", "x", "--", "true").code == 2


def test_a_schedule_needs_a_name(daemon, windfall):
    ran = windfall("schedule", "create", "", "--every", "1h", "--clean", "--", "true")
    assert ran.code == 2
    assert "NAME is empty" in ran.err
    assert daemon.asked == []
