"""Multi-node jobs that others leave their places to, and that are asked to leave: all nodes or none."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_job, a_machine, a_world
from tests.gang_builders import a_container, a_gang_definition
from tests.unit.control.quota_worlds import a_quota_world, a_share, a_shared_job
from windfall.capacity.consumables import ConsumableResource
from windfall.capacity.policies import SharingStrategy
from windfall.control import events
from windfall.control.commands.consumables import CreateConsumableResource
from windfall.control.instructions import InterruptAttempt
from windfall.control.why import why
from windfall.jobs.definitions import NodeRange
from windfall.jobs.ids import JobId
from windfall.jobs.states import FAILED, RUNNABLE, STARTING
from windfall.jobs.storage import StorageLayout

TRIO = a_gang_definition("trio", 3, 0, NodeRange(0, None, a_container(gpus=1)))


def two_shares(gpus: int = 6, owner: int = 3, **more: bool) -> TestWorld:
    """`owner` lends so many of the GPUs, `guest` has the others and borrows."""
    shares = (
        a_share("owner", SharingStrategy.LEND, GPU=owner, **more),
        a_share("guest", SharingStrategy.LEND_AND_BORROW, GPU=gpus - owner),
    )
    world = a_quota_world(*shares, gpus=gpus, notice_s=10.0)
    world.happens(events.RegisterJobDefinition(TRIO))
    return world


def a_trio(job_id: str, share: str = "owner", priority: int | None = None):
    return a_shared_job(job_id, share, priority).of("trio")


def singles(world: TestWorld, count: int, share: str = "guest") -> list[str]:
    names = [f"s{number}" for number in range(count)]
    world.submits(*(a_shared_job(name, share, 0).gpus(1) for name in names)).starts(*names)
    return names


def asked(world: TestWorld) -> list[str]:
    """Who was given notice in the last round."""
    return sorted(one.token.rpartition("#")[0] for one in world.asked_for(InterruptAttempt))


def said(world: TestWorld, job_id: str) -> dict[str, str]:
    answer = why(world.state, JobId(job_id), world.state.offers, world.now)
    assert answer is not None
    return dict(answer.reasons)


def test_what_was_lent_returns_to_a_gang_from_as_few_as_it_needs_and_both_sides_say_so():
    world = two_shares()
    names = singles(world, 6)
    world.later(5_000).submits(a_trio("gang"))
    leaving = asked(world)
    assert len(leaving) == 3
    assert set(leaving) < set(names)
    reason = said(world, "gang")["PLACE_LEFT"]
    assert all(name in reason for name in leaving)
    assert "of its own queue, leave it" in reason
    assert (
        "job gang (name-of-gang) of quota share owner takes its place" in said(world, leaving[0])["leaving"]
    )
    assert world.job(leaving[0]).status_reason.startswith("PREEMPTION_IN_PROGRESS: Cross-share")
    world.exits(leaving[0], 143).exits(leaving[1], 143)
    assert world.state_of("gang") is RUNNABLE
    assert not asked(world)
    world.exits(leaving[2], 143)
    assert {world.state_of(one) for one in ("gang", "gang#1", "gang#2")} == {STARTING}
    assert not world.state.left_places


def test_what_is_left_to_it_is_kept_over_restarts_and_from_all_others():
    world = two_shares()
    singles(world, 6)
    world.submits(a_trio("gang"))
    first, second, third = asked(world)
    world.exits(first, 143).restarted().submits(a_shared_job("late", "guest", 9).gpus(1))
    assert not asked(world)
    assert world.state_of("late") is RUNNABLE
    world.restarted().exits(second, 143).restarted().exits(third, 143)
    assert world.state_of("gang") is STARTING
    assert world.state_of("late") is RUNNABLE


def test_nobody_is_asked_for_a_gang_that_would_not_start_then():
    world = two_shares(owner=2)
    singles(world, 6)
    world.submits(a_trio("gang"))
    assert not asked(world), "its share has only two GPUs of its own"
    world = two_shares()
    world.submits(a_shared_job("own", "owner").gpus(1))
    singles(world, 5)
    world.submits(a_trio("gang"))
    assert not asked(world), "its share has only two left"


def test_a_gang_that_is_cancelled_gives_its_places_back():
    world = two_shares()
    singles(world, 6)
    world.submits(a_trio("gang"))
    leaving = asked(world)
    world.happens(events.CancelJob(JobId("gang"), "enough"))
    assert world.store.jobs[JobId("gang")].state is FAILED
    for one in leaving:
        world.exits(one, 143)
        assert not asked(world)
    assert {world.state_of(one) for one in leaving} == {STARTING}


def test_a_more_urgent_gang_takes_the_places_of_less_urgent_jobs_of_its_share():
    world = two_shares(owner=6, within=True)
    singles(world, 6, "owner")
    world.submits(a_trio("calm", priority=0))
    assert not asked(world)
    world.submits(a_trio("urgent", priority=5))
    leaving = asked(world)
    assert len(leaving) == 3
    assert "its priority is 5, and 0 here" in said(world, leaving[0])["leaving"]
    for one in leaving:
        world.exits(one, 143)
    assert world.state_of("urgent") is STARTING
    assert world.state_of("calm") is RUNNABLE


def test_nobody_of_its_share_leaves_for_one_that_would_then_borrow():
    """Its lender would take that back, and those who left would start again: without end."""
    shares = (
        a_share("mine", SharingStrategy.LEND_AND_BORROW, within=True, GPU=2),
        a_share("lender", SharingStrategy.LEND, GPU=1),
    )
    world = a_quota_world(*shares, gpus=3, notice_s=10.0)
    world.happens(events.RegisterJobDefinition(TRIO))
    singles(world, 2, "mine")
    world.submits(a_trio("urgent", "mine", 5), a_shared_job("large", "mine", 5).gpus(3))
    assert not asked(world)
    world.submits(a_shared_job("fits", "mine", 5).gpus(2))
    assert asked(world) == ["s0", "s1"], "it asks for no more than its share's own"


def test_a_gang_leaves_as_a_whole_and_counts_as_a_whole():
    world = two_shares(gpus=4, owner=1)
    world.submits(a_trio("gang", "guest")).starts("gang", "gang#1", "gang#2").later(20_000)
    world.submits(a_shared_job("single", "guest").gpus(1)).starts("single").later(30_000)
    world.submits(a_shared_job("mine", "owner").gpus(1))
    assert asked(world) == ["single"], "three nodes that ran for longer lose more"
    world.exits("single", 0).exits("mine", 0)
    world.submits(a_shared_job("other", "owner").gpus(1))
    assert not asked(world)
    world = two_shares(gpus=3, owner=1)
    world.submits(a_trio("gang", "guest")).starts("gang", "gang#1", "gang#2")
    world.submits(a_shared_job("mine", "owner").gpus(1))
    assert asked(world) == ["gang", "gang#1", "gang#2"]
    assert all(
        world.job(one).status_reason.startswith("PREEMPTION_IN_PROGRESS")
        for one in ("gang", "gang#1", "gang#2")
    )
    assert said(world, "mine")["PLACE_LEFT"].count("gang") == 1


def test_of_a_gang_whose_lost_nodes_are_replaced_one_node_is_asked():
    world = two_shares(gpus=3, owner=1)
    world.submits(a_trio("gang", "guest").tagged(replace_lost_nodes="true"))
    world.starts("gang", "gang#1", "gang#2").submits(a_shared_job("mine", "owner").gpus(1))
    (one,) = asked(world)
    assert one in ("gang#1", "gang#2")
    assert one in said(world, "mine")["PLACE_LEFT"]
    world.exits(one, 143)
    assert (world.state_of("mine"), world.state_of(one)) == (STARTING, RUNNABLE)
    assert world.job("gang").attempt is not None


def test_a_gang_takes_the_places_of_another_gang():
    world = two_shares(gpus=3, owner=3)
    world.submits(a_trio("guests", "guest")).starts("guests", "guests#1", "guests#2")
    world.submits(a_trio("owners"))
    assert asked(world) == ["guests", "guests#1", "guests#2"]
    assert len({world.job(one).attempt.stop_for for one in asked(world)} - {None}) == 1
    for one in ("guests", "guests#1", "guests#2"):
        world.exits(one, 143)
    assert world.state_of("owners") is STARTING
    assert world.state_of("guests") is RUNNABLE
    assert "of quota share owner takes its place" in said(world, "guests")["interrupted"]


def test_a_gang_on_demand_takes_spot_capacity_back():
    world = a_world(a_machine(gpus=3), notice_s=10.0, storage=StorageLayout("s3://bucket")).declared()
    world.with_environment("spot").happens(events.RegisterJobDefinition(TRIO))
    world.submits(a_job("first"), *(a_job(f"s{number}", "spot").gpus(1) for number in range(3))).ready()
    world.starts("first", "s0", "s1", "s2").exits("first")
    world.submits(a_job("gang", definition="trio"))
    assert asked(world) == ["s0", "s1", "s2"]
    assert "jobs s0, s1, s2, on reclaimable capacity, leave it" in said(world, "gang")["PLACE_LEFT"]
    for one in ("s0", "s1"):
        world.restarted().exits(one, 143)
        assert world.state_of("gang") is RUNNABLE
        assert not asked(world)
    world.exits("s2", 143)
    assert world.state_of("gang") is STARTING


@pytest.mark.parametrize("definition", ["trio", "work"])
def test_the_tokens_of_one_that_others_leave_for_are_kept_for_it(definition):
    world = two_shares()
    world.happens(CreateConsumableResource(ConsumableResource("licence", 1, True)))
    singles(world, 6)
    mine = a_shared_job("mine", "owner").of(definition).wanting(licence=1)
    world.submits(mine if definition == "trio" else mine.gpus(3))
    leaving = asked(world)
    assert len(leaving) == 3
    world.submits(a_job("thief").wanting(licence=1))
    assert world.state_of("thief") is RUNNABLE
    assert "1 of them kept for jobs that come first" in said(world, "thief")["CONSUMABLE_RESOURCE_TAKEN"]
    for one in leaving:
        world.exits(one, 143)
    assert (world.state_of("mine"), world.state_of("thief")) == (STARTING, RUNNABLE)
    world.submits(a_trio("gang"))
    assert not asked(world), "its own share is used up by now"


def test_one_that_lacks_a_token_asks_nobody():
    world = two_shares()
    world.happens(CreateConsumableResource(ConsumableResource("licence", 1, True)))
    world.submits(a_job("holder").wanting(licence=1))
    singles(world, 6)
    world.submits(a_trio("gang").wanting(licence=1))
    assert not asked(world)
