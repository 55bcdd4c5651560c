"""A job's priority can be changed while it lives: its turn changes, and the change is stored with it."""

from __future__ import annotations

import pytest

from tests.builders import a_busy_world, a_job
from tests.fair_worlds import a_fair_world
from windfall.control.commands.turns import HoldJob, ReleaseJob, SetPriority
from windfall.control.prioritizing import CHANGES_MAX, turn_with
from windfall.control.rebuild import rebuild
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import JobId
from windfall.jobs.job import PriorityChange
from windfall.jobs.states import RUNNABLE, RUNNING, STARTING


@pytest.fixture
def world():
    """One GPU, which `first` has, and three jobs of one share behind it."""
    world = a_fair_world(gpus=1).submits(a_job("first").under("a").gpus(1)).starts("first")
    return world.submits(*(a_job(name).under("a").gpus(1) for name in ("x", "y", "z")))


def set_priority(world, job_id: str, priority: int, by: str = "ann"):
    return world.happens(SetPriority(JobId(job_id), priority, by))


def test_the_higher_goes_first_though_it_came_last(world):
    set_priority(world, "z", 5)
    world.exits("first")
    assert [world.state_of(name) for name in "xyz"] == [RUNNABLE, RUNNABLE, STARTING]


def test_equal_ones_keep_their_order_of_arrival(world):
    set_priority(world, "z", 5)
    set_priority(world, "y", 5)
    world.exits("first")
    assert world.state_of("y") is STARTING


def test_what_it_would_change_is_told_and_changes_nothing(world):
    turn = turn_with(world.state, world.job("z"), 5)
    assert (turn.share, turn.priority, turn.ahead, turn.ahead_then) == ("a", 0, 2, 0)
    assert world.job("z").submission.priority == 0
    assert turn_with(world.state, world.job("first"), 5).ahead is None


def test_the_change_is_stored_and_outlives_the_daemon(world):
    set_priority(world, "z", 5)
    change = PriorityChange(world.now, "ann", 0, 5)
    assert world.job("z").priority_changes == (change,)
    again = rebuild(world.store.load(), world.state.rules)
    assert again.jobs[JobId("z")].submission.priority == 5
    assert again.jobs[JobId("z")].priority_changes == (change,)
    assert turn_with(again, again.jobs[JobId("z")], 5).ahead == 0


def test_only_the_newest_changes_are_stored(world):
    for number in range(1, CHANGES_MAX + 6):
        set_priority(world, "z", number)
    changes = world.job("z").priority_changes
    assert len(changes) == CHANGES_MAX
    assert changes[-1].priority == CHANGES_MAX + 5


def test_the_same_priority_again_changes_nothing(world):
    set_priority(world, "z", 0)
    assert world.job("z").priority_changes == ()


def test_an_array_changes_as_a_whole():
    world = a_fair_world(gpus=1).submits(a_job("first").under("a").gpus(1)).starts("first")
    world.submits(a_job("x").under("a").gpus(1), a_job("many").under("a").gpus(1).array(3))
    set_priority(world, "many", 7)
    world.exits("first")
    assert world.state_of("many:0") is STARTING
    assert world.job("many:0").submission.priority == 7
    world.starts("many:0").exits("many:0")
    assert world.state_of("many:1") is STARTING
    with pytest.raises(Invalid, match="part of job many"):
        set_priority(world, "many:1", 1)


def test_a_held_job_waits_with_its_new_priority(world):
    world.happens(HoldJob(JobId("z"), "ann"))
    set_priority(world, "z", 5)
    world.exits("first")
    assert world.state_of("z") is RUNNABLE
    assert world.state_of("x") is STARTING
    world.happens(ReleaseJob(JobId("z")))
    world.starts("x").exits("x")
    assert world.state_of("z") is STARTING


def test_a_running_job_goes_on(world):
    set_priority(world, "first", 9)
    assert world.state_of("first") is RUNNING


@pytest.mark.parametrize(("job", "priority"), [("z", -1), ("z", 10_000), ("nobody", 1)])
def test_nonsense_is_refused_with_nothing_changed(world, job, priority):
    with pytest.raises(Invalid):
        set_priority(world, job, priority)
    assert world.job("z").submission.priority == 0


def test_a_job_in_no_share_has_no_priority():
    world = a_busy_world().submits(a_job("plain"))
    with pytest.raises(Invalid, match="in no share"):
        set_priority(world, "plain", 1)
