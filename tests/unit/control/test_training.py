"""Training jobs: the queue they bring along, what is retried, what they see, and how their records go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TestWorld, a_busy_world, a_machine
from tests.unit.control.trainings import SPOT, a_training
from windfall.capacity.environments import JobQueue, Provisioning, Switch
from windfall.control import events
from windfall.control.instructions import StartAttempt, StopAttempt
from windfall.jobs.attempts import Market
from windfall.jobs.aws_texts import FAILED_TO_START
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.job import JobKind
from windfall.jobs.states import FAILED, STARTING, SUCCEEDED

T = JobId("training-t")


@pytest.fixture
def world() -> TestWorld:
    return a_busy_world(a_machine(gpus=2))


def begun(world: TestWorld, **more) -> StartAttempt:
    world.happens(a_training("t", **more))
    world.ready()
    (start,) = world.asked_for(StartAttempt)
    return start


def test_a_training_job_brings_its_environment_and_queue(world):
    job = world.happens(a_training("t", run_s=60, tags={"windfall:budget-usd": "3"}))
    assert world.state.environments[SPOT.name].created_at == world.now
    assert world.state.queues[QueueName("training-spot")].environments == (SPOT.name,)
    assert (job.submission.kind, job.submission.definition) == (JobKind.TRAINING, "")
    assert (job.submission.free_interruptions, job.submission.budget_usd) == (True, 3.0)
    world.happens(a_training("u"))
    assert len(world.state.queues) == 2


def test_what_a_training_job_sees(world):
    start = begun(world)
    assert start.environment == {"TRAINING_JOB_NAME": "t"}
    assert start.argv == ("train",)
    assert (start.staging.checkpoints.uri, start.staging.checkpoints.publish) == ("s3://bucket/t", True)
    attempt = world.job("training-t").attempts[0]
    assert attempt.log_stream == f"t/algo-1-{attempt.placed_at}"
    assert start.fence == attempt.placed_at
    assert (start.market, attempt.market) == ("spot", Market.SPOT)
    assert start.instance_type == "host"


def test_the_same_start_is_asked_for_again(world):
    start = begun(world)
    world.connected()
    assert world.asked_for(StartAttempt) == [start]
    assert world.restarted().state.attempts[start.token].id == T


def test_a_failed_process_is_not_tried_again(world):
    begun(world, attempts=5)
    world.starts("training-t").exits("training-t", 1)
    assert world.state_of("training-t") is FAILED


def test_what_was_not_its_fault_is_tried_as_often_as_allowed(world):
    begun(world, attempts=2)
    world.happens(
        events.AttemptExited(world.token("training-t"), world.now, None, "could not bring its data")
    )
    assert world.state_of("training-t") is STARTING
    world.happens(
        events.AttemptExited(world.token("training-t"), world.now, None, "could not bring its data")
    )
    assert (world.state_of("training-t"), world.job("training-t").status_reason) == (FAILED, FAILED_TO_START)


def test_an_interruption_costs_it_nothing(world):
    begun(world)
    for _ in range(3):
        world.starts("training-t")
        world.happens(events.InterruptJob(T, 10))
        world.exits("training-t", 143)
        assert world.state_of("training-t") is STARTING
    world.starts("training-t").exits("training-t", 0)
    assert world.state_of("training-t") is SUCCEEDED


def test_one_that_is_stopped_has_two_minutes(world):
    begun(world)
    world.starts("training-t")
    world.happens(events.TerminateJob(T, "Stopped by StopTrainingJob"))
    (stop,) = world.asked_for(StopAttempt)
    assert stop.grace_s == 120
    world.exits("training-t", 0)
    assert (world.state_of("training-t"), world.job("training-t").terminated) == (FAILED, True)


def test_a_name_is_used_once_until_it_is_deleted(world):
    first = begun(world)
    with pytest.raises(Conflict, match="has not ended"):
        world.happens(events.DeleteTraining(T))
    with pytest.raises(Conflict, match="exists"):
        world.happens(a_training("t"))
    world.starts("training-t").exits("training-t", 0)
    with pytest.raises(Conflict, match="exists"):
        world.happens(a_training("t"))
    world.happens(events.DeleteTraining(T))
    assert T not in world.store.jobs
    world.now += 1
    world.happens(a_training("t"))
    (again,) = world.asked_for(StartAttempt)
    assert again.token != first.token, "a late report of the old job must not be taken for the new one's"


def test_a_job_that_ends_and_is_deleted_in_one_round_leaves_nothing(world):
    begun(world)
    world.starts("training-t")
    world.happens(world.exit_of("training-t", 0), events.DeleteTraining(T), a_training("t"))
    assert world.state_of("training-t") is STARTING
    world.starts("training-t")
    world.happens(world.exit_of("training-t", 0), events.DeleteTraining(T))
    assert T not in world.store.jobs


def test_the_kept_request_of_a_live_job_can_be_replaced(world):
    begun(world)
    assert world.happens(events.UpdateTraining(T, '{"new": 1}')).submission.document == '{"new": 1}'
    assert world.job("training-t").submission.document == '{"new": 1}'
    for job_id in ("first", "nobody"):
        with pytest.raises(NotFound, match="not a live training job"):
            world.happens(events.UpdateTraining(JobId(job_id), "{}"))


def test_names_that_belong_to_something_else_are_refused_with_nothing_changed(world):
    other = replace(SPOT, provisioning=Provisioning.EC2)
    world.happens(events.CreateComputeEnvironment(other))
    before = world.picture()
    with pytest.raises(Conflict, match="exists and is EC2, training jobs need it to be SPOT"):
        world.happens(a_training("t"))
    assert world.state == before
    queue = JobQueue(QueueName("elsewhere"), 1, (other.name,))
    world.happens(events.CreateJobQueue(queue))
    with pytest.raises(Conflict, match="does not lead to compute environment"):
        world.happens(a_training("t", environment=replace(SPOT, name="elsewhere")))


def test_a_disabled_queue_and_a_bad_budget_are_refused(world):
    begun(world)
    with pytest.raises(Invalid, match="US dollars"):
        world.happens(a_training("u", tags={"windfall:budget-usd": "lots"}))
    world.happens(events.UpdateJobQueue(QueueName("training-spot"), Switch.DISABLED))
    with pytest.raises(Invalid, match="DISABLED"):
        world.happens(a_training("u"))


def test_a_training_job_may_ask_for_gpus_of_a_kind(world):
    tags = {"windfall:gpu-model": "simulated", "windfall:on-gpu-oom": "larger"}
    start = begun(world, gpus=1, tags=tags)
    assert len(start.gpu_ids) == 1
    assert world.job("training-t").submission.larger_gpu_on_oom
    with pytest.raises(Invalid, match="and for no GPU"):
        world.happens(a_training("u", tags=tags))
