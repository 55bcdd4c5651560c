"""What the scheduler and explain see: one moment, as values. The reactor makes it; it is never changed.

Waiting jobs with equal needs share a group, so that a pass costs groups x instances and not jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.capacity.environments import ComputeEnvironment, JobQueue
from windfall.capacity.gpu_sets import NO_DEVICES, DeviceSet
from windfall.capacity.machines import NOTHING_LACKS, InstanceState, Offer
from windfall.capacity.occupancy import PartUse
from windfall.capacity.policies import QuotaShare
from windfall.jobs.attempts import Market
from windfall.jobs.gpus import GpuWish
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, JobId, MachineId, QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.fair_share import FairShareView


@dataclass(frozen=True, slots=True)
class Shape:
    """What makes two waiting jobs of one queue interchangeable for the scheduler, except for their order."""

    resources: Resources
    #: The longest time an attempt can take; None means unknown. It decides which jobs may fill a reserved
    #: gap.
    timeout_s: int | None = None
    #: The only instance type that it may run on, where instances have types; shares of a machine take any.
    instance_type: str | None = None
    #: What its GPUs must be. With a share, `resources.gpus` is the part of one device that it holds.
    gpu_wish: GpuWish | None = None
    #: What its machine must reach: the words of jobs/storage.py.
    needs: tuple[str, ...] = ()
    #: The only kind of capacity that it may be placed on, for a job with a deadline: a class, because a slack in
    #: milliseconds would make each job a group of its own.
    market: Market | None = None

    @property
    def is_part(self) -> bool:
        """Whether it requests a part of one GPU rather than whole ones."""
        return 0 < self.resources.gpus < 1

    def admits(self, instance_type: str | None, lacks: frozenset[str] = NOTHING_LACKS) -> bool:
        """Whether it may run on such instances; None stands for a share of a machine."""
        if (
            self.instance_type is not None
            and instance_type is not None
            and instance_type != self.instance_type
        ):
            return False
        return not self.needs or not lacks or lacks.isdisjoint(self.needs)


@dataclass(frozen=True, slots=True)
class Gang:
    """The nodes of a multi-node job, which start all or none: how many of which shape, the main node's first."""

    parts: tuple[tuple[Shape, int], ...]
    #: The nodes' numbers in the order of the parts; without them they count from 0.
    numbers: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many nodes it has."""
        return sum(count for _, count in self.parts)


@dataclass(frozen=True, slots=True)
class SchedulingClass:
    """What, beside shape and order, decides when a waiting job has its turn and whether it may start then."""

    #: Its share of a fair-share queue, or its quota share.
    share: str | None = None
    #: The higher goes first within a share.
    priority: int = 0
    #: Tokens that it needs, by the names of consumable resources.
    tokens: tuple[tuple[str, int], ...] = ()
    #: For a multi-node job; the group's shape is then that of its main node.
    gang: Gang | None = None


ORDINARY = SchedulingClass()


@dataclass(slots=True)
class Waiting:
    """A job that waits for a place, or the children of an array that do (`count` of them)."""

    order: int
    job_id: JobId
    runnable_at: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """The waiting jobs of one queue with one shape and scheduling class, first come, first served."""

    shape: Shape
    #: In FIFO order; iterated only while there are places. Can be iterated again from the start.
    entries: Iterable[Waiting]
    #: How many jobs (children counted one by one) wait in it.
    count: int
    scheduling_class: SchedulingClass = ORDINARY


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue and what waits in it."""

    queue: JobQueue
    groups: Sequence[WaitingGroup]
    #: For a queue with a fair-share policy.
    fair_share: FairShareView | None = None


