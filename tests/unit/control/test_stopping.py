"""Cancel and terminate in each state, for jobs, arrays and children."""

from __future__ import annotations

import pytest

from tests.builders import a_busy_world, a_job
from windfall.control.events import AttemptLost, CancelJob, TerminateJob
from windfall.control.instructions import StopAttempt
from windfall.jobs.attempts import StopCause
from windfall.jobs.ids import JobId
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, RUNNING, STARTING, SUCCEEDED

BOTH = pytest.mark.parametrize("command", [CancelJob, TerminateJob])


@pytest.fixture
def world():
    return a_busy_world()


def stop(command, job_id="a"):
    return command(JobId(job_id), "no need")


@BOTH
@pytest.mark.parametrize("job_id", ["unknown", "first", "first:0", "unknown:1"])
def test_what_is_unknown_or_has_finished_is_no_error(world, command, job_id):
    before = world.picture()
    assert world.happens(stop(command, job_id)) is False
    assert world.state == before


@BOTH
def test_a_runnable_job_fails_with_the_callers_reason(world, command):
    world.places = False
    world.submits(a_job("a"))
    assert world.happens(stop(command)) is True
    job = world.job("a")
    assert (job.state, job.status_reason) == (FAILED, "no need")
    assert (job.cancelled, job.terminated) == (command is CancelJob, command is TerminateJob)
    assert world.state.backlog.count == 0


@BOTH
@pytest.mark.parametrize("code", [0, 1])
def test_a_pending_job_ends_when_its_dependencies_have(world, command, code):
    world.submits(a_job("b"), a_job("a").after("b"))
    world.happens(stop(command))
    assert world.state_of("a") is PENDING
    assert world.job("a").cancelled
    world.exits("b", code)
    assert (world.state_of("a"), world.job("a").status_reason) == (FAILED, "no need")


def test_cancel_leaves_alone_what_has_a_place(world):
    world.submits(a_job("a"), a_job("b")).starts("b")
    world.happens(stop(CancelJob, "a"), stop(CancelJob, "b"))
    assert [world.state_of(j) for j in "ab"] == [STARTING, RUNNING]
    assert world.instructions == []
    world.exits("b")
    assert world.state_of("b") is SUCCEEDED


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("code", [0, 143])
def test_terminate_stops_the_process_and_the_job_fails_however_it_exits(world, started, code):
    world.submits(a_job("a").retried(5))
    if started:
        world.starts("a")
    world.happens(stop(TerminateJob))
    place = world.job("a").attempts[0].instance
    assert world.instructions == [StopAttempt("a#1", place, 30.0, save_within_s=30.0, gives_up=True)]
    assert world.job("a").attempts[0].stop_cause is StopCause.TERMINATED
    world.exits("a", code)
    assert (world.state_of("a"), world.job("a").status_reason) == (FAILED, "no need")


def test_terminating_twice_asks_once(world):
    world.submits(a_job("a")).happens(stop(TerminateJob))
    world.happens(TerminateJob(JobId("a"), "again"))
    assert world.instructions == []
    world.happens(AttemptLost(world.token("a"), world.now))
    assert world.job("a").status_reason == "no need"


@BOTH
def test_an_array_at_rest_ends_at_once(world, command):
    world.places = False
    world.submits(a_job("a").array(1000))
    world.happens(stop(command))
    assert (world.state_of("a"), world.job("a").status_reason) == (FAILED, "no need")
    assert world.state_of("a:999") is FAILED
    assert set(world.store.jobs) == {"first", "a"}
    assert world.state.backlog.count == 0


def test_terminating_an_array_takes_running_and_resting_children(world):
    world.submits(a_job("a").array(70).vcpus(32)).starts("a:0")
    world.happens(stop(TerminateJob))
    assert [i.token for i in world.instructions] == ["a:0#1", "a:1#1"]
    assert world.state_of("a:5") is FAILED
    assert world.state_of("a") is PENDING
    world.exits("a:0", 143)
    world.exits("a:1", 143)
    assert (world.state_of("a"), world.job("a").status_reason) == (FAILED, "no need")
    assert world.job("a").summary["FAILED"] == 70


def test_cancelling_an_array_lets_running_children_finish(world):
    world.submits(a_job("a").array(3).vcpus(32))
    world.happens(stop(CancelJob))
    assert world.states_of("a") == [STARTING, STARTING, FAILED]
    world.exits("a:0")
    world.exits("a:1")
    assert world.state_of("a") is FAILED


@BOTH
def test_an_array_that_waits_ends_when_its_dependencies_have(world, command):
    world.submits(a_job("b"), a_job("a").array(3).after("b"))
    world.happens(stop(command))
    assert world.states_of("a") == [PENDING] * 3
    world.exits("b")
    assert world.states_of("a") == [FAILED] * 3
    assert world.job("a").status_reason == "no need"


@BOTH
def test_a_child_at_rest_ends_alone(world, command):
    world.places = False
    world.submits(a_job("a").array(3))
    world.happens(stop(command, "a:1"))
    assert world.states_of("a") == [RUNNABLE, FAILED, RUNNABLE]
    assert world.state.backlog.count == 2
    world.places = True
    world.later(1000)
    assert world.states_of("a") == [STARTING, FAILED, STARTING]


@BOTH
def test_a_child_has_one_id(world, command):
    world.places = False
    world.submits(a_job("a").array(3))
    world.happens(stop(command, "a:1"))
    for wrong in ("a:01", "a:3", "a:-1", "a:"):
        assert world.happens(stop(command, wrong)) is False
    assert world.happens(stop(command, "a:1")) is False
    assert world.state.backlog.count == 2


@BOTH
def test_a_pending_child_ends_alone(world, command):
    world.submits(a_job("b").array(2), a_job("a").array(2).after_each_of("b"))
    world.happens(stop(command, "a:0"))
    assert world.states_of("a") == [FAILED, PENDING]
    world.exits("b:0")
    world.exits("b:1")
    assert world.states_of("a") == [FAILED, STARTING]


def test_a_job_between_two_attempts_is_ended(world):
    world.submits(a_job("a").retried(3))
    world.places = False
    world.exits("a", 1)
    assert world.state_of("a") is RUNNABLE
    world.happens(stop(CancelJob))
    assert world.state_of("a") is FAILED
