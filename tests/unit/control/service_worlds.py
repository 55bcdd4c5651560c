"""Worlds with queues of service jobs, in which the training jobs are made as the daemon would make them."""

from __future__ import annotations

import json
from typing import Any

from tests.builders import TestWorld, a_busy_world, a_machine
from tests.unit.control.trainings import a_training
from windfall.aws_api.batch.service_jobs import instances_of, name_prefix_of
from windfall.capacity.environments import JobQueue, ServiceEnvironment, StateTimeLimit
from windfall.capacity.policies import INSTANCES, FairShare, QuotaShare, SchedulingPolicy
from windfall.control import events
from windfall.control.commands.policies import CreateQuotaShare, CreateSchedulingPolicy
from windfall.control.commands.service_jobs import CreateServiceEnvironment, SubmitServiceJob
from windfall.control.instructions import CreateTraining
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.service_jobs import ServiceJob, ServiceState

TYPE = "ml.m5.large"


def a_payload(instances: int = 1, kind: str = TYPE) -> str:
    resources = {"InstanceType": kind, "InstanceCount": instances}
    return json.dumps({"TrainingJobName": "weekly", "ResourceConfig": resources})


def a_service_job(
    job_id: str, queue: str = "services", *, instances: int = 1, **more: Any
) -> SubmitServiceJob:
    payload = more.pop("payload", a_payload(instances))
    job = ServiceJob(
        JobId(job_id),
        job_id,
        QueueName(queue),
        payload,
        instances=instances_of(payload),
        name_prefix=name_prefix_of(payload),
        **more,
    )
    return SubmitServiceJob(job)


class ServiceWorld:
    """Drives a world in the words of service jobs."""

    def __init__(self, world: TestWorld) -> None:
        self.world = world

    def submits(self, *commands: SubmitServiceJob) -> ServiceWorld:
        for command in commands:
            self.world.happens(command)
        return self

    def job(self, job_id: str) -> ServiceJob:
        """A service job as the store has it."""
        return self.world.store.service_jobs[JobId(job_id)]

    def states(self, *job_ids: str) -> list[ServiceState]:
        return [self.job(job_id).state for job_id in job_ids]

    def training(self, job_id: str) -> str:
        """The id of the training job of its latest attempt."""
        return f"training-{self.job(job_id).attempts[-1].training_job}"

    def created(self, *job_ids: str, **more: Any) -> ServiceWorld:
        """The daemon creates the training jobs that these wait for, and their places are ready."""
        for job_id in job_ids:
            name = self.job(job_id).attempts[-1].training_job
            self.world.happens(a_training(name, service_job=JobId(job_id), **more))
        self.world.ready()
        return self

    def runs(self, *job_ids: str, **more: Any) -> ServiceWorld:
        """Their training jobs are created and their processes begin."""
        for job_id in job_ids:
            self.created(job_id, **more)
            self.world.starts(self.training(job_id))
        return self

    def ends(self, job_id: str, code: int = 0) -> ServiceWorld:
        """The process of its training job ends."""
        self.world.exits(self.training(job_id), code)
        return self

    def asked_to_create(self) -> list[str]:
        """The service jobs whose training jobs the last round asked for."""
        return [one.job_id for one in self.world.asked_for(CreateTraining)]


def a_service_world(
    *shares: QuotaShare,
    limits: tuple[tuple[str, int], ...] = ((INSTANCES, 1),),
    fair: FairShare | None = None,
    time_limits: tuple[StateTimeLimit, ...] = (),
    **rules: Any,
) -> ServiceWorld:
    """A world whose queue `services` leads to a service environment; with shares, it is divided into them."""
    world = a_busy_world(a_machine(), **rules)
    policy = "policy" if shares or fair is not None else None
    if policy is not None:
        world.happens(CreateSchedulingPolicy(SchedulingPolicy(policy, fair)))
    queue = JobQueue(
        QueueName("services"),
        1,
        (),
        policy=policy,
        service_environment="training",
        time_limits=time_limits,
    )
    world.happens(
        CreateServiceEnvironment(ServiceEnvironment("training", limits)),
        events.CreateJobQueue(queue),
        *(CreateQuotaShare(share) for share in shares),
    )
    return ServiceWorld(world)
