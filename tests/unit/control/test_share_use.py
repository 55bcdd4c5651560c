"""What shares are charged, when they are active, what survives a restart, and what readers are told of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import HOST, TestWorld, a_job
from tests.fair_worlds import POLICY, a_fair_world, a_policy, held
from tests.unit.control.service_worlds import TYPE, a_service_job, a_service_world
from windfall.capacity.environments import ComputeEnvironment, JobQueue, Provisioning, Switch
from windfall.capacity.machines import Offer
from windfall.capacity.policies import CapacityLimit, QuotaShare, ShareUse, SharingStrategy
from windfall.control import events
from windfall.control.commands.policies import UpdateSchedulingPolicy
from windfall.control.queue_shares import queue_shares
from windfall.control.share_use import WRITE_EVERY_MS, capacity_of, fair_share_view
from windfall.control.why import why
from windfall.jobs.ids import EnvironmentName, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.jobs.states import RUNNABLE, STARTING
from windfall.scheduling.fair_share import NONE, Amount

QUEUE = QueueName("queue")


def meter(world: TestWorld, share: str = "a"):
    return world.state.shares.of(QUEUE)[share]


def view(world: TestWorld):
    found = fair_share_view(world.state, world.state.queues[QUEUE], world.now)
    assert found is not None
    return found


def kept_uses(world: TestWorld) -> dict[str, ShareUse]:
    return {use.key: use for use in world.store.load().declared if isinstance(use, ShareUse)}


def test_a_share_is_charged_from_its_place_to_its_end():
    world = a_fair_world(gpus=2).submits(a_job("one").under("a").vcpus(2).gpus(1))
    assert world.state_of("one") is STARTING
    assert held(world, "a") == Amount(2, 1)
    world.now += 600_000
    average = meter(world).average_at(world.now)
    assert (average.vcpus, average.gpus) == pytest.approx((2 * 0.8647, 0.8647), abs=1e-3)
    world.exits("one")
    assert held(world, "a") == NONE
    world.now += 600_000
    assert meter(world).average_at(world.now).vcpus == pytest.approx(2 * 0.8647 * 0.1353, abs=1e-3)


def test_a_new_queue_of_an_old_name_is_charged_for_the_jobs_that_still_stop():
    world = a_fair_world().submits(a_job("old").under("a").vcpus(2)).starts("old")
    queue = world.state.queues[QUEUE]
    world.happens(
        events.UpdateJobQueue(QUEUE, Switch.DISABLED),
        events.DeleteJobQueue(QUEUE),
        events.CreateJobQueue(queue),
    )
    assert (meter(world).jobs, held(world, "a")) == (1, Amount(2))
    world.submits(a_job("new").under("a").vcpus(3))
    assert (meter(world).jobs, held(world, "a")) == (2, Amount(5))
    world.exits("old", 143)
    assert (meter(world).jobs, held(world, "a")) == (1, Amount(3))


def test_a_retry_is_charged_again_and_children_each():
    world = a_fair_world().submits(a_job("again").under("a").retried(2), a_job("many").under("a").array(3))
    assert held(world, "a") == Amount(4)
    world.exits("again", 1)
    assert held(world, "a") == Amount(4)  # it has its next place already
    for index in range(3):
        world.exits(f"many:{index}")
    assert (held(world, "a"), meter(world).jobs) == (Amount(1), 1)


def test_a_share_is_active_until_a_window_after_its_last_job():
    world = a_fair_world().submits(a_job("one").under("a"))
    world.now += 10_000_000
    world.exits("one")
    assert list(view(world).shares) == ["a"]
    world.later(599_999)
    assert list(view(world).shares) == ["a"]
    world.later(6_000)
    assert not view(world).shares
    assert not world.state.shares.queues
    assert kept_uses(world) == {}


def test_use_is_written_when_something_starts_or_ends_but_not_too_often():
    world = a_fair_world().submits(a_job("one").under("a"))
    first = kept_uses(world)["queue/a"].at
    assert first == world.now
    world.now += 2_000
    world.exits("one")
    assert kept_uses(world)["queue/a"].at == first
    world.later(WRITE_EVERY_MS)
    use = kept_uses(world)["queue/a"]
    assert (use.at, use.active_at) == (world.now, first + 2_000)
    world.later(WRITE_EVERY_MS)
    assert kept_uses(world)["queue/a"] == use


def test_what_was_used_survives_a_restart():
    world = a_fair_world().submits(a_job("one").under("a").vcpus(4), a_job("two").under("b").vcpus(2))
    world.later(300_000)
    world.exits("two")
    world.later(100_000)
    before = view(world)
    world.restarted()
    after = view(world)
    assert after.shares.keys() == before.shares.keys() == {"a", "b"}
    for share in "ab":
        assert after.shares[share].held == before.shares[share].held
        assert after.shares[share].average.vcpus == pytest.approx(before.shares[share].average.vcpus)
    assert meter(world, "a").jobs == 1


def test_an_attempt_that_began_after_the_last_writing_is_charged_from_its_own_start():
    world = a_fair_world().submits(a_job("one").under("a"))
    world.now += 5_000
    world.submits(a_job("two").under("a"))
    world.now += 595_000
    before = view(world).shares["a"]
    world.restarted()
    after = view(world).shares["a"]
    assert after.held == before.held == Amount(2)
    assert after.average.vcpus == pytest.approx(before.average.vcpus, rel=1e-6)


def test_a_new_window_counts_from_the_next_look():
    world = a_fair_world().submits(a_job("one").under("a"))
    world.exits("one")
    world.happens(UpdateSchedulingPolicy(POLICY, a_policy(7_200), "{}"))
    world.later(1_200_000)
    assert list(view(world).shares) == ["a"]
    assert view(world).window_s == 7_200


def test_a_deleted_queue_is_forgotten_with_its_shares():
    world = a_fair_world().submits(a_job("one").under("a"), a_job("two").under("a"))
    world.happens(events.UpdateJobQueue(QUEUE, switch=Switch.DISABLED))
    world.happens(events.DeleteJobQueue(QUEUE))
    world.exits("one").exits("two")
    assert not world.state.shares.queues
    assert kept_uses(world) == {}


def test_the_reservation_is_a_part_of_the_machine_and_grows_smaller_with_active_shares():
    world = a_fair_world(a_policy(reservation=50), vcpus=8, gpus=2)
    world.submits(a_job("many").under("a").array(8))
    assert (held(world, "a"), view(world).kept) == (Amount(4), Amount(4, 1))
    answer = why(world.state, JobId("many"), world.state.offers, world.now)
    assert answer is not None
    assert "keeps 4 vCPUs and 1 GPU of 8 vCPUs and 2 GPUs for shares that are not active" in str(
        answer.reasons
    )
    world.submits(a_job("other").under("b"))
    assert (held(world, "a"), held(world, "b"), view(world).kept) == (Amount(5), Amount(1), Amount(2, 0))


def test_a_machine_counts_once_for_all_environments_on_it():
    world = a_fair_world(vcpus=8, gpus=2)
    spot = ComputeEnvironment(EnvironmentName("spot"), Provisioning.SPOT, 0, 4)
    world.happens(events.CreateComputeEnvironment(spot))
    both = replace(world.state.queues[QUEUE], environments=(EnvironmentName("environment"), spot.name))
    assert capacity_of(world.state, both) == (Amount(8, 2), Amount(8, 2))
    alone = replace(both, environments=(spot.name,))
    assert capacity_of(world.state, alone)[0] == Amount(4, 2)


def test_environments_that_launch_count_what_they_may_have_and_disabled_ones_nothing():
    world = a_fair_world()
    fleet = ComputeEnvironment(EnvironmentName("fleet"), Provisioning.EC2, 0, 40)
    off = ComputeEnvironment(EnvironmentName("off"), Provisioning.EC2, 0, 40, Switch.DISABLED)
    own = ComputeEnvironment(EnvironmentName("own"), Provisioning.UNMANAGED, 0, 1_000_000)
    kinds = (Offer("cpu", Resources(8, 1), 99), Offer("gpu", Resources(16, 1, 4), 99))
    world.offers = {"fleet": kinds, "off": kinds}
    for environment in (fleet, off, own):
        world.happens(events.CreateComputeEnvironment(environment))
    queue = JobQueue(QueueName("x"), 1, (fleet.name, off.name))
    assert capacity_of(world.state, queue) == (Amount(40, 8), Amount(40, 8))
    # An owner who has set no bound has nothing kept; his machine counts all the same.
    unbounded = JobQueue(QueueName("y"), 1, (own.name,))
    assert capacity_of(world.state, unbounded) == (Amount(8), NONE)
    assert world.machine.id == HOST


def test_readers_see_the_numbers_that_the_scheduler_sees():
    world = a_fair_world(a_policy(a=2.0), vcpus=4).submits(
        a_job("a1").under("a").array(6), a_job("b1").under("b").array(2)
    )
    found = queue_shares(world.state, QUEUE, world.now)
    assert found is not None
    assert (found.is_fair, found.total, found.held, found.window_s) == (True, Amount(4), Amount(4), 600)
    assert [(one.name, one.running, one.waiting, one.weight) for one in found.shares] == [
        ("a", 4, 2, 2.0),
        ("b", 0, 2, 1.0),
    ]
    assert found.shares[0].score == pytest.approx(view(world).score("a"))
    assert queue_shares(world.state, QueueName("none"), world.now) is None


def test_the_service_jobs_of_a_quota_share_are_counted_under_it():
    shares = [
        QuotaShare(
            name, QueueName("services"), (CapacityLimit(TYPE, amount),), SharingStrategy.LEND_AND_BORROW
        )
        for name, amount in (("owner", 1), ("idle", 0))
    ]
    services = a_service_world(*shares, limits=((TYPE, 1),))
    services.submits(a_service_job("x", quota_share="idle"), a_service_job("y", quota_share="idle"))
    found = queue_shares(services.world.state, QueueName("services"), services.world.now)
    assert found is not None
    standings = [(one.name, one.running, one.waiting, one.used, one.borrowed) for one in found.shares]
    assert standings == [("idle", 1, 1, {TYPE: 1.0}, {TYPE: 1.0}), ("owner", 0, 0, {TYPE: 0.0}, {})]
    assert found.shares[0].front is not None
    assert found.shares[0].front[0] == "y"


def test_a_queue_without_a_policy_has_no_shares_but_a_sum():
    world = a_fair_world()
    world.happens(events.CreateJobQueue(JobQueue(QueueName("plain"), 1, (EnvironmentName("environment"),))))
    world.submits(a_job("x", "plain").vcpus(3))
    found = queue_shares(world.state, QueueName("plain"), world.now)
    assert found is not None
    assert (found.policy, found.is_fair, found.held, found.shares) == (None, False, Amount(3), ())


def test_the_least_used_share_gets_the_place_that_becomes_free():
    world = a_fair_world(vcpus=2).submits(
        a_job("a1").under("a"), a_job("a2").under("a"), a_job("a3").under("a"), a_job("b1").under("b")
    )
    assert (world.state_of("a3"), world.state_of("b1")) == (RUNNABLE, RUNNABLE)
    world.now += 60_000
    world.exits("a1")
    assert (world.state_of("a3"), world.state_of("b1")) == (RUNNABLE, STARTING)
    answer = why(world.state, JobId("a3"), world.state.offers, world.now)
    assert answer is not None
    codes = [code for code, _ in answer.reasons]
    assert codes[0] == "ROOM_TAKEN"
    assert "SHARE_TURN" in codes
