"""What engines report: in order, twice, late, about attempts that are over, and all at once after a silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_busy_world, a_definition, a_job, a_machine, a_world
from windfall.control import events
from windfall.control.events import AttemptExited, AttemptLost, AttemptStarted
from windfall.control.instructions import (
    ForgetAttempt,
    LaunchInstance,
    StartAttempt,
    StopAttempt,
    TerminateInstance,
)
from windfall.jobs.attempts import UNSTORED
from windfall.jobs.aws_texts import EXITED, FAILED_TO_START, TIMED_OUT
from windfall.jobs.definitions import ContainerSpec
from windfall.jobs.ids import AttemptToken, InstanceId, JobId
from windfall.jobs.images import ImageMapping
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, RUNNABLE, RUNNING, STARTING, SUCCEEDED

GONE = AttemptToken("first#1")


@pytest.fixture
def world():
    return a_busy_world()


def test_an_attempt_starts_runs_and_succeeds(world):
    world.submits(a_job("a"))
    assert list(world.started()) == ["a"]
    world.now += 5
    world.starts("a")
    assert (world.state_of("a"), world.job("a").started_at) == (RUNNING, world.now)
    world.now += 5
    world.exits("a")
    job = world.job("a")
    assert (job.state, job.status_reason, job.stopped_at) == (SUCCEEDED, EXITED, world.now)
    assert world.instructions == [ForgetAttempt("a#1", None)]
    assert not world.state.attempts


def test_a_job_stops_when_its_last_attempt_does_however_late_that_is_heard(world):
    world.submits(a_job("late"))
    world.starts("late")
    ended = world.exit_of("late", 1)
    world.later(25)
    world.happens(ended)
    assert world.job("late").stopped_at == world.job("late").attempts[-1].stopped_at == ended.at


def test_an_exit_that_overtakes_the_start_tells_both(world):
    world.submits(a_job("a")).exits("a")
    job = world.job("a")
    assert (job.state, job.started_at) == (SUCCEEDED, world.now)
    world.happens(AttemptStarted("a#1", world.now))
    assert world.instructions == [StopAttempt("a#1", None, 0)]
    assert world.job("a") == job


def test_an_exit_without_a_start_time_is_believed(world):
    world.submits(a_job("a")).happens(AttemptExited("a#1", world.now, 0))
    assert (world.state_of("a"), world.job("a").started_at) == (SUCCEEDED, world.now)


def test_reports_that_repeat_change_nothing(world):
    world.submits(a_job("a")).starts("a")
    before = world.job("a")
    world.starts("a")
    assert world.job("a") == before
    end = world.exit_of("a")
    world.happens(end, end)
    ended = world.job("a")
    world.happens(end)
    assert world.job("a") == ended
    assert world.instructions == [ForgetAttempt("a#1", None)]


@pytest.mark.parametrize(
    ("report", "answer"),
    [
        (AttemptStarted(GONE, 1), StopAttempt(GONE, None, 0)),
        (AttemptExited(GONE, 1, 0, None, 1), ForgetAttempt(GONE, None)),
        (AttemptLost(GONE, 1), ForgetAttempt(GONE, None)),
    ],
)
def test_an_attempt_that_is_over_can_change_nothing(world, report, answer):
    before = world.picture()
    world.happens(report)
    assert world.state == before
    assert world.instructions == [answer]


def test_a_superseded_attempt_cannot_speak_for_its_successor(world):
    world.submits(a_job("a").retried(2)).starts("a").exits("a", 1)
    assert world.state_of("a") is STARTING
    before = world.job("a")
    world.happens(AttemptStarted("a#1", 1), AttemptExited("a#1", 1, 0, None, 1), AttemptLost("a#1", 1))
    assert world.job("a") == before
    world.exits("a")
    assert [a.exit_code for a in world.job("a").attempts] == [1, 0]
    assert world.state_of("a") is SUCCEEDED


def test_a_lost_attempt_reads_as_a_lost_host_and_is_tried_again(world):
    world.submits(a_job("a").retried(2)).starts("a")
    world.happens(AttemptLost("a#1", world.now))
    first, second = world.job("a").attempts
    assert first.status_reason == f"Host EC2 (instance {first.instance}) terminated."
    assert (first.exit_code, second.token) == (None, "a#2")
    world.happens(AttemptLost("a#2", world.now))
    assert world.state_of("a") is FAILED


def test_an_attempt_that_its_agent_ended_for_lack_of_a_daemon_was_interrupted(world):
    world.submits(a_job("a").retried(2).tagged(partition="stop"))
    [start] = world.asked_for(StartAttempt)
    assert start.stops_alone
    world.starts("a").happens(AttemptExited("a#1", world.now, 143, None, 1, alone=True))
    first, second = world.job("a").attempts
    assert first.status_reason == f"Host EC2 (instance {first.instance}) terminated."
    assert (first.interrupted, first.exit_code, second.token) == (True, 143, "a#2")
    world.starts("a").happens(AttemptExited("a#2", world.now, 0, None, 1, alone=True))
    assert world.state_of("a") is SUCCEEDED, "it ended well in time"


@pytest.mark.parametrize(
    ("job", "environment", "stops"),
    [(None, "stop", True), ("continue", "stop", False), (None, None, False), (None, "nonsense", False)],
)
def test_a_compute_environment_may_say_what_its_jobs_do_alone(job, environment, stops):
    world = a_busy_world()
    [name] = world.state.environments
    tags = {"windfall:partition": environment} if environment else {}
    world.state.environments[name] = replace(world.state.environments[name], tags=tags)
    submitted = a_job("a") if job is None else a_job("a").tagged(partition=job)
    world.submits(submitted)
    assert [start.stops_alone for start in world.asked_for(StartAttempt)] == [stops]


def test_a_refused_attempt_failed_to_start(world):
    world.submits(a_job("a")).happens(AttemptExited("a#1", world.now, None, "CannotStart: no disk"))
    (attempt,) = world.job("a").attempts
    assert (attempt.status_reason, attempt.reason) == (FAILED_TO_START, "CannotStart: no disk")
    assert attempt.started_at is None
    assert world.state_of("a") is FAILED


def test_a_retry_keeps_its_place_in_front(world):
    world.submits(a_job("a").retried(2).vcpus(64), a_job("b").vcpus(64), a_job("c").vcpus(64))
    world.exits("a", 1)
    assert list(world.started()) == ["a"]


def test_one_that_runs_again_no_longer_says_how_the_attempt_before_ended(world):
    world.submits(a_job("a").retried(2)).starts("a").exits("a", 1)
    assert world.job("a").attempts[0].status_reason == EXITED
    assert (world.state_of("a"), world.job("a").status_reason) == (STARTING, None)


def test_an_image_that_stands_for_nothing_fails_with_the_advice(world):
    world.happens(events.RegisterJobDefinition(unmapped := definition_without_command()))
    world.submits(a_job("a", definition=unmapped.name))
    assert world.state_of("a") is FAILED
    assert "windfall image add nowhere" in world.job("a").attempts[0].reason
    assert not [i for i in world.instructions if isinstance(i, StartAttempt)]
    world.happens(events.AddImage(ImageMapping("no*", "/srv", ("run",))))
    world.submits(a_job("b", definition=unmapped.name))
    assert world.state_of("b") is STARTING


def definition_without_command():
    return a_definition("unmapped", container=ContainerSpec("nowhere", Resources(1, 1)))


def test_each_gpu_is_one_jobs_own():
    world = a_busy_world(a_machine(gpus=3))
    world.submits(a_job("a").gpus(2), a_job("b").gpus(1), a_job("c").gpus(1))
    given = [i.gpu_ids for i in world.asked if isinstance(i, StartAttempt) and i.gpu_ids]
    assert sorted(sum(given, ())) == ["gpu0", "gpu1", "gpu2"]
    assert world.state_of("c") is RUNNABLE
    world.exits("a")
    assert world.state_of("c") is STARTING


# Agents that connect ------------------------------------------------------------------------------------------


def test_what_runs_is_adopted(world):
    world.submits(a_job("a"), a_job("b")).starts("a")
    world.restarted().connected(running=("a", "b"))
    assert [world.state_of(j) for j in "ab"] == [RUNNING, RUNNING]
    assert world.instructions == []


def test_what_ended_meanwhile_is_learnt(world):
    world.submits(a_job("a"), a_job("b")).starts("a")
    ended = (world.exit_of("a"), AttemptLost("b#1", world.now))
    world.restarted().connected(ended=ended)
    assert [world.state_of(j) for j in "ab"] == [SUCCEEDED, FAILED]
    assert [i.token for i in world.instructions] == ["a#1", "b#1"]


def test_what_was_never_delivered_is_asked_for_again(world):
    world.submits(a_job("a"))
    (start,) = world.instructions
    world.restarted().connected()
    assert world.instructions == [start]
    world.connected(preparing=("a#1",))
    assert world.instructions == []


def test_what_ran_and_is_not_known_any_more_is_lost(world):
    world.submits(a_job("a").retried(2)).starts("a")
    world.connected()
    assert [(type(i), i.token) for i in world.instructions] == [(StopAttempt, "a#1")], "it is asked first"
    assert world.state_of("a") is RUNNING
    world.happens(AttemptLost("a#1", world.now))
    assert list(world.started()) == ["a"]
    assert world.token("a") == "a#2"


def test_what_is_to_stop_is_told_again(world):
    world.submits(a_job("a"), a_job("b")).starts("a")
    world.happens(events.TerminateJob(JobId("a"), "x"), events.TerminateJob(JobId("b"), "x"))
    stops = world.instructions
    world.restarted().connected(running=("a",), preparing=("b#1",))
    assert world.instructions == stops


def test_a_start_on_its_way_keeps_its_place_until_the_agent_has_answered(world):
    world.submits(a_job("a"))
    world.happens(events.TerminateJob(JobId("a"), "x"))
    world.connected()
    assert world.state_of("a") is STARTING
    assert [type(i) for i in world.instructions] == [StopAttempt]
    world.happens(AttemptLost("a#1", world.now))
    assert (world.state_of("a"), world.job("a").status_reason) == (FAILED, "x")


def test_an_attempt_of_nobody_is_stopped(world):
    world.happens(events.AgentConnected(world.machine, (AttemptStarted("x#1", 1),)))
    assert world.instructions == [StopAttempt("x#1", None, 0)]


# Instances ----------------------------------------------------------------------------------------------------


def test_an_instance_is_launched_used_and_given_up_when_idle():
    world = a_world().declared()
    world.submits(a_job("a"))
    (launch,) = (i for i in world.asked if isinstance(i, LaunchInstance))
    world.ready()
    assert world.state_of("a") is STARTING
    world.exits("a")
    world.state.unsettled = True
    world.later(300_000)
    assert world.instructions == [TerminateInstance(launch.instance)]
    assert not world.state.instances


def test_a_launch_that_failed_is_tried_again_later():
    world = a_world().declared().submits(a_job("a"))
    world.happens(events.InstanceLaunchFailed(next(iter(world.state.instances)), "no capacity"))
    assert not world.state.instances
    (failed,) = world.state.failed_launches.values()
    assert (failed.reason, failed.failures) == ("no capacity", 1)
    world.later(5_000)
    assert [type(i) for i in world.instructions] == [LaunchInstance]


def test_two_launches_in_one_millisecond_have_two_ids():
    world = a_world().declared().submits(a_job("a"))
    (first,) = world.state.instances
    world.happens(events.InstanceLaunchFailed(first, "no"))
    world.state.failed_launches.clear()
    world.state.unsettled = True
    world.happens(events.TimePassed())
    assert first not in world.state.instances
    assert len(world.state.instances) == 1


def test_all_that_ran_on_a_lost_instance_is_lost(world):
    world.submits(a_job("a").retried(2), a_job("b")).starts("a", "b")
    (instance,) = world.state.instances
    world.happens(events.InstanceLost(instance))
    assert [world.state_of(j) for j in "ab"] == [RUNNABLE, FAILED]
    assert not world.state.attempts
    assert not world.state.occupancy.instances
    assert instance not in world.state.instances
    world.happens(events.InstanceLost(instance), events.InstanceLaunchFailed(instance, "late"))
    assert world.state_of("a") is RUNNABLE


def test_an_instance_of_nobody_is_terminated(world):
    world.happens(events.InstanceReady(InstanceId("i-late"), world.machine))
    assert world.instructions == [TerminateInstance(InstanceId("i-late"))]


# Time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_a_timeout_counts_from_the_start_and_is_never_retried(world, restart):
    world.submits(a_job("a").limited_to(60).retried(3))
    world.later(100_000)
    assert world.state_of("a") is STARTING
    world.starts("a")
    if restart:
        world.restarted()
    world.later(59_999)
    assert world.instructions == []
    world.later(1)
    place = world.job("a").attempts[0].instance
    assert world.instructions == [StopAttempt("a#1", place, 30.0, save_within_s=30.0)]
    world.exits("a", 137)
    job = world.job("a")
    assert (job.state, job.status_reason, job.attempts[0].status_reason) == (FAILED, TIMED_OUT, TIMED_OUT)


def test_a_new_attempt_has_the_whole_time_again(world):
    world.submits(a_job("a").limited_to(60).retried(2)).starts("a")
    world.later(50_000)
    world.exits("a", 1).starts("a")
    world.later(59_000)
    assert world.instructions == []
    world.later(1_000)
    assert [i.token for i in world.instructions] == ["a#2"]


def test_old_jobs_are_purged_in_small_steps(world):
    world.submits(a_job("old").array(2), a_job("live"))
    world.exits("old:0")
    world.exits("old:1")
    day_ms = 24 * 3600 * 1000
    world.later(7 * day_ms - 1)
    assert "old" in world.store.jobs
    world.later(10_000)
    assert set(world.store.jobs) == {"live"}


def test_an_inactive_definition_goes_when_nobody_needs_it(world):
    world.submits(a_job("a"))
    world.happens(events.DeregisterJobDefinition("work", 1))
    world.later(181 * 24 * 3600 * 1000)
    assert world.state.definition("work:1") is not None
    world.exits("a")
    world.later(10_000)
    assert world.state.definition("work:1") is not None, "the latest revision keeps its number taken"
    world.happens(events.RegisterJobDefinition(a_definition()))
    world.later(10_000)
    assert world.state.definition("work:1") is None
    assert world.state.definition("work:2") is not None


def test_isolation_that_changes_while_it_runs_is_noted(world):
    world.submits(a_job("a"))
    world.starts("a")
    world.happens(events.IsolationChanged(AttemptToken("a#1"), "process + cgroup v2 (memory, cpu)"))
    assert world.store.jobs["a"].attempts[-1].isolation == "process + cgroup v2 (memory, cpu)"
    world.happens(events.IsolationChanged(AttemptToken("a#7"), "of nobody"))


def test_a_start_asked_for_again_is_taken_back_when_its_attempt_is_closed_in_the_same_round(world):
    world.submits(a_job("a").retried(3))
    world.happens(events.AgentConnected(world.machine), AttemptLost("a#1", world.now))
    assert list(world.started()) == ["a"]
    assert [i.token for i in world.instructions if isinstance(i, StartAttempt)] == ["a#2"]


def test_a_start_that_reaches_the_agent_late_never_runs_beside_the_next_attempt(world):
    """An old inventory, the start that it had not seen, and one of an agent that lost its journal, at once."""
    world.submits(a_job("a").retried(3))
    started = AttemptStarted("a#1", world.now)
    world.happens(events.AgentConnected(world.machine), started, events.AgentConnected(world.machine))
    assert [type(i) for i in world.instructions] == [StartAttempt, StopAttempt]
    assert {i.token for i in world.instructions} == {"a#1"}


def test_work_that_is_done_and_not_stored_fails_the_job_and_is_not_done_again(world):
    world.submits(a_job("a").retried(5))
    world.starts("a")
    report = AttemptExited(
        world.job("a").attempts[0].token, world.now, 0, f"{UNSTORED}: s3://b/x: no such bucket"
    )
    world.happens(report)
    assert world.state_of("a") is FAILED
    assert len(world.job("a").attempts) == 1
    assert world.job("a").attempts[0].is_unstored


def test_work_whose_place_was_taken_before_it_was_stored_is_done_again(world):
    world.submits(a_job("a").retried(5))
    world.starts("a")
    world.happens(events.InterruptJob(JobId("a"), 5))
    token = world.job("a").attempts[0].token
    world.happens(AttemptExited(token, world.now, 0, f"{UNSTORED}: s3://b/x: the time was up"))
    assert world.state_of("a") not in (FAILED, SUCCEEDED)
    assert len(world.job("a").attempts) == 2
