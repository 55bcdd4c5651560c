"""A head that is blocked for too long is cancelled, in AWS's words, and only the head."""

from __future__ import annotations

import pytest

from tests.builders import TestWorld, a_busy_world, a_job
from windfall.capacity.environments import StateTimeLimit, Switch
from windfall.control import events
from windfall.control.state_limits import LIMITED_REASONS, SETTLING_MS
from windfall.control.why import why
from windfall.jobs.states import FAILED, RUNNABLE, STARTING

TOO_LARGE = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT"
MAX_VCPUS = "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE"
LOOK_MS = 6_000


def limits(*chosen: tuple[str, int]) -> events.UpdateJobQueue:
    return events.UpdateJobQueue("queue", time_limits=tuple(StateTimeLimit(*one) for one in chosen))


def passes(world: TestWorld, duration_ms: int) -> None:
    """Time passes, and the heads are looked at now and then."""
    for _ in range(duration_ms // LOOK_MS):
        world.later(LOOK_MS)


@pytest.fixture
def world() -> TestWorld:
    world = a_busy_world()
    world.happens(limits((TOO_LARGE, 600)))
    return world


def test_aws_lets_a_queue_act_upon_three_reasons():
    assert set(LIMITED_REASONS) == {"CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY", TOO_LARGE, MAX_VCPUS}


def test_a_head_that_is_blocked_too_long_is_cancelled_with_aws_words(world):
    world.submits(a_job("large").gpus(99), a_job("after").after("large"))
    passes(world, 594_000)
    assert world.store.jobs["large"].state is RUNNABLE
    passes(world, 24_000)
    job = world.store.jobs["large"]
    assert (job.state, job.cancelled, job.terminated) == (FAILED, True, False)
    assert job.status_reason == f"Canceled by JobStateTimeLimit action due to reason: {TOO_LARGE}"
    assert world.store.jobs["after"].status_reason == "Dependent Job failed"


def test_the_next_head_has_its_own_time(world):
    world.submits(a_job("large").gpus(99), a_job("behind").gpus(99))
    passes(world, 624_000)
    assert [world.store.jobs[name].state for name in ("large", "behind")] == [FAILED, RUNNABLE]
    passes(world, 570_000)
    assert world.store.jobs["behind"].state is RUNNABLE
    passes(world, 48_000)
    assert world.store.jobs["behind"].state is FAILED


def test_a_limit_for_another_reason_cancels_nothing(world):
    world.happens(limits((MAX_VCPUS, 600), (LIMITED_REASONS[0], 600)))
    world.submits(a_job("large").gpus(99))
    passes(world, 1_200_000)
    assert world.store.jobs["large"].state is RUNNABLE


def test_the_shorter_of_two_limits_counts_and_a_new_limit_counts_from_when_the_head_was_blocked(world):
    world.happens(limits())
    world.submits(a_job("large").gpus(99))
    passes(world, 900_000)
    assert world.store.jobs["large"].state is RUNNABLE
    world.happens(limits((TOO_LARGE, 86_400), (TOO_LARGE, 800)))
    passes(world, 12_000)
    assert world.store.jobs["large"].state is FAILED


def test_another_reason_begins_anew(world):
    world.submits(a_job("large").gpus(99))
    passes(world, 480_000)
    since = world.store.jobs["large"].blocked_at
    [environment] = world.state.environments
    world.happens(events.UpdateComputeEnvironment(environment, switch=Switch.DISABLED))
    passes(world, LOOK_MS)
    assert world.store.jobs["large"].status_reason.startswith("ACTION_REQUIRED")
    world.happens(events.UpdateComputeEnvironment(environment, switch=Switch.ENABLED))
    passes(world, 300_000)
    job = world.store.jobs["large"]
    assert job.status_reason.startswith(TOO_LARGE)
    assert (job.state, job.blocked_at - since >= 480_000) == (RUNNABLE, True)


def test_a_head_that_gets_a_place_is_blocked_no_longer(world):
    [environment] = world.state.environments
    world.happens(limits((MAX_VCPUS, 600)), events.UpdateComputeEnvironment(environment, max_vcpus=0))
    world.submits(a_job("small").retried(2))
    passes(world, 480_000)
    since = world.store.jobs["small"].blocked_at
    world.happens(events.UpdateComputeEnvironment(environment, max_vcpus=64))
    world.ready()
    assert (world.store.jobs["small"].state, world.store.jobs["small"].blocked_at) == (STARTING, None)
    world.happens(events.UpdateComputeEnvironment(environment, max_vcpus=0), world.exit_of("small", 1))
    passes(world, LOOK_MS)
    again = world.store.jobs["small"]
    assert (again.state, again.blocked_at > since) == (RUNNABLE, True), "it waits anew"


def test_a_restart_loses_no_time_and_cancels_nothing_at_once(world):
    world.submits(a_job("large").gpus(99))
    passes(world, 480_000)
    since = world.store.jobs["large"].blocked_at
    world.restarted()
    world.now += 3_600_000
    passes(world, SETTLING_MS)
    job = world.store.jobs["large"]
    assert (job.state, job.blocked_at) == (RUNNABLE, since), "capacity may not all be seen yet"
    passes(world, 12_000)
    assert world.store.jobs["large"].state is FAILED


def test_of_an_array_one_child_is_cancelled_at_a_time(world):
    world.submits(a_job("array").array(3).gpus(99))
    passes(world, LOOK_MS)
    told = dict(why(world.state, "array", world.state.offers, world.now).reasons)["state_limit"]
    assert "its first waiting child is cancelled at" in told
    passes(world, 618_000)
    assert world.store.jobs["array:0"].status_reason.startswith("Canceled by JobStateTimeLimit")
    assert world.store.jobs["array"].summary[FAILED] == 1
    passes(world, 1_260_000)
    assert world.store.jobs["array"].state is FAILED
    assert world.store.jobs["array"].summary[FAILED] == 3


def test_why_names_the_time(world):
    world.submits(a_job("large").gpus(99))
    world.later(LOOK_MS)
    told = dict(why(world.state, "large", world.state.offers, world.now).reasons)["state_limit"]
    assert told.startswith("if nothing changes, it is cancelled at 20")
    assert TOO_LARGE in told
    world.happens(limits())
    assert "state_limit" not in dict(why(world.state, "large", world.state.offers, world.now).reasons)
