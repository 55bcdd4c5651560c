"""Commands and reports about service environments and service jobs."""

from __future__ import annotations

from dataclasses import dataclass

from windfall.capacity.environments import ServiceEnvironment, Switch
from windfall.jobs.ids import JobId
from windfall.jobs.service_jobs import ServiceJob


@dataclass(frozen=True, slots=True)
class CreateServiceEnvironment:
    environment: ServiceEnvironment


@dataclass(frozen=True, slots=True)
class UpdateServiceEnvironment:
    """Change what is not None."""

    name: str
    switch: Switch | None = None
    limits: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class DeleteServiceEnvironment:
    name: str


@dataclass(frozen=True, slots=True)
class SubmitServiceJob:
    """The reply is the ServiceJob."""

    job: ServiceJob


@dataclass(frozen=True, slots=True)
class UpdateServiceJob:
    job_id: JobId
    priority: int


@dataclass(frozen=True, slots=True)
class TerminateServiceJob:
    """The reply is whether the job was live."""

    job_id: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class TrainingRefused:
    """The training job of a service job's attempt could not be created: its payload is wrong."""

    job_id: JobId
    training_job: str
    reason: str


ServiceCommand = (
    CreateServiceEnvironment
    | UpdateServiceEnvironment
    | DeleteServiceEnvironment
    | SubmitServiceJob
    | UpdateServiceJob
    | TerminateServiceJob
    | TrainingRefused
)
