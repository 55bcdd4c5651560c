"""Launches that fail: the next type and the next environment have their turn, and the first comes back later."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_job, a_world
from windfall.capacity.environments import JobQueue, Provisioning
from windfall.capacity.machines import Offer
from windfall.control import events
from windfall.control.instructions import LaunchInstance
from windfall.control.rebuild import instructions_after_restart
from windfall.control.why import why
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.jobs.states import RUNNABLE, STARTING

SMALL = Offer("small", Resources(2, 4_096), usd_hour=0.1, on_demand_usd_hour=0.4, safety=1)
LARGE = Offer("large", Resources(8, 16_384), usd_hour=0.9, on_demand_usd_hour=1.6, safety=3)


@pytest.fixture
def world() -> TestWorld:
    """A queue that prefers spot capacity and falls over to capacity on demand."""
    world = a_world().declared()
    world.offers.update(spot=(SMALL, LARGE), demand=(LARGE,))
    world.with_environment("spot", allocation="SPOT_CAPACITY_OPTIMIZED", queue="unused")
    world.with_environment("demand", Provisioning.EC2)
    names = (EnvironmentName("spot"), EnvironmentName("demand"))
    world.happens(events.CreateJobQueue(JobQueue(QueueName("both"), 1, names)))
    return world


def launched(world: TestWorld) -> list[tuple[str, str]]:
    return [(one.environment, one.offer.type) for one in world.asked_for(LaunchInstance)]


def fails(world: TestWorld) -> None:
    """The instance that was asked for last cannot be had."""
    last = [one for one in world.asked if isinstance(one, LaunchInstance)][-1]
    world.happens(events.InstanceLaunchFailed(last.instance, "InsufficientInstanceCapacity"))


def test_a_job_does_not_hang_on_an_environment_that_has_nothing(world):
    world.submits(a_job("a", "both"))
    assert launched(world) == [("spot", "large")]
    fails(world)
    assert launched(world) == [("spot", "small")]
    fails(world)
    assert launched(world) == [("demand", "large")]
    world.ready()
    assert world.state_of("a") is STARTING
    assert world.job("a").attempts[0].usd_hour == pytest.approx(0.9 / 8)


def test_spot_is_tried_again_when_its_time_has_come(world):
    world.submits(a_job("a", "both").vcpus(8))
    fails(world)
    assert launched(world) == [("demand", "large")]
    world.ready().submits(a_job("b", "both").vcpus(8))
    assert launched(world) == [("demand", "large")]
    world.ready()
    world.now += 5_000
    world.submits(a_job("c", "both").vcpus(8))
    assert launched(world) == [("spot", "large")]


def test_it_is_asked_for_less_often_while_it_fails_and_at_once_after_it_came(world):
    world.offers["demand"] = ()
    world.offers["spot"] = (LARGE,)
    world.submits(a_job("a", "both").vcpus(8))
    for wait_ms in (5_000, 10_000, 20_000, 40_000, 60_000, 60_000):
        fails(world)
        assert launched(world) == []
        assert launched(world.later(wait_ms - 1)) == []
        assert launched(world.later(1)) == [("spot", "large")]
    world.ready()
    assert world.state_of("a") is STARTING
    assert not world.state.failed_launches


def test_why_says_what_failed_and_when_it_is_tried_again(world):
    world.offers.update(demand=(), spot=(LARGE,))
    world.submits(a_job("a", "both").vcpus(8))
    fails(world)
    assert world.state_of("a") is RUNNABLE
    offers = {EnvironmentName(name): offered for name, offered in world.offers.items()}
    answer = why(world.state, JobId("a"), offers, world.now)
    assert answer is not None
    assert "InsufficientInstanceCapacity" in dict(answer.reasons)["LAUNCH_FAILED"]


def test_a_failure_of_something_that_came_or_is_unknown_changes_nothing(world):
    world.submits(a_job("a", "both")).ready()
    (instance,) = world.state.instances
    world.happens(events.InstanceLaunchFailed(instance, "too late"))
    assert instance in world.state.instances
    assert not world.state.failed_launches


def test_a_launch_that_is_repeated_after_a_restart_keeps_its_price(world):
    world.submits(a_job("a", "both"))
    (again,) = instructions_after_restart(world.restarted().state)
    assert isinstance(again, LaunchInstance)
    assert (again.offer.type, again.offer.usd_hour, again.offer.on_demand_usd_hour) == ("large", 0.9, 1.6)


def test_what_comes_after_it_was_given_up_is_terminated_and_its_machine_not_remembered(world):
    world.submits(a_job("a", "both"))
    (launch,) = [one for one in world.asked if isinstance(one, LaunchInstance)]
    machine = world.machine_of(launch)
    world.happens(events.InterruptInstance(launch.instance, 5))
    world.happens(events.InstanceReady(launch.instance, machine), events.AgentConnected(machine))
    assert machine.id not in world.state.machines


def test_a_machine_that_is_launched_again_soon_after_it_went_is_used(world):
    world.submits(a_job("a", "both")).ready()
    ((lost, instance),) = world.state.instances.items()
    machine = world.state.machines[instance.machine]
    world.happens(events.InstanceLost(lost))
    assert machine.id not in world.state.machines
    world.submits(a_job("b", "both"))
    launch = [one for one in world.asked if isinstance(one, LaunchInstance)][-1]
    world.happens(events.InstanceReady(launch.instance, machine))
    assert machine.id in world.state.machines
