"""A job that ran out of GPU memory goes on with more of it, by its own wish, until nobody has more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import HOST, TestWorld, a_busy_world, a_job
from windfall.capacity.environments import Provisioning, Switch
from windfall.capacity.machines import GpuDevice, Machine, Offer
from windfall.control import events
from windfall.control.why import why
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.ids import JobId
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, RUNNABLE, STARTING, SUCCEEDED

T4, A10G, H100 = (
    GpuDevice("t", "T4", 16_384),
    GpuDevice("a", "A10G", 24_564),
    GpuDevice("h", "H100", 81_559),
)


def a_world_with(*gpus: GpuDevice) -> TestWorld:
    return a_busy_world(Machine(HOST, Resources(64, 262_144, len(gpus)), gpus))


def too_small(world: TestWorld, job_id: str) -> TestWorld:
    """The newest attempt of a job ends for want of GPU memory."""
    world.starts(job_id)
    out_of_memory = Diagnosis(FailureCause.GPU_MEMORY, "CUDA out of memory. Tried to allocate 2.00 GiB")
    world.happens(replace(world.exit_of(job_id, 1), diagnosis=out_of_memory))
    return world


def devices(world: TestWorld, job_id: str) -> list[tuple[str, ...]]:
    return [attempt.gpu_ids for attempt in world.job(job_id).attempts]


def larger(job_id: str = "a", **tags: str):
    return a_job(job_id).gpus(1).tagged(on_gpu_oom="larger", **tags)


def test_it_goes_from_device_to_device_without_using_up_an_attempt():
    world = a_world_with(H100, T4, A10G).submits(larger())
    too_small(world, "a")
    too_small(world, "a")
    assert devices(world, "a") == [("t",), ("a",), ("h",)]
    assert world.job("a").charged_attempts == 1
    assert world.job("a").attempts[0].stop_words == (
        "1 x T4 (16 GiB) was too small; tried again on a GPU with more than 16 GiB"
    )
    world.starts("a").exits("a")
    assert world.state_of("a") is SUCCEEDED


def test_it_fails_when_nobody_has_more_and_says_how_much_is_needed():
    world = a_world_with(T4, A10G).submits(larger(), a_job("next").after("a"))
    too_small(world, "a")
    too_small(world, "a")
    assert world.state_of("a") is FAILED
    reason = world.job("a").status_reason or ""
    assert reason.startswith("Out of GPU memory: a GPU with more than 24 GiB is needed")
    assert reason.endswith("there are 1 x T4 (16 GiB), 1 x A10G (24 GiB)")
    assert world.state_of("next") is FAILED  # whoever waited for it is told in the same round


def test_larger_ones_of_another_model_than_the_wished_are_not_named():
    world = a_world_with(T4, A10G, H100).submits(larger(gpu_model="A10G"))
    too_small(world, "a")
    reason = world.job("a").status_reason or ""
    assert reason.startswith("Out of GPU memory: a GPU of model A10G with more than 24 GiB is needed")
    assert reason.endswith("there are 1 x A10G (24 GiB)")


def test_without_the_wish_an_end_for_want_of_memory_is_like_any_other():
    world = a_world_with(T4, A10G).submits(a_job("a").gpus(1).retried(2))
    too_small(world, "a")
    assert devices(world, "a") == [("t",), ("t",)]
    too_small(world, "a")
    assert world.state_of("a") is FAILED


def test_other_failures_are_charged_as_ever():
    world = a_world_with(T4, A10G).submits(larger())
    too_small(world, "a").starts("a").exits("a", 3)
    assert world.state_of("a") is FAILED
    assert world.job("a").charged_attempts == 1


def test_a_part_is_doubled_up_to_the_whole_before_a_larger_device_is_asked_for():
    shared = replace(T4, sharing="mps")
    world = a_world_with(shared, A10G).submits(larger(gpu_share="0.3"))
    for _ in range(3):
        too_small(world, "a")
    shares = [attempt.gpu_share for attempt in world.job("a").attempts]
    assert shares == [0.3, 0.6, None, None]
    assert devices(world, "a") == [("t",), ("t",), ("t",), ("a",)]
    words = [attempt.stop_words for attempt in world.job("a").attempts[:2]]
    assert words == [
        "0.3 of a GPU was too little; tried again with 0.6 of a GPU",
        "0.6 of a GPU was too little; tried again with a whole GPU",
    ]


def test_it_waits_for_a_larger_one_that_is_taken_and_why_says_so():
    world = a_world_with(T4, A10G).submits(larger(), a_job("other").gpus(1))
    too_small(world, "a")
    assert world.state_of("a") is RUNNABLE
    answer = why(world.state, JobId("a"), {}, world.now)
    assert answer is not None
    reasons = dict(answer.reasons)
    assert reasons["larger_gpu"].startswith("attempt 1 ran out of GPU memory: 1 x T4 (16 GiB) was too small")
    assert "with at least 16,385 MiB, 0 of 1 are free" in reasons["ROOM_TAKEN"]
    assert not any("gpu-memory-gib" in change for change in answer.changes)
    world.starts("other").exits("other")
    assert devices(world, "a") == [("t",), ("a",)]


def test_the_floor_survives_a_restart():
    world = a_world_with(T4, A10G).submits(larger(), a_job("other").gpus(1))
    too_small(world, "a").restarted().connected(("other",))
    assert world.state_of("a") is RUNNABLE
    world.exits("other")
    assert devices(world, "a") == [("t",), ("a",)]


def test_an_instance_with_larger_gpus_is_launched():
    world = a_world_with(T4)
    world.offers["cloud"] = (
        Offer("small", Resources(8, 16_384, 1), gpus=(T4,)),
        Offer("large", Resources(8, 16_384, 1), gpus=(H100,)),
    )
    world.with_environment("cloud", Provisioning.EC2).submits(
        a_job("a", "cloud").gpus(1).tagged(on_gpu_oom="larger")
    )
    world.ready()
    too_small(world, "a").ready()
    assert [attempt.instance_type for attempt in world.job("a").attempts] == ["small", "large"]


def test_a_disabled_environment_may_come_back_so_the_job_waits():
    world = a_world_with(T4).submits(larger())
    name = world.job("a").attempts[0].environment
    world.happens(events.UpdateComputeEnvironment(name, Switch.DISABLED))
    too_small(world, "a")
    assert world.state_of("a") is RUNNABLE


def test_memory_that_nobody_knows_cannot_be_exceeded():
    world = a_world_with(replace(T4, memory_mib=None), A10G).submits(larger())
    too_small(world, "a")
    assert world.state_of("a") is FAILED
    assert "how much its GPU has is not known" in (world.job("a").status_reason or "")


def test_children_of_an_array_grow_one_by_one():
    world = a_world_with(T4, A10G).submits(larger("array").array(2))
    assert (devices(world, "array:0"), devices(world, "array:1")) == ([("t",)], [("a",)])
    too_small(world, "array:0")
    assert world.state_of("array:0") is RUNNABLE
    world.starts("array:1").exits("array:1")
    assert devices(world, "array:0") == [("t",), ("a",)]
    world.starts("array:0").exits("array:0")
    assert world.state_of("array") is SUCCEEDED


def test_a_budget_that_is_spent_ends_it_all_the_same():
    world = a_world_with(T4, A10G)
    rules = replace(world.state.rules, rates=replace(world.state.rules.rates, usd_gpu_hour=1.0))
    world.state.rules = rules
    world.submits(larger(budget_usd="0.1")).starts("a")
    world.now += 3_600_000
    out_of_memory = Diagnosis(FailureCause.GPU_MEMORY, "CUDA out of memory")
    world.happens(replace(world.exit_of("a", 1), diagnosis=out_of_memory))
    assert world.state_of("a") is FAILED
    assert "Budget" in (world.job("a").status_reason or "")


@pytest.mark.parametrize("code", [0, None])
def test_only_a_failure_grows(code):
    world = a_world_with(T4, A10G).submits(larger()).starts("a")
    report = replace(
        world.exit_of("a", 0), exit_code=code, diagnosis=Diagnosis(FailureCause.GPU_MEMORY, "caught")
    )
    world.happens(report)
    expected = SUCCEEDED if code == 0 else STARTING
    assert world.state_of("a") is expected
