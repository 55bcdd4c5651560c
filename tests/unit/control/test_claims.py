"""For whom places are left: who is made up for by a place, and when nothing counts any more."""

from __future__ import annotations

import pytest

from tests.unit.control.quota_worlds import a_quota_world, a_share, a_shared_job
from windfall.capacity.policies import SharingStrategy
from windfall.control import events
from windfall.control.claims import KEPT_AFTER_MS
from windfall.jobs.states import RUNNABLE, STARTING


@pytest.fixture
def world():
    """One share has borrowed both GPUs of the other."""
    shares = (
        a_share("owner", SharingStrategy.LEND, GPU=2),
        a_share("guest", SharingStrategy.LEND_AND_BORROW, GPU=0),
    )
    built = a_quota_world(*shares, gpus=2)
    built.submits(a_shared_job("g0", "guest").gpus(1), a_shared_job("g1", "guest").gpus(1))
    return built.starts("g0", "g1")


def kept(world) -> dict[str, list[str]]:
    """For each live job of the store, whose places it is to have."""
    jobs = world.store.load().jobs
    return {job.id: sorted(left.token for left in job.left_places) for job in jobs if job.left_places}


def test_who_leaves_for_a_job_stands_in_its_record_until_it_has_its_place(world):
    world.submits(a_shared_job("mine", "owner").gpus(2))
    assert kept(world) == {"mine": ["g0#1", "g1#1"]}
    world.exits("g0", 143)
    assert kept(world) == {"mine": ["g0#1", "g1#1"]}
    world.exits("g1", 143)
    assert world.state_of("mine") is STARTING
    assert kept(world) == {}
    assert not world.state.left_places


def test_each_child_of_an_array_that_is_placed_makes_up_for_one(world):
    world.submits(a_shared_job("mine", "owner").gpus(1).array(2))
    assert kept(world) == {"mine": ["g0#1", "g1#1"]}
    world.exits("g1", 143)
    assert len(kept(world)["mine"]) == 1
    world.exits("g0", 143)
    assert kept(world) == {}


def test_what_was_left_long_ago_counts_no_more_and_is_dropped_from_the_record(world):
    world.submits(a_shared_job("mine", "owner").gpus(2))
    world.exits("g0", 0)  # g1 does not leave, as if its agent were gone.
    world.now += int(world.state.rules.notice_s * 1000) + KEPT_AFTER_MS + 1
    assert world.state.left_places.counted(world.now) == {}
    world.happens(events.TimePassed())
    assert world.state_of("mine") is RUNNABLE
    assert kept(world) == {}
    assert not world.state.left_places


def test_a_cancelled_job_keeps_nothing(world):
    world.submits(a_shared_job("mine", "owner").gpus(2))
    world.happens(events.CancelJob("mine", "not any more"))
    world.happens(events.TimePassed())
    assert not world.state.left_places
    world.submits(a_shared_job("late", "owner").gpus(1))
    world.exits("g0", 143)
    assert world.state_of("late") is STARTING
