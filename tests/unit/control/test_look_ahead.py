"""Short jobs that are sent to their agent before their place is free, and how places are passed on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TestWorld, a_busy_world, a_definition, a_job, a_machine
from tests.simulation.invariants import check_occupancy
from windfall.control import events
from windfall.control.instructions import InterruptAttempt, StartAttempt, StopAttempt
from windfall.control.look_ahead import KEEPS_STANDBYS
from windfall.jobs.ids import JobId
from windfall.jobs.resources import NOTHING
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED


@pytest.fixture
def world() -> TestWorld:
    """A host with room for two jobs at once, which were seen to be short."""
    machine = a_machine(vcpus=2)
    world = a_busy_world(replace(machine, facts={**machine.facts, KEEPS_STANDBYS: "yes"}))
    check_occupancy(world.state)
    return world


def behind(world: TestWorld, job_id: str) -> str | None:
    attempt = world.job(job_id).attempts[-1]
    return None if attempt.behind is None else attempt.behind.rpartition("#")[0]


def runs(world: TestWorld, *more: str) -> TestWorld:
    """`a` and `b` run, and all others wait."""
    world.submits(a_job("a"), a_job("b")).starts("a", "b")
    return world.submits(*(a_job(job_id) for job_id in more))


def given_back(world: TestWorld, job_id: str) -> None:
    """The agent had not begun it when it was asked to let it go."""
    world.happens(events.AttemptExited(world.token(job_id), world.now, None, "before", given_back=True))


def test_the_next_jobs_are_sent_ahead_and_hold_nothing(world):
    runs(world, "c", "d")
    starts = [one for one in world.asked if isinstance(one, StartAttempt)]
    assert [one.behind for one in starts[-2:]] == [world.token("a"), world.token("c")]
    assert (world.state_of("c"), behind(world, "c"), behind(world, "d")) == (STARTING, "a", "c")
    use = next(iter(world.state.occupancy.instances.values()))
    assert use.holds[world.token("c")].resources == NOTHING
    check_occupancy(world.state)


def test_a_place_is_passed_on_when_its_attempt_ends(world):
    runs(world, "c", "d")
    world.now += 50
    world.exits("a")
    assert (behind(world, "c"), behind(world, "d")) == (None, "c")
    assert world.job("c").attempts[-1].placed_at == world.now, "what it waited costs nothing"
    check_occupancy(world.state)
    world.starts("c").exits("c").exits("b")
    assert (world.state_of("c"), behind(world, "d")) == (SUCCEEDED, None)
    check_occupancy(world.state)


def test_a_start_that_is_told_before_the_end_of_the_one_before_it_is_no_harm(world):
    runs(world, "c")
    world.starts("c")
    assert world.state_of("c") is RUNNING
    world.exits("a")
    assert behind(world, "c") is None
    check_occupancy(world.state)


def test_a_restart_knows_who_stands_behind_whom(world):
    runs(world, "c", "d").restarted()
    check_occupancy(world.state)
    assert list(world.state.standbys.items()) == [
        (world.token("a"), world.token("c")),
        (world.token("c"), world.token("d")),
    ]
    world.connected(running=("a", "b"))
    asked = [one.token for one in world.asked_for(StartAttempt)]
    assert asked == [world.token("c"), world.token("d")], "the one before comes first"


def test_a_place_that_is_taken_away_takes_those_behind_it_along_at_no_cost(world):
    runs(world, "c", "d")
    world.happens(events.InterruptJob(JobId("a"), 30))
    told = [one.token for one in world.asked_for(InterruptAttempt)]
    assert told == [world.token(job_id) for job_id in ("a", "c", "d")]
    for job_id in ("c", "d"):
        given_back(world, job_id)
        first = world.job(job_id).attempts[0]
        assert first.given_back
        assert world.state_of(job_id) is not FAILED, "although it may be tried once only"
    check_occupancy(world.state)


def test_one_that_ends_while_it_waits_lets_the_next_move_up(world):
    runs(world, "c", "d")
    world.happens(events.TerminateJob(JobId("c"), "not needed"))
    given_back(world, "c")
    assert world.state_of("c") is FAILED
    assert behind(world, "d") == "a"
    check_occupancy(world.state)


def test_a_lost_machine_costs_those_that_waited_nothing(world):
    runs(world, "c", "d")
    world.happens(events.InstanceLost(world.job("a").attempts[-1].instance))
    assert (world.state_of("a"), world.state_of("c"), world.state_of("d")) == (FAILED, RUNNABLE, RUNNABLE)


def test_nobody_is_sent_ahead_of_another_who_has_his_turn(world):
    world.happens(events.RegisterJobDefinition(a_definition("large")))
    world.submits(a_job("a"), a_job("b")).starts("a", "b")
    world.submits(a_job("wide").vcpus(2), a_job("c"))
    assert world.state_of("c") is RUNNABLE
    assert not world.state.standbys


def test_long_jobs_have_no_standby(world):
    world.submits(a_job("a"), a_job("b")).starts("a", "b")
    world.now += 10_000
    world.exits("a").submits(a_job("c")).starts("c")
    world.now += 10_000
    world.submits(a_job("d"))
    assert world.state_of("d") is RUNNABLE


def test_who_waits_behind_one_that_takes_long_is_asked_back_and_what_has_begun_goes_on(world):
    runs(world, "c").later(500)
    assert world.asked_for(StopAttempt) == []
    world.later(1_000)
    (asked_back,) = world.asked_for(StopAttempt)
    assert (asked_back.token, asked_back.if_unbegun) == (world.token("c"), True)
    given_back(world, "c")
    assert (world.state_of("c"), world.job("c").status_reason) == (RUNNABLE, None)
    world.exits("b")
    assert world.state_of("c") is STARTING, "the next free place is its own, wherever it is"
    assert world.job("c").attempts[-1].behind is None
    check_occupancy(world.state)


def test_an_agent_of_an_earlier_version_gets_no_standbys():
    world = runs(a_busy_world(a_machine(vcpus=2)), "c")
    assert world.state_of("c") is RUNNABLE


def test_children_of_an_array_follow_one_another(world):
    world.submits(a_job("all").array(6))
    assert [str(state) for state in world.states_of("all")] == ["STARTING"] * 6
    assert len(world.state.standbys) == 4
    check_occupancy(world.state)
