"""Commands about compute environments and job queues."""

from __future__ import annotations

from dataclasses import dataclass

from windfall.capacity.environments import (
    ComputeEnvironment,
    JobQueue,
    Provisioning,
    StateTimeLimit,
    Switch,
)
from windfall.jobs.ids import EnvironmentName, QueueName


@dataclass(frozen=True, slots=True)
class CreateComputeEnvironment:
    environment: ComputeEnvironment


@dataclass(frozen=True, slots=True)
class UpdateComputeEnvironment:
    """Change what is not None; `document` replaces the kept request."""

    name: EnvironmentName
    switch: Switch | None = None
    min_vcpus: int | None = None
    max_vcpus: int | None = None
    document: str | None = None
    instance_types: tuple[str, ...] | None = None
    allocation: str | None = None
    bid_percent: int | None = None
    provisioning: Provisioning | None = None
    #: How long jobs have on instances that an update makes outdated.
    jobs_have_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class DeleteComputeEnvironment:
    name: EnvironmentName


@dataclass(frozen=True, slots=True)
class CreateJobQueue:
    queue: JobQueue


@dataclass(frozen=True, slots=True)
class UpdateJobQueue:
    """Change what is not None; `document` replaces the kept request."""

    name: QueueName
    switch: Switch | None = None
    priority: int | None = None
    environments: tuple[EnvironmentName, ...] | None = None
    document: str | None = None
    time_limits: tuple[StateTimeLimit, ...] | None = None
    policy: str | None = None
    service_environment: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteJobQueue:
    name: QueueName
