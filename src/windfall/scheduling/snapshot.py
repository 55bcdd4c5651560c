"""What the scheduler and explain see: one moment, as values. The reactor makes it; nobody changes it.

Waiting jobs with equal needs share a group, so that a tick costs groups x instances and not jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from windfall.capacity.environments import ComputeEnvironment, JobQueue
from windfall.capacity.machines import InstanceState, Offer
from windfall.jobs.ids import EnvironmentName, InstanceId, JobId, MachineId, QueueName
from windfall.jobs.resources import Resources


@dataclass(frozen=True, slots=True)
class Shape:
    """What makes two waiting jobs of one queue interchangeable for the scheduler, but for their order."""

    resources: Resources
    #: How long an attempt can last at most; None means unknown. It decides who may fill a reserved gap.
    timeout_s: int | None = None


@dataclass(slots=True)
class Waiting:
    """A job that waits for a place, or the children of an array that do (`count` of them)."""

    order: int
    job_id: JobId
    runnable_at: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """The waiting jobs of one queue with one shape, first come first."""

    shape: Shape
    #: In FIFO order; iterated only as far as places last. Can be iterated again from the start.
    entries: Iterable[Waiting]
    #: How many jobs (children counted one by one) wait in it.
    count: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue and what waits in it."""

    queue: JobQueue
    groups: Sequence[WaitingGroup]


@dataclass(frozen=True, slots=True)
class Release:
    """What a running attempt will give back, and when at the latest; None is unknown."""

    resources: Resources
    gpus: int
    at: int | None


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An instance of an environment and what is left of its own claim."""

    id: InstanceId
    environment: EnvironmentName
    type: str
    state: InstanceState
    total: Resources
    used: Resources
    #: None while it is launching and its machine is not known.
    machine: MachineId | None
    idle_since: int | None
    releases: Sequence[Release] = ()


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine and what is left of it, over all environments."""

    id: MachineId
    total: Resources
    used: Resources
    free_gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """An environment and what its engine could launch for it now."""

    environment: ComputeEnvironment
    offers: tuple[Offer, ...]
    #: Why the engine cannot launch, in its own words; None when it can.
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    """The scheduler's few settings."""

    #: A job passed over for so long gets a place reserved.
    reserve_after_ms: int = 60_000
    #: An instance that has been idle for so long goes away.
    idle_after_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that scheduling depends on at one moment."""

    now: int
    queues: Sequence[QueueView]
    environments: Mapping[EnvironmentName, EnvironmentView]
    instances: Sequence[InstanceView]
    machines: Mapping[MachineId, MachineView]
    rules: SchedulingRules = field(default_factory=SchedulingRules)


@dataclass(frozen=True, slots=True)
class Placement:
    """Start this job (or the next waiting child of this array) there, with these devices."""

    queue: QueueName
    job_id: JobId
    instance: InstanceId
    gpu_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch one more instance of this kind."""

    environment: EnvironmentName
    offer: Offer


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place kept free for a job that was passed over too long."""

    job_id: JobId
    instance: InstanceId
    #: When it is expected to have room; None when the running jobs have no time limit.
    expected_at: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now."""

    placements: tuple[Placement, ...] = ()
    launches: tuple[Launch, ...] = ()
    terminations: tuple[InstanceId, ...] = ()
    reservations: tuple[Reservation, ...] = ()
