"""A held job does not start, and goes on where it was when it is released."""

from __future__ import annotations

import pytest

from tests.builders import HOST, a_busy_world, a_job
from windfall.capacity.machines import Offer
from windfall.control.commands.turns import HoldJob, ReleaseJob
from windfall.control.events import CancelJob
from windfall.control.rebuild import rebuild
from windfall.control.why import why
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import JobId
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, RUNNING, STARTING


@pytest.fixture
def world():
    """A world whose 64 vCPUs are taken by `first`."""
    return a_busy_world().submits(a_job("taker").vcpus(64)).starts("taker")


def hold(world, job_id: str, by: str = "alice"):
    return world.happens(HoldJob(JobId(job_id), by))


def release(world, job_id: str):
    return world.happens(ReleaseJob(JobId(job_id)))


def reasons(world, job_id: str):
    offers = {"environment": (Offer("host", world.machine.total, 1, HOST),)}
    return dict(why(world.state, JobId(job_id), offers, world.now).reasons)


def test_a_held_job_does_not_start_when_there_is_room(world):
    world.submits(a_job("a"), a_job("b"))
    hold(world, "a")
    world.exits("taker")
    assert (world.state_of("a"), world.state_of("b")) == (RUNNABLE, STARTING)
    assert world.job("a").status_reason == "Held by alice"
    release(world, "a")
    assert world.state_of("a") is STARTING
    assert world.job("a").status_reason is None


def test_a_released_job_has_its_old_place_in_the_queue(world):
    world.submits(a_job("a").vcpus(64), a_job("b").vcpus(64))
    hold(world, "a")
    release(world, "a")
    world.exits("taker")
    assert (world.state_of("a"), world.state_of("b")) == (STARTING, RUNNABLE)


def test_why_says_who_holds_it_and_how_it_is_released(world):
    world.submits(a_job("a"), a_job("b").after("a"))
    hold(world, "a")
    hold(world, "b", by="bob")
    assert reasons(world, "a")["held"] == (
        "is held by alice, and starts after `windfall release a`; ask alice before you do that"
    )
    assert set(reasons(world, "b")) == {"held", "dependency"}


def test_dependencies_are_met_while_a_job_is_held(world):
    world.submits(a_job("b").after("taker"))
    assert world.state_of("b") is PENDING
    hold(world, "b")
    world.exits("taker")
    assert world.state_of("b") is RUNNABLE
    release(world, "b")
    assert world.state_of("b") is STARTING


def test_a_job_that_runs_is_refused_with_what_to_do(world):
    with pytest.raises(Invalid, match="windfall interrupt"):
        hold(world, "taker")
    assert world.job("taker").held_by is None
    assert world.state_of("taker") is RUNNING


def test_an_array_is_held_as_a_whole_and_its_running_children_go_on(world):
    world.exits("taker")
    world.submits(a_job("many").array(4).vcpus(32))
    assert world.state.children["many"].summary()["STARTING"] == 2
    hold(world, "many")
    world.starts("many:0").exits("many:0")
    summary = world.state.children["many"].summary()
    assert (summary["STARTING"], summary["RUNNABLE"]) == (1, 2)
    assert "held" in reasons(world, "many")
    assert "held" in reasons(world, "many:3")
    release(world, "many")
    assert world.state.children["many"].summary()["STARTING"] == 2
    with pytest.raises(Invalid, match="as a whole: name many"):
        hold(world, "many:3")


def test_a_child_of_a_held_array_that_is_tried_again_waits_too(world):
    world.exits("taker")
    world.submits(a_job("many").array(2).vcpus(32).retried(2)).starts("many:0").starts("many:1")
    with pytest.raises(Invalid, match="nothing left to hold"):
        hold(world, "many")
    world.submits(a_job("next").array(2).vcpus(64).retried(2))
    hold(world, "next")
    world.exits("many:0").exits("many:1")
    assert world.state.children["next"].summary()["RUNNABLE"] == 2


def test_a_held_job_can_be_cancelled_also_a_child_of_a_held_array(world):
    world.submits(a_job("a"), a_job("many").array(3))
    hold(world, "a")
    hold(world, "many")
    world.happens(CancelJob(JobId("a"), "no"))
    world.happens(CancelJob(JobId("many:1"), "no"))
    assert world.store.jobs["a"].state is FAILED
    assert world.store.jobs["many:1"].state is FAILED
    release(world, "many")
    assert world.state.backlog.count == 2


def test_holding_and_releasing_twice_changes_nothing(world):
    world.submits(a_job("a"))
    assert release(world, "a") is False
    assert hold(world, "a") is True
    assert hold(world, "a", by="bob") is False
    assert world.job("a").held_by == "alice"
    assert release(world, "a") is True


def test_what_is_not_there_is_refused(world):
    for job_id in ("none", "none:1"):
        with pytest.raises(Invalid, match="does not exist"):
            hold(world, job_id)


def test_a_hold_outlives_the_daemon(world):
    world.submits(a_job("a"), a_job("many").array(3))
    hold(world, "a")
    hold(world, "many")
    again = rebuild(world.store.load(), world.state.rules)
    assert again.backlog.count == 0
    assert again.jobs["a"].held_by == "alice"