@dataclass(slots=True)  # not frozen: thousands are made in a pass, and that would take twice as long
class Release:
    """What a running attempt will give back, and when at the latest; None is unknown."""

    resources: Resources
    #: The devices that it has, or has a part of.
    gpu_ids: tuple[str, ...]
    at: int | None
    token: AttemptToken | None = None
    #: Its job, for people, and the queue that it came from.
    job_id: JobId | None = None
    queue: QueueName | None = None
    #: Whether it runs on reclaimable capacity, and has not been asked to leave.
    reclaimable: bool = False
    #: Whether it has been asked to leave.
    leaving: bool = False
    #: The cost of taking its place away: GPU (or vCPU) seconds of work that is in no checkpoint, and of a
    #: restart.
    loss: float = 0.0
    #: Its quota share and its priority there, for an attempt that has not been asked to leave.
    share: str | None = None
    priority: int = 0
    #: The multi-node job that it is a node of, and whether it can leave without the others.
    gang: JobId | None = None
    alone: bool = True


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An instance of an environment and what is left of its own claim."""

    id: InstanceId
    environment: EnvironmentName
    type: str
    state: InstanceState
    total: Resources
    used: Resources
    #: None while it is launching, unless it is a share of a known machine.
    machine: MachineId | None
    idle_since: int | None
    releases: Sequence[Release] = ()
    #: Whether it is a share of a machine, which has no type of its own.
    is_share: bool = False
    #: What its machine does not reach.
    lacks: frozenset[str] = NOTHING_LACKS

    @property
    def own_type(self) -> str | None:
        """Its type, for jobs that require one; a share of a machine has none."""
        return None if self.is_share else self.type


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine and what is left of it, over all environments."""

    id: MachineId
    total: Resources
    used: Resources
    #: The unused devices that are not fenced, in the order in which they are given out.
    free_gpus: tuple[str, ...]
    devices: DeviceSet = NO_DEVICES
    #: What is held of the devices that are shared.
    shared_gpus: Mapping[str, PartUse] = field(default_factory=dict)
    #: Why nothing new is placed on it; None when it takes attempts.
    closed: str | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    """A type of instance whose launch failed: why, in the engine's words, and when to try again."""

    reason: str
    again_at: int


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """An environment and what its engine could launch for it now."""

    environment: ComputeEnvironment
    offers: tuple[Offer, ...]
    #: Why the engine cannot launch, in its own words; None if it can.
    trouble: str | None = None
    #: The types whose launch failed lately; they are not tried again before their time.
    shortages: Mapping[str, Shortage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """The jobs that the places are for that attempts on a machine were asked to vacate."""

    job_id: JobId
    queue: QueueName
    shape: Shape
    #: One of them, for a multi-node job: there is one claim for all its nodes.
    machine: MachineId
    #: The job's own place in the order, and how many places at most.
    order: int
    count: int
    scheduling_class: SchedulingClass = ORDINARY
    #: The latest time at which the last of them has left, for a multi-node job.
    expected_at: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaView:
    """The quota shares of a queue and what they hold."""

    shares: tuple[QuotaShare, ...]
    #: By share and unit: what attempts hold, and how much of that attempts hold that were asked to leave.
    used: Mapping[str, Mapping[str, float]]
    leaving: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    """The scheduler's few settings."""

    #: A job passed over for this long gets a place reserved.
    reserve_after_ms: int = 60_000
    #: An instance idle for this long is terminated.
    idle_after_ms: int = 300_000
    #: The time between the notice and the end when an attempt's place is taken back.
    notice_ms: int = 120_000
    #: How long an attempt may take to end when its timeout is over.
    grace_ms: int = 0
    #: Behind an attempt that is expected to take less than this, the next one is sent ahead; 0 sends none.
    look_ahead_ms: int = 250


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is available of a consumable resource now."""

    free: int
    #: Without what is used up for good.
    total: int
    #: The jobs that hold some, and how many; only explain reads it.
    holders: Mapping[JobId, int] = field(default_factory=dict)
    replenishable: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that scheduling depends on at one moment."""

    now: int
    queues: Sequence[QueueView]
    environments: Mapping[EnvironmentName, EnvironmentView]
    instances: Sequence[InstanceView]
    machines: Mapping[MachineId, MachineView]
    rules: SchedulingRules = field(default_factory=SchedulingRules)
    #: Places that are being vacated, in the order of the jobs they are for.
    claims: Sequence[Claim] = ()
    #: The consumable resources that waiting jobs name.
    tokens: Mapping[str, Tokens] = field(default_factory=dict)
    #: For the queues that have quota shares.
    quotas: Mapping[QueueName, QuotaView] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """Start this job (or the next waiting child of this array) there, with these devices."""

    queue: QueueName
    job_id: JobId
    instance: InstanceId
    gpu_ids: tuple[str, ...] = ()
    #: For a node of a multi-node job, its number; all nodes of a gang are placed in one plan.
    node: int | None = None


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
    #: When it is expected to have room; None if the running jobs have no time limit.
    expected_at: int | None


class Preemption(StrEnum):
    """Why a job of a queue with quota shares may take another job's place."""

    #: The other job's share exceeds its own limits.
    CROSS_SHARE = "cross-share"
    #: It is the more urgent job of their share.
    IN_SHARE = "in-share"


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Give this attempt notice: its place is taken back for that job."""

    token: AttemptToken
    instance: InstanceId
    for_job: JobId
    #: None if it runs on reclaimable capacity.
    preemption: Preemption | None = None
    #: Whether others leave for the same place, and the first of them stands for it.
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now."""

    placements: tuple[Placement, ...] = ()
    launches: tuple[Launch, ...] = ()
    terminations: tuple[InstanceId, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    reclaims: tuple[Reclaim, ...] = ()
    #: Places kept for the jobs that others vacate them for.
    claims: tuple[Reservation, ...] = ()
