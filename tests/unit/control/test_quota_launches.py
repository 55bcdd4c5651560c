"""Quota shares where instances are launched: never more than the quota admits, and victims on other machines."""

from __future__ import annotations

from tests.builders import Submitted, TestWorld, a_job
from tests.unit.control.quota_worlds import a_quota_world, a_share, a_shared_job
from windfall.capacity.environments import JobQueue
from windfall.capacity.machines import Offer
from windfall.capacity.policies import QuotaShare, SharingStrategy
from windfall.control import events
from windfall.control.commands.policies import CreateQuotaShare
from windfall.control.instructions import InterruptAttempt, LaunchInstance
from windfall.control.why import why
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.jobs.states import RUNNABLE, STARTING

LEND, BORROW = SharingStrategy.LEND, SharingStrategy.LEND_AND_BORROW


FLEET_QUEUE, PLAIN_QUEUE = QueueName("fleet-shared"), QueueName("plain")
FLEET = EnvironmentName("fleet")


def a_fleet(*shares: QuotaShare, max_vcpus: int = 64) -> TestWorld:
    """An environment of instances with 2 vCPUs each, and a queue with these shares in front of it."""
    world = a_quota_world().with_environment(FLEET, max_vcpus=max_vcpus)
    world.offers[FLEET] = (Offer("small", Resources(2, 4096)),)
    queue = JobQueue(FLEET_QUEUE, 1, (FLEET,), policy="quotas")
    world.happens(events.CreateJobQueue(queue), *(CreateQuotaShare(share) for share in shares))
    return world


def a_fleet_share(name: str, sharing: SharingStrategy = SharingStrategy.RESERVE, **limits: int) -> QuotaShare:
    return a_share(name, sharing, queue=FLEET_QUEUE, **limits)


def a_fleet_job(job_id: str, share: str, vcpus: float = 2) -> Submitted:
    return a_shared_job(job_id, share).in_queue(FLEET_QUEUE).vcpus(vcpus)


def launched(world: TestWorld) -> int:
    return len(world.asked_for(LaunchInstance))


def test_no_more_instances_are_launched_than_the_quota_admits():
    world = a_fleet(a_fleet_share("a", VCPU=6), a_fleet_share("b", VCPU=2))
    world.submits(a_fleet_job("many", "a").array(50))
    assert launched(world) == 3
    world.submits(a_fleet_job("other", "b").array(50))
    assert launched(world) == 1
    world.ready()
    assert world.states_of("many").count(STARTING) == 3
    assert world.states_of("other").count(STARTING) == 1
    world.later(1_000)
    assert launched(world) == 0


def test_nobody_borrows_what_is_being_launched_for_its_owner():
    world = a_fleet(a_fleet_share("owner", LEND, VCPU=2), a_fleet_share("guest", BORROW, VCPU=2))
    world.submits(a_fleet_job("mine", "owner"))
    assert launched(world) == 1
    world.submits(a_fleet_job("many", "guest").array(5))
    assert launched(world) == 1
    world.ready()
    assert world.state_of("mine") is STARTING
    assert world.states_of("many").count(STARTING) == 1


def test_one_that_leaves_elsewhere_gives_back_a_quota_for_a_free_place():
    world = a_fleet(a_fleet_share("owner", LEND, VCPU=2), a_fleet_share("guest", BORROW, VCPU=2))
    for name in ("g0", "g1"):
        world.submits(a_fleet_job(name, "guest")).ready()
        world.starts(name)
        world.now += 10_000
    # A third instance is there and idle: what the owner lacks is nothing but its quota.
    world.happens(events.CreateJobQueue(JobQueue(PLAIN_QUEUE, 1, (FLEET,))))
    world.submits(a_job("plain", "plain").vcpus(2)).ready()
    world.starts("plain").exits("plain")
    world.submits(a_fleet_job("mine", "owner"))
    assert [one.token for one in world.asked_for(InterruptAttempt)] == ["g1#1"]
    answer = why(world.state, JobId("mine"), world.state.offers, world.now)
    assert answer is not None
    assert [code for code, _ in answer.reasons][:1] == ["QUOTA_SHARE"]
    world.submits(a_fleet_job("late", "guest"))
    assert world.state_of("late") is RUNNABLE
    world.exits("g1", 143)
    assert list(world.started()) == ["mine"]
    assert world.state_of("g1") is RUNNABLE


def test_a_job_that_fits_on_one_machine_only_has_those_leave_who_are_there():
    world = a_fleet(a_fleet_share("owner", LEND, VCPU=2), a_fleet_share("guest", BORROW, VCPU=2), max_vcpus=4)
    for name in ("g0", "g1", "g2", "g3"):
        world.submits(a_fleet_job(name, "guest", 1)).ready()
        world.starts(name)
        world.now += 10_000
    machines = {name: world.instance_of(name) for name in ("g0", "g1", "g2", "g3")}
    assert len(set(machines.values())) == 2
    world.submits(a_fleet_job("mine", "owner", 2))
    asked = {one.token.partition("#")[0] for one in world.asked_for(InterruptAttempt)}
    assert len({machines[name] for name in asked}) == 1
    assert len(asked) == 2
    for name in sorted(asked):
        world.exits(name, 143)
    assert world.state_of("mine") is STARTING
    assert not world.asked_for(InterruptAttempt)
