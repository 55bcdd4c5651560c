"""How a finished job's end is told, and which remedy goes with it."""

from __future__ import annotations

import pytest

from tests.builders import a_busy_world, a_job
from windfall.control import events
from windfall.daemon.endings import how_it_ended
from windfall.jobs.ids import AttemptToken, JobId


@pytest.mark.parametrize(
    ("reason", "todo"),
    [
        ("OutOfMemoryError: Container killed due to memory usage", "more memory"),
        ("CannotPullContainerError: no directory", "windfall image add"),
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
