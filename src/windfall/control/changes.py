"""What one loop round has changed, to be committed in one transaction.

Holds the changed things themselves, each once however often it changed in the round; the store writes them as
they are when the round ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.capacity.consumables import ConsumableResource
from windfall.capacity.environments import ComputeEnvironment, JobQueue, ServiceEnvironment
from windfall.capacity.hosts import Host
from windfall.capacity.machines import Instance, Machine
from windfall.capacity.policies import QuotaShare, SchedulingPolicy, ShareUse
from windfall.control.outbox import OutboxEvent
from windfall.hosting.endpoint import HostedConfig, HostedEndpoint, HostedModel
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import DefinitionKey, EnvironmentName, InstanceId, JobId, MachineId, QueueName
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job
from windfall.jobs.job_users import TenantUser
from windfall.jobs.log_groups import LogGroup
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.storage import StoragePlace
from windfall.schedules.schedule import Deletion, Schedule, ScheduleGroup, Tick

#: Small things with a key, all of which are in memory; the store keeps them alike.
Declared = (
    SchedulingPolicy
    | QuotaShare
    | ShareUse
    | ConsumableResource
    | ServiceEnvironment
    | Schedule
    | ScheduleGroup
    | Deletion
    | TenantUser
    | StoragePlace
    | LogGroup
    | Host
    | HostedModel
    | HostedConfig
    | HostedEndpoint
)


@dataclass(frozen=True, slots=True)
class LogStream:
    """Where one attempt's log is found: CloudWatch's names for it, and the task whose file it is."""

    group: str
    name: str
    task_id: str
    job_id: JobId
    created_at: int


@dataclass(frozen=True, slots=True)
class Purge:
    """Remove a few finished jobs (with their children and log streams) that ended before `before`."""

    before: int
    limit: int
    #: The history of schedules that is older than this goes too, as many ticks at a time.
    ticks_before: int = 0


@dataclass(slots=True)
class Changes:
    """Rows to write and rows to remove (None)."""

    environments: dict[EnvironmentName, ComputeEnvironment | None] = field(default_factory=dict)
    queues: dict[QueueName, JobQueue | None] = field(default_factory=dict)
    definitions: dict[DefinitionKey, JobDefinition | None] = field(default_factory=dict)
    images: dict[str, ImageMapping | None] = field(default_factory=dict)
    instances: dict[InstanceId, Instance | None] = field(default_factory=dict)
    machines: dict[MachineId, Machine | None] = field(default_factory=dict)
    jobs: dict[JobId, Job] = field(default_factory=dict)
    #: Finished jobs whose records go away.
    removed_jobs: set[JobId] = field(default_factory=set)
    log_streams: dict[str, LogStream] = field(default_factory=dict)
    #: Everything else that is declared, by its kind and its key.
    declared: dict[tuple[type[Declared], str], Declared | None] = field(default_factory=dict)
    service_jobs: dict[JobId, ServiceJob] = field(default_factory=dict)
    ticks: dict[tuple[str, int], Tick] = field(default_factory=dict)
    #: Schedules of whose ticks only the newest are kept.
    cut_histories: set[str] = field(default_factory=set)
    #: Replies to commands that came through the store, by the id of the letter that brought each.
    answers: dict[str, str] = field(default_factory=dict)
    #: What is to be reported about this round, by destination and id, in its order.
    outbox: dict[tuple[str, str], OutboxEvent] = field(default_factory=dict)
    purge: Purge | None = None

    def __bool__(self) -> bool:
        return bool(
            self.jobs
            or self.removed_jobs
            or self.log_streams
            or self.instances
            or self.definitions
            or self.environments
            or self.queues
            or self.images
            or self.machines
            or self.declared
            or self.service_jobs
            or self.ticks
            or self.cut_histories
            or self.outbox
            or self.answers
            or self.purge
        )
