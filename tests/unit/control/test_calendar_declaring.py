"""Schedules and groups are declared: everything that should change does, or nothing."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from tests.builders import START, a_world
from tests.unit.schedules.schedules import a_schedule, ms
from windfall.capacity.environments import Switch
from windfall.control import calendar_declaring
from windfall.control.commands.calendar import (
    CreateSchedule,
    CreateScheduleGroup,
    DeleteSchedule,
    DeleteScheduleGroup,
    TagSchedules,
    UpdateSchedule,
)
from windfall.control.state import CLIENT_TOKEN_MS
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import JobId
from windfall.jobs.submitters import Submitter
from windfall.schedules.errors import LimitReached, ScheduleError
from windfall.schedules.schedule import Schedule, ScheduleGroup

NIGHTLY = a_schedule("cron(0 2 * * ? *)", "Europe/Berlin", document='{"ClientToken":"one"}')


@pytest.fixture
def world():
    return a_world(zones=ZoneInfo)


def test_a_schedule_is_created_once(world):
    made = world.happens(CreateSchedule(NIGHTLY))
    assert (made.created_at, made.modified_at, made.decided_at) == (START, START, START - 1)
    assert world.state.schedules == {"default/nightly": made}
    assert set(world.state.schedule_groups) == {"default"}
    world.now += 5
    assert world.happens(CreateSchedule(NIGHTLY)) == made
    with pytest.raises(Conflict, match="Schedule nightly already exists"):
        world.happens(CreateSchedule(replace(NIGHTLY, document='{"ClientToken":"two"}')))


def test_schedules_and_groups_survive_a_restart(world):
    world.happens(CreateScheduleGroup(ScheduleGroup("team", tags={"windfall:overlap": "skip"})))
    world.happens(CreateSchedule(replace(NIGHTLY, group="team")))
    before = world.picture()
    world.restarted()
    assert (world.state.schedules, world.state.schedule_groups) == (before.schedules, before.schedule_groups)
    world.happens(DeleteScheduleGroup("team"))
    world.restarted()
    assert (world.state.schedules, world.state.schedule_groups) == ({}, {})


def test_a_name_may_be_used_again_in_another_group(world):
    world.happens(CreateScheduleGroup(ScheduleGroup("team")))
    world.happens(CreateSchedule(NIGHTLY), CreateSchedule(replace(NIGHTLY, group="team")))
    assert set(world.state.schedules) == {"default/nightly", "team/nightly"}


def test_an_update_replaces_all_but_what_is_remembered(world):
    world.happens(CreateSchedule(replace(NIGHTLY, start_at=1, window_minutes=5)))
    world.happens(TagSchedules("default", "nightly", {"windfall:overlap": "skip"}))
    key = "default/nightly"
    world.state.schedules[key] = replace(
        world.state.schedules[key], last_run=JobId("run"), decided_at=START + 9
    )
    world.now += 60_000
    new = world.happens(UpdateSchedule(a_schedule("rate(1 hour)", document="{}")))
    assert new == Schedule(
        "default",
        "nightly",
        "rate(1 hour)",
        NIGHTLY.target,
        created_at=START,
        modified_at=START + 60_000,
        tags={"windfall:overlap": "skip"},
        decided_at=START + 60_000 - 1,
        last_run=JobId("run"),
    )


def test_an_update_that_leaves_the_times_alone_loses_none_that_are_due(world):
    made = world.happens(CreateSchedule(NIGHTLY))
    world.now += 10 * 86_400_000
    same = replace(NIGHTLY, document='{"Description":"x"}', window_minutes=3)
    assert world.happens(UpdateSchedule(same)).decided_at == made.decided_at


MEMBER, ADMIN = Submitter("default", "AKIAMEMBER"), Submitter("default", "AKIAADMIN", is_admin=True)
MAPPED = Submitter("default", "AKIAMAPPED", user="alice")
OTHER_TARGET = replace(NIGHTLY.target, input="another")


@pytest.mark.parametrize(
    ("maker", "caller"),
    [(MEMBER, ADMIN), (MEMBER, MAPPED), (MAPPED, MEMBER), (MAPPED, ADMIN), (ADMIN, MEMBER)],
)
def test_pausing_a_schedule_lends_it_nobodys_rights(world, maker, caller):
    world.happens(CreateSchedule(replace(NIGHTLY, submitter=maker)))
    for switch in (Switch.DISABLED, Switch.ENABLED):
        paused = world.happens(UpdateSchedule(replace(NIGHTLY, switch=switch, submitter=caller)))
        assert (paused.switch, paused.submitter) == (switch, maker)


@pytest.mark.parametrize(
    ("maker", "caller", "owner"),
    [(MEMBER, ADMIN, MEMBER), (MAPPED, ADMIN, MAPPED), (ADMIN, MEMBER, MEMBER), (ADMIN, ADMIN, ADMIN)],
)
def test_a_new_target_has_no_more_rights_than_the_old_one(world, maker, caller, owner):
    world.happens(CreateSchedule(replace(NIGHTLY, submitter=maker)))
    asked = replace(NIGHTLY, target=OTHER_TARGET, submitter=caller)
    assert world.happens(UpdateSchedule(asked)).submitter == owner


@pytest.mark.parametrize(("maker", "caller"), [(MEMBER, MAPPED), (MAPPED, MEMBER)])
def test_a_target_is_not_changed_by_a_key_of_another_user(world, maker, caller):
    made = world.happens(CreateSchedule(replace(NIGHTLY, submitter=maker)))
    with pytest.raises(Conflict, match="run as another user"):
        world.happens(UpdateSchedule(replace(NIGHTLY, target=OTHER_TARGET, submitter=caller)))
    assert world.state.schedules == {made.key: made}


def test_another_key_with_the_same_rights_takes_a_schedule_over(world):
    world.happens(CreateSchedule(replace(NIGHTLY, submitter=MEMBER)))
    other = replace(MEMBER, key_id="AKIANEW")
    assert world.happens(UpdateSchedule(replace(NIGHTLY, submitter=other))).submitter == other


def test_a_schedule_that_was_off_makes_up_for_nothing(world):
    world.happens(CreateSchedule(replace(NIGHTLY, switch=Switch.DISABLED)))
    world.now += 10 * 86_400_000
    assert world.happens(UpdateSchedule(NIGHTLY)).decided_at == world.now - 1


def test_a_deleted_schedule_is_gone_and_its_name_free(world):
    world.happens(CreateSchedule(NIGHTLY))
    world.happens(DeleteSchedule("default/nightly"))
    assert world.state.schedules == {}
    world.happens(CreateSchedule(replace(NIGHTLY, document="{}")))
    assert set(world.state.schedules) == {"default/nightly"}


DELETES = [DeleteSchedule("team/nightly", "t"), DeleteScheduleGroup("team", "t")]


@pytest.fixture
def team(world):
    world.happens(CreateScheduleGroup(ScheduleGroup("team")))
    world.happens(CreateSchedule(replace(NIGHTLY, group="team")))
    return world


@pytest.mark.parametrize("delete", DELETES)
def test_a_deletion_that_comes_again_is_done_whichever_daemon_hears_it(team, delete):
    team.happens(delete)
    assert team.restarted().happens(delete) is None
    for other in (replace(delete, client_token="other"), replace(delete, client_token=None)):
        with pytest.raises(NotFound):
            team.happens(other)


def test_a_deletion_that_comes_again_spares_what_has_the_name_now(team):
    team.happens(DELETES[0])
    made = team.happens(CreateSchedule(replace(NIGHTLY, group="team", document="{}")))
    team.happens(DELETES[0])
    assert team.state.schedules == {"team/nightly": made}


def test_a_refused_deletion_is_not_taken_for_done(world):
    delete = DeleteSchedule("default/nightly", "t")
    with pytest.raises(NotFound):
        world.happens(delete)
    world.happens(CreateSchedule(NIGHTLY))
    world.happens(delete)
    assert world.state.schedules == {}


def test_deletions_are_forgotten_in_time(team):
    team.happens(DELETES[0])
    team.now += CLIENT_TOKEN_MS
    with pytest.raises(NotFound):
        team.happens(DELETES[0])
    team.later(0)
    assert team.state.deletions == {}
    assert team.restarted().state.deletions == {}


def test_of_many_deletions_the_latest_are_remembered(team, monkeypatch):
    monkeypatch.setattr(calendar_declaring, "DELETIONS_MAX", 2)
    for number in range(4):
        team.now += 1
        team.happens(CreateSchedule(replace(NIGHTLY, document=str(number))))
        team.happens(DeleteSchedule(NIGHTLY.key, f"t{number}"))
    assert list(team.state.deletions) == ["default/nightly t2", "default/nightly t3"]
    assert team.restarted().state.deletions.keys() == {"default/nightly t2", "default/nightly t3"}


def test_the_same_group_request_again_is_no_error(world):
    asked = ScheduleGroup("team", tags={"a": "b"}, client_token="t")
    made = world.happens(CreateScheduleGroup(asked))
    assert world.happens(CreateScheduleGroup(asked)) == made
    with pytest.raises(Conflict):
        world.happens(CreateScheduleGroup(replace(asked, tags={})))
    with pytest.raises(Conflict):
        world.happens(CreateScheduleGroup(replace(asked, client_token=None)))


def test_tags_come_and_go(world):
    world.happens(CreateScheduleGroup(ScheduleGroup("team", tags={"a": "1"})))
    world.happens(TagSchedules("team", None, {"b": "2", "windfall:catch-up": "all"}, ("a",)))
    world.happens(TagSchedules("default", None, {"c": "3"}))
    assert world.state.schedule_groups["team"].tags == {"b": "2", "windfall:catch-up": "all"}
    assert world.state.schedule_groups["default"].tags == {"c": "3"}


def test_at_may_name_the_minute_that_is_just_going_on(world):
    world.now = ms("2027-01-04T02:00:40")
    made = world.happens(CreateSchedule(a_schedule("at(2027-01-04T02:00:00)")))
    assert made.decided_at < ms("2027-01-04T02:00:00")


def a_new(expression: str, *more, **others) -> CreateSchedule:
    return CreateSchedule(replace(a_schedule(expression, *more, **others), name="new"))


MANY_TAGS = {str(number): "x" for number in range(51)}
REFUSED = [
    (CreateSchedule(replace(NIGHTLY, group="none")), NotFound, "Schedule group none does not exist."),
    (
        a_new("at(2020-01-01T00:00:00)"),
        ScheduleError,
        "is never due from now on; write a time",
    ),
    (a_new("cron(0 0 31 2 ? *)"), ScheduleError, "is never due from now on"),
    (a_new("cron(0 0 1 1 ? 2001)"), ScheduleError, "is never due"),
    (a_new("rate(1 hour)", end_at=5), ScheduleError, "from now on until its EndDate"),
    (
        a_new("at(2027-03-28T02:30:00)", "Europe/Berlin"),
        ScheduleError,
        "would never run: 02:30 does not exist on 2027-03-28",
    ),
    (UpdateSchedule(a_schedule("cron(0 0 31 2 ? *)", "UTC")), ScheduleError, "is never due"),
    (
        UpdateSchedule(replace(NIGHTLY, name="none")),
        NotFound,
        "Schedule none does not exist.",
    ),
    (DeleteSchedule("default/none"), NotFound, "Schedule none does not exist"),
    (CreateScheduleGroup(ScheduleGroup("default")), Conflict, "Schedule group default already exists."),
    (CreateScheduleGroup(ScheduleGroup("team")), Conflict, "Schedule group team already exists."),
    (
        CreateScheduleGroup(ScheduleGroup("new", tags={"windfall:overlap": "x"})),
        Invalid,
        "write one of allow, skip",
    ),
    (
        CreateScheduleGroup(ScheduleGroup("new", tags=MANY_TAGS)),
        Invalid,
        "at most 50 tags; this would make 51",
    ),
    (DeleteScheduleGroup("default"), Invalid, "The default schedule group cannot be deleted"),
    (DeleteScheduleGroup("none"), NotFound, "Schedule group none does not exist."),
    (TagSchedules("none", None, {"a": "b"}), NotFound, "Schedule group none does not exist."),
    (
        TagSchedules("team", "none", {"a": "b"}),
        NotFound,
        "Schedule none does not exist.",
    ),
    (TagSchedules("team", None, MANY_TAGS), Invalid, "at most 50 tags"),
    (
        TagSchedules("default", "nightly", {"windfall:catch-up": "never"}),
        Invalid,
        "write one of once, all, skip",
    ),
]


@pytest.mark.parametrize(("command", "error", "text"), REFUSED)
def test_what_is_refused_changes_nothing(world, command, error, text):
    world.happens(CreateScheduleGroup(ScheduleGroup("team")))
    world.happens(CreateSchedule(NIGHTLY))
    before = world.picture()
    with pytest.raises(error, match=text):
        world.happens(command)
    assert world.state == before


def test_a_group_that_shifts_lets_a_missing_time_run(world):
    world.happens(CreateScheduleGroup(ScheduleGroup("team", tags={"windfall:summer-time": "shift"})))
    once = replace(a_schedule("at(2027-03-28T02:30:00)", "Europe/Berlin"), group="team")
    assert world.happens(CreateSchedule(once)).group == "team"


def test_there_are_limits(world, monkeypatch):
    monkeypatch.setattr(calendar_declaring, "SCHEDULES_MAX", 1)
    monkeypatch.setattr(calendar_declaring, "GROUPS_MAX", 2)
    world.happens(CreateSchedule(NIGHTLY), CreateScheduleGroup(ScheduleGroup("team")))
    with pytest.raises(LimitReached, match="There are 1 schedules already; delete some first"):
        world.happens(CreateSchedule(replace(NIGHTLY, name="second")))
    with pytest.raises(LimitReached, match="There are 2 schedule groups already; delete one first"):
        world.happens(CreateScheduleGroup(ScheduleGroup("third")))
