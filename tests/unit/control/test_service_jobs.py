"""Service jobs over the real reactor: they wait, follow their training jobs, are tried again, and leave for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.control.service_worlds import TYPE, ServiceWorld, a_service_job, a_service_world
from tests.unit.control.trainings import a_training
from windfall.aws_api.sagemaker.endings import RECEIVED
from windfall.capacity.environments import JobQueue, ServiceEnvironment, StateTimeLimit, Switch
from windfall.capacity.policies import (
    INSTANCES,
    CapacityLimit,
    FairShare,
    QuotaShare,
    ShareWeight,
    SharingStrategy,
)
from windfall.control import events
from windfall.control.commands.policies import DeleteQuotaShare, UpdateQuotaShare
from windfall.control.commands.service_jobs import (
    CreateServiceEnvironment,
    TerminateServiceJob,
    TrainingRefused,
    UpdateServiceEnvironment,
    UpdateServiceJob,
)
from windfall.control.instructions import CreateTraining, StopAttempt
from windfall.control.outbox import EventKind
from windfall.control.rebuild import instructions_after_restart
from windfall.control.service_dispatch import front_of_service_queue
from windfall.jobs.aws_texts import MAX_RESOURCE, TIMED_OUT, AwsReason
from windfall.jobs.errors import Conflict, Invalid, NotFound
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.retry import Action, ExitRule, RetryStrategy
from windfall.jobs.service_jobs import ServiceState
from windfall.jobs.states import FAILED
from windfall.scheduling.service_views import ServicePreemption

SUBMITTED, RUNNABLE, SCHEDULED, STARTING, RUNNING, SUCCEEDED, ENDED = (
    ServiceState.SUBMITTED,
    ServiceState.RUNNABLE,
    ServiceState.SCHEDULED,
    ServiceState.STARTING,
    ServiceState.RUNNING,
    ServiceState.SUCCEEDED,
    ServiceState.FAILED,
)


@pytest.fixture
def world() -> ServiceWorld:
    return a_service_world()


def lending(
    name: str, amount: int, sharing: SharingStrategy = SharingStrategy.LEND_AND_BORROW, **more
) -> QuotaShare:
    return QuotaShare(name, QueueName("services"), (CapacityLimit(TYPE, amount),), sharing, **more)


def test_one_follows_its_training_job_and_the_next_has_its_turn(world):
    world.submits(a_service_job("a"))
    assert world.asked_to_create() == ["a"]
    world.submits(a_service_job("b"))
    assert world.states("a", "b") == [SCHEDULED, RUNNABLE]
    world.created("a")
    assert world.states("a") == [STARTING]
    world.world.starts(world.training("a"))
    assert world.states("a") == [RUNNING]
    assert world.job("a").started_at == world.world.now
    world.ends("a")
    assert world.states("a", "b") == [SUCCEEDED, SCHEDULED]
    assert world.asked_to_create() == ["b"]
    assert world.job("a").status_reason == f"{RECEIVED}Training job completed"
    assert world.job("a").attempts[0].capacity == {INSTANCES: 1.0}


def test_a_higher_priority_has_its_turn_first(world):
    world.submits(a_service_job("a"), a_service_job("b"), a_service_job("c"))
    world.world.happens(UpdateServiceJob(JobId("c"), 5))
    assert [job for job, _ in front_of_service_queue(world.world.state, QueueName("services"), 0)] == [
        "c",
        "b",
    ]
    world.runs("a").ends("a")
    assert world.states("b", "c") == [RUNNABLE, SCHEDULED]
    with pytest.raises(NotFound):
        world.world.happens(UpdateServiceJob(JobId("a"), 5))


@pytest.mark.parametrize("pattern", ["AlgorithmError*", " AlgorithmError*"])
def test_retry_rules_see_the_words_of_sagemaker(world, pattern):
    rule = ExitRule(Action.RETRY, on_status_reason=f"{RECEIVED.rstrip()}{pattern}")
    stop = ExitRule(Action.EXIT, on_status_reason="*")
    world.submits(a_service_job("a", retry=RetryStrategy(3, (rule, stop))))
    world.runs("a").ends("a", 7)
    assert world.states("a") == [SCHEDULED]
    first, second = world.job("a").attempts
    assert first.status_reason == f"{RECEIVED}AlgorithmError: , exit code: 7"
    assert first.training_job != second.training_job
    world.world.happens(TrainingRefused(JobId("a"), second.training_job, "ValidationException: no"))
    assert world.states("a") == [ENDED]
    assert world.job("a").status_reason == f"{RECEIVED}ValidationException: no"


def test_attempts_are_counted(world):
    world.submits(a_service_job("a", retry=RetryStrategy(2)))
    world.runs("a").ends("a", 1).runs("a").ends("a", 1)
    assert world.states("a") == [ENDED]
    assert len(world.job("a").attempts) == 2


def test_want_of_capacity_costs_no_attempt_and_keeps_the_newest_training_job(world):
    world.world.places = False
    world.submits(a_service_job("a"))
    world.world.places = True
    world.world.happens()
    names = []
    for _ in range(3):
        world.world.places = False
        name = world.job("a").attempts[-1].training_job
        names.append(name)
        world.world.happens(a_training(name, service_job=JobId("a"), pending_s=60))
        world.world.later(60_000)
        assert world.states("a") == [RUNNABLE]
        world.world.places = True
        world.world.happens()
    assert len(world.job("a").attempts) == 2
    assert [f"training-{name}" in world.world.store.jobs for name in names] == [False, False, True]
    assert world.world.job(f"training-{names[-1]}").state is FAILED


def test_terminating_ends_what_waits_and_stops_what_runs(world):
    world.submits(a_service_job("a"), a_service_job("b"))
    world.runs("a")
    assert world.world.happens(TerminateServiceJob(JobId("b"), "not needed")) is True
    assert (world.job("b").state, world.job("b").status_reason) == (ENDED, "not needed")
    world.world.happens(TerminateServiceJob(JobId("a"), "enough"))
    assert [one.token for one in world.world.asked_for(StopAttempt)] == [
        world.world.token(world.training("a"))
    ]
    assert (world.job("a").state, world.job("a").terminated) == (RUNNING, True)
    world.ends("a", 143)
    assert (world.job("a").state, world.job("a").status_reason) == (ENDED, "enough")
    assert world.world.happens(TerminateServiceJob(JobId("a"), "again")) is False


def test_a_training_job_that_nobody_waits_for_any_more_is_refused(world):
    world.submits(a_service_job("a"))
    name = world.job("a").attempts[-1].training_job
    world.world.happens(TerminateServiceJob(JobId("a"), "enough"))
    assert world.states("a") == [ENDED]
    with pytest.raises(Conflict):
        world.world.happens(a_training(name, service_job=JobId("a")))
    assert f"training-{name}" not in world.world.state.jobs


def test_an_attempt_that_runs_too_long_is_stopped_and_not_tried_again(world):
    world.submits(a_service_job("a", timeout_s=60, retry=RetryStrategy(3)))
    world.runs("a")
    world.world.later(59_000)
    assert not world.job("a").terminated
    world.world.later(1_000)
    assert world.world.asked_for(StopAttempt)
    world.ends("a", 137)
    assert (world.job("a").state, world.job("a").status_reason) == (ENDED, TIMED_OUT)


def test_after_a_restart_the_training_job_is_asked_for_again(world):
    world.submits(a_service_job("a"), a_service_job("b"))
    name = world.job("a").attempts[-1].training_job
    world.world.restarted()
    (again,) = [it for it in instructions_after_restart(world.world.state) if isinstance(it, CreateTraining)]
    assert (again.job_id, again.training_job) == ("a", name)
    world.created("a")
    world.world.restarted()
    assert instructions_after_restart(world.world.state) == []
    world.world.connected()
    world.world.starts(world.training("a"))
    world.ends("a")
    assert world.states("a", "b") == [SUCCEEDED, SCHEDULED]


def test_lent_instances_come_back_and_the_borrower_waits_again():
    world = a_service_world(lending("a", 1), lending("b", 1), limits=((TYPE, 2),))
    world.submits(
        a_service_job("b1", quota_share="b"),
        a_service_job("b2", quota_share="b", preemptions_max=1),
    )
    world.runs("b1")
    world.world.later(5_000)
    world.runs("b2")
    world.submits(a_service_job("a1", quota_share="a"))
    # b2 has run for less time, so it loses less.
    assert world.job("b2").status_reason == f"PREEMPTION_IN_PROGRESS: {ServicePreemption.CROSS_SHARE}"
    assert world.states("b1", "b2", "a1") == [RUNNING, RUNNING, RUNNABLE]
    world.world.restarted().connected((world.training("b1"), world.training("b2")))
    assert len([job for job in world.world.state.service_jobs.values() if job.attempt]) == 2
    world.ends("b2", 143)
    assert world.states("b1", "b2", "a1") == [RUNNING, RUNNABLE, SCHEDULED]
    (preempted,) = world.job("b2").attempts
    assert (preempted.preempted, preempted.status_reason) == (True, ServicePreemption.CROSS_SHARE)
    # Once more, and it has been preempted more often than it allows.
    world.runs("a1").ends("a1").runs("b2")
    world.submits(a_service_job("a2", quota_share="a"))
    world.ends("b2", 143)
    assert (world.job("b2").state, world.job("b2").status_reason) == (ENDED, ServicePreemption.CROSS_SHARE)


def test_one_whose_training_job_has_no_place_yet_leaves_at_once():
    world = a_service_world(lending("a", 1), lending("b", 1), limits=((TYPE, 2),))
    world.submits(a_service_job("b1", quota_share="b"), a_service_job("b2", quota_share="b"))
    world.runs("b1")
    world.submits(a_service_job("a1", quota_share="a"))
    assert world.states("b1", "b2", "a1") == [RUNNING, RUNNABLE, SCHEDULED]
    assert world.asked_to_create() == ["a1"]


def test_what_happens_to_service_jobs_is_told():
    world = a_service_world(
        lending("a", 1), lending("b", 1), limits=((TYPE, 2),), event_destinations=("file",)
    )
    world.submits(a_service_job("b1", quota_share="b"), a_service_job("b2", quota_share="b"))
    world.runs("b1")
    world.world.later(5_000)
    world.runs("b2")
    world.submits(a_service_job("a1", quota_share="a"), a_service_job("a2", quota_share="a", instances=9))
    world.ends("b2", 143)

    def told_of(job_id: str) -> list[str]:
        told = [it for it in world.world.store.outbox.values() if it.subject == job_id and it.service_job]
        return [
            it.service_job.state if it.kind is EventKind.SERVICE_JOB else it.kind.split(" ", 3)[-1]
            for it in told
        ]

    waited = [RUNNABLE, SCHEDULED, STARTING, RUNNING]
    assert told_of("b2") == [*waited, "Preemption Started", "Preemption Completed", RUNNABLE]
    assert told_of("a1") == [RUNNABLE, SCHEDULED]
    assert told_of("a2") == [RUNNABLE, "Queue Blocked"]


def test_a_new_queue_of_an_old_name_is_charged_for_the_trainings_that_still_stop():
    world = a_service_world(fair=FairShare())
    world.submits(a_service_job("old", share="a")).runs("old")
    state, name = world.world.state, QueueName("services")
    queue = state.queues[name]
    world.world.happens(
        events.UpdateJobQueue(name, Switch.DISABLED),
        events.DeleteJobQueue(name),
        events.CreateJobQueue(queue),
    )
    world.submits(a_service_job("new", share="a"))
    meter = state.shares.of(name)["a"]
    assert (meter.jobs, meter.held.vcpus) == (2, 1.0)
    world.ends("old", 143)
    assert (meter.jobs, meter.held.vcpus) == (1, 1.0)  # the new one has its turn


def test_fair_shares_take_turns_by_what_they_used():
    world = a_service_world(fair=FairShare(weights=(ShareWeight("a", 0.5),)))
    world.submits(
        a_service_job("a1", share="a"), a_service_job("a2", share="a"), a_service_job("b1", share="b")
    )
    world.runs("a1")
    world.world.later(60_000)
    world.ends("a1")
    assert world.states("a2", "b1") == [RUNNABLE, SCHEDULED]
    world.world.restarted()
    assert world.world.state.shares.of(QueueName("services"))["b"].held.vcpus == 1.0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (a_service_job("x", "queue"), "takes no service jobs"),
        (a_service_job("x", "nowhere"), "does not exist"),
        (a_service_job("x", share="a"), "fair share"),
        (a_service_job("x", quota_share="a"), "quota share"),
        (a_service_job("x", preemptions_max=1), "quota share"),
    ],
)
def test_what_is_refused(world, command, words):
    with pytest.raises((Invalid, NotFound), match=words):
        world.world.happens(command)
    assert world.world.state.service_jobs == {}


def test_what_a_quota_queue_refuses():
    world = a_service_world(lending("a", 1), limits=((TYPE, 2),))
    for job, words in (
        (a_service_job("x"), "quotaShareName must be specified"),
        (a_service_job("x", share="a"), "quotaShareName"),
        (a_service_job("x", quota_share="z"), "no quota share z"),
    ):
        with pytest.raises((Invalid, NotFound), match=words):
            world.world.happens(job)


def test_a_queue_with_quota_shares_has_its_environment_for_itself():
    world = a_service_world(lending("a", 1), limits=((TYPE, 2),)).world
    beside = JobQueue(QueueName("beside"), 1, (), service_environment="training")
    with pytest.raises(Invalid, match="one of its own"):
        world.happens(events.CreateJobQueue(beside))
    world.happens(
        CreateServiceEnvironment(ServiceEnvironment("other", ((TYPE, 1),))),
        events.CreateJobQueue(replace(beside, service_environment="other")),
    )
    with pytest.raises(Invalid, match="one of its own"):
        world.happens(events.UpdateJobQueue(beside.name, service_environment="training"))


def test_ordinary_jobs_do_not_go_to_a_queue_of_service_jobs(world):
    with pytest.raises(Invalid, match="SubmitServiceJob"):
        world.world.happens(events.SubmitJob(JobId("j"), "j", QueueName("services"), "work"))


def test_a_disabled_environment_dispatches_nobody(world):
    world.world.happens(UpdateServiceEnvironment("training", Switch.DISABLED))
    world.submits(a_service_job("a"))
    assert world.states("a") == [RUNNABLE]
    world.world.happens(UpdateServiceEnvironment("training", Switch.ENABLED))
    assert world.states("a") == [SCHEDULED]


def test_one_that_is_too_large_says_so_and_is_ended_by_the_limit_of_its_queue():
    limit = StateTimeLimit("MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE", 600)
    world = a_service_world(time_limits=(limit,))
    world.submits(a_service_job("a", instances=2), a_service_job("b"))
    assert world.states("a", "b") == [RUNNABLE, SCHEDULED]
    assert world.job("a").status_reason == MAX_RESOURCE
    world.world.later(599_000)
    assert world.states("a") == [RUNNABLE]
    world.world.later(1_000)
    assert world.states("a") == [ENDED]
    assert world.job("a").status_reason == (
        "Terminated by JobStateTimeLimit action due to reason:"
        " MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE"
    )


NO_CAPACITY = f"{AwsReason.NO_CAPACITY} [ml.m5.large]"


def waiting_for_a_machine(world: ServiceWorld) -> None:
    """A service job whose training job heads its queue and finds no capacity."""
    world.submits(a_service_job("a"))
    world.world.places = False
    world.world.happens(a_training(world.job("a").attempts[-1].training_job, service_job=JobId("a")))
    world.world.state.jobs[JobId(world.training("a"))].status_reason = NO_CAPACITY
    world.world.later(1_000)
    assert (world.states("a"), world.job("a").status_reason) == ([SCHEDULED], NO_CAPACITY)


def test_want_of_capacity_is_told_until_there_is_a_machine(world):
    waiting_for_a_machine(world)
    world.world.places = True
    world.world.happens()
    world.world.ready()
    assert (world.states("a"), world.job("a").status_reason) == ([STARTING], None)
    assert world.job("a").blocked_at is None


def test_want_of_capacity_is_limited_by_the_queue():
    world = a_service_world(time_limits=(StateTimeLimit("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY", 600),))
    waiting_for_a_machine(world)
    world.world.later(599_000)
    assert world.states("a") == [SCHEDULED]
    world.world.later(1_000)
    assert world.states("a") == [ENDED]
    assert world.world.job(world.training("a")).state is FAILED


def test_a_larger_limit_takes_the_reason_away(world):
    world.submits(a_service_job("a", instances=2))
    assert world.job("a").blocked_at is not None
    world.world.happens(UpdateServiceEnvironment("training", limits=((INSTANCES, 2),)))
    assert (world.states("a"), world.job("a").status_reason) == ([SCHEDULED], None)
    assert world.job("a").blocked_at is None


def test_a_queue_and_a_quota_share_take_their_jobs_with_them():
    world = a_service_world(lending("a", 1), limits=((TYPE, 2),))
    world.submits(a_service_job("a1", quota_share="a"), a_service_job("a2", quota_share="a"))
    world.world.happens(
        UpdateQuotaShare("services/a", switch=Switch.DISABLED), DeleteQuotaShare("services/a")
    )
    assert world.states("a1", "a2") == [ENDED, ENDED]
    world = a_service_world()
    world.submits(a_service_job("a"))
    world.world.happens(
        events.UpdateJobQueue(QueueName("services"), Switch.DISABLED),
        events.DeleteJobQueue(QueueName("services")),
    )
    assert (world.states("a"), world.job("a").status_reason) == ([ENDED], "Job queue deleted")


def test_the_trainings_of_a_deleted_queue_take_up_their_environment_until_they_have_stopped(world):
    world.submits(a_service_job("old")).runs("old")
    other = JobQueue(QueueName("others"), 1, (), service_environment="training")
    world.world.happens(
        events.CreateJobQueue(other),
        events.UpdateJobQueue(QueueName("services"), Switch.DISABLED),
        events.DeleteJobQueue(QueueName("services")),
    )
    world.submits(a_service_job("new", "others"))
    assert world.states("new") == [RUNNABLE]
    assert world.job("new").status_reason is None, "it waits, and is not too large"
    world.ends("old", 143)
    assert (world.states("old", "new"), world.asked_to_create()) == ([ENDED, SCHEDULED], ["new"])


def test_an_unreadable_payload_is_dispatched_and_refused(world):
    world.submits(a_service_job("a", payload="no JSON"))
    name = world.job("a").attempts[-1].training_job
    world.world.happens(TrainingRefused(JobId("a"), name, "ValidationException: no JSON"))
    assert world.states("a") == [ENDED]
