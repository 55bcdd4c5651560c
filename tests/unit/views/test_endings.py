"""How a finished job's end is told, and which remedy goes with it."""

from __future__ import annotations

import pytest

from tests.builders import a_busy_world, a_job
from tests.unit.control.test_quota_shares import a_gpu_job, two_shares
from windfall.control import events
from windfall.jobs.definitions import ContainerSpec, JobDefinition
from windfall.jobs.diagnosis import Diagnosis, FailureCause
from windfall.jobs.ids import AttemptToken, JobId
from windfall.jobs.images import no_engine_reason, not_runnable_reason
from windfall.jobs.resources import Resources
from windfall.views.endings import how_it_ended


@pytest.mark.parametrize(
    ("reason", "todo"),
    [
        ("OutOfMemoryError: Container killed due to memory usage", "set resourceRequirements MEMORY to"),
        (not_runnable_reason(ContainerSpec("team/train:1", Resources(1, 64))), "windfall image add"),
        ("CannotPullContainerError: manifest unknown", "try `docker pull`"),
        (no_engine_reason("team/train:1"), "windfall doctor"),
        ("ResourceInitializationError: unable to pull secrets", "windfall secret list"),
        (None, "windfall logs a"),
    ],
)
def test_a_failed_job_is_told_what_to_do(reason, todo):
    world = a_busy_world()
    world.submits(a_job("a"))
    world.happens(events.AttemptExited(AttemptToken("a#1"), 9, 1, reason, started_at=3))
    told = how_it_ended(world.store.jobs["a"], JobId("a"))
    assert told["state"] == "FAILED"
    assert "exit code 1" in told["reasons"][1]["text"]
    assert todo in told["changes"][0]


@pytest.mark.parametrize(
    "reason", ["OutOfMemoryError: killed", "CannotStartContainerError: " + "long  " * 300]
)
def test_a_reason_is_not_told_twice(reason):
    world = a_busy_world()
    world.submits(a_job("a"))
    world.happens(events.AttemptExited(AttemptToken("a#1"), 9, 137, reason, started_at=3))
    told = how_it_ended(world.store.jobs["a"], JobId("a"))
    assert told["reasons"][-1]["text"] in {"cause: host-out-of-memory", "cause: not-started"}


def test_a_job_that_left_for_others_too_often_is_told_of_its_tag():
    world = two_shares(gpus=2).submits(a_gpu_job("g", "guest", 2).tagged(preemptions_max="0"))
    world.starts("g").submits(a_gpu_job("mine", "owner")).exits("g", 143)
    told = how_it_ended(world.store.jobs["g"], JobId("g"))
    assert told["state"] == "FAILED"
    assert told["reasons"][-1]["text"].endswith("windfall:preemptions-max=0")
    (change,) = told["changes"]
    assert "a larger windfall:preemptions-max, or without that tag" in change


def test_a_succeeded_job_needs_nothing():
    world = a_busy_world()
    world.submits(a_job("a"))
    world.exits("a")
    assert how_it_ended(world.store.jobs["a"], JobId("a"))["changes"] == []


def test_a_child_that_never_ran_tells_its_arrays_reason():
    world = a_busy_world()
    world.submits(a_job("gone"), a_job("many").array(3).after("gone"))
    world.exits("gone", 1)
    told = how_it_ended(world.store.jobs["many"], JobId("many:2"))
    assert told["reasons"][0]["text"] == "is FAILED: Dependent Job failed"


def test_shared_memory_is_counted_from_what_the_definition_gave():
    world = a_busy_world()
    world.submits(a_job("a"))
    seen = Diagnosis(FailureCause.SHARED_MEMORY, "bus error")
    world.happens(events.AttemptExited(AttemptToken("a#1"), 9, 1, None, started_at=3, diagnosis=seen))
    job = world.store.jobs["a"]
    given = ContainerSpec("image", Resources(1, 64), shared_memory_mib=3072)
    told = how_it_ended(job, JobId("a"), JobDefinition("d", 1, given))
    assert "6,144 MiB or more; it has 3,072 MiB" in told["changes"][0]
    assert "64 MiB where it is not said" in how_it_ended(job, JobId("a"))["changes"][0]


def test_what_the_log_showed_is_told_with_its_line_and_what_to_do():
    world = a_busy_world()
    world.submits(a_job("a"))
    seen = Diagnosis(FailureCause.GPU_MEMORY, "torch.OutOfMemoryError: CUDA out of memory.")
    world.happens(events.AttemptExited(AttemptToken("a#1"), 9, 1, None, started_at=3, diagnosis=seen))
    told = how_it_ended(world.store.jobs["a"], JobId("a"))
    assert told["reasons"][-1] == {
        "code": "gpu-out-of-memory",
        "text": "gpu-out-of-memory: torch.OutOfMemoryError: CUDA out of memory.",
    }
    assert any("windfall:on-gpu-oom=larger" in change for change in told["changes"])
