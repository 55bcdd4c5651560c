"""Why a job waits, as values: each reason has a stable code and describes itself.

Computes nothing; obstacles.py and explain.py do. Codes are for programs and do not change; texts may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from windfall.jobs.ids import EnvironmentName, InstanceId, JobId, QueueName
from windfall.jobs.resources import Resources
from windfall.scheduling.wording import Resource, all_of, amount_of, counted, listed, number, utc


class Reason(Protocol):
    """One thing that keeps a job waiting."""

    code: ClassVar[str]

    def text(self) -> str:
        """The reason in one sentence, without a full stop."""


@dataclass(frozen=True, slots=True)
class StartsNext:
    """Nothing is in its way."""

    code: ClassVar[str] = "STARTS_NEXT"

    def text(self) -> str:
        return "a place is free for it, it starts in the next round"


@dataclass(frozen=True, slots=True)
class NoEnvironmentEnabled:
    """No environment of its queue accepts new work."""

    code: ClassVar[str] = "NO_ENVIRONMENT_ENABLED"
    queue: QueueName

    def text(self) -> str:
        return f"no compute environment of queue {self.queue} is enabled"


@dataclass(frozen=True, slots=True)
class EnvironmentDisabled:
    """An environment accepts no new work."""

    code: ClassVar[str] = "ENVIRONMENT_DISABLED"
    environment: EnvironmentName

    def text(self) -> str:
        return f"compute environment {self.environment} is disabled"


@dataclass(frozen=True, slots=True)
class EnvironmentUnknown:
    """The queue names an environment that does not exist."""

    code: ClassVar[str] = "ENVIRONMENT_UNKNOWN"
    environment: EnvironmentName

    def text(self) -> str:
        return f"compute environment {self.environment} does not exist"


@dataclass(frozen=True, slots=True)
class GpusOnFargate:
    """A GPU job in front of an environment of a kind that has no GPUs."""

    code: ClassVar[str] = "GPUS_ON_FARGATE"
    environment: EnvironmentName
    gpus: float
    #: Environments that would take it.
    instead: tuple[EnvironmentName, ...]

    def text(self) -> str:
        asks = (
            f"asks for {amount_of(Resource.GPUS, self.gpus)}, Fargate environment {self.environment} has none"
        )
        return f"{asks}; {listed(self.instead)} would take it" if self.instead else asks


@dataclass(frozen=True, slots=True)
class AsksTooMuch:
    """More of one resource than the largest instance of an environment has."""

    code: ClassVar[str] = "ASKS_TOO_MUCH"
    environment: EnvironmentName
    resource: Resource
    asked: float
    largest: float

    def text(self) -> str:
        amount = amount_of(self.resource, self.asked)
        largest = f"the largest instance of {self.environment} has {number(self.largest)}"
        return f"asks for {amount}, and {largest}: it can never run there"


@dataclass(frozen=True, slots=True)
class NoSingleInstance:
    """Each resource is there, but not all on one instance."""

    code: ClassVar[str] = "NO_SINGLE_INSTANCE"
    environment: EnvironmentName
    asked: Resources

    def text(self) -> str:
        return f"no single instance of {self.environment} has {all_of(self.asked)} together"


@dataclass(frozen=True, slots=True)
class MaxVcpusTooSmall:
    """An instance that is large enough would exceed the environment's maxvCpus by itself."""

    code: ClassVar[str] = "MAX_VCPUS_TOO_SMALL"
    environment: EnvironmentName
    max_vcpus: int
    needed: float

    def text(self) -> str:
        needs = f"an instance that takes it has {number(self.needed)} vCPUs"
        return f"{needs}, compute environment {self.environment} may have {number(self.max_vcpus)} (maxvCpus)"


@dataclass(frozen=True, slots=True)
class NothingOffered:
    """Neither an instance nor a way to get one."""

    code: ClassVar[str] = "NOTHING_OFFERED"
    environment: EnvironmentName

    def text(self) -> str:
        return f"compute environment {self.environment} has no instance, and its engine offers none"


@dataclass(frozen=True, slots=True)
class OtherInstanceType:
    """It requires a type that the environment does not have."""

    code: ClassVar[str] = "OTHER_INSTANCE_TYPE"
    environment: EnvironmentName
    asked: str
    types: tuple[str, ...]

    def text(self) -> str:
        return f"asks for an instance of type {self.asked}, {self.environment} has {listed(self.types)}"


@dataclass(frozen=True, slots=True)
class PlaceLeft:
    """Others vacate a place for it: reclaimable attempts, for an on-demand job; or attempts of its own queue."""

    code: ClassVar[str] = "PLACE_LEFT"
    #: Where; several for the nodes of a multi-node job.
    instances: tuple[InstanceId, ...]
    #: The jobs whose attempts leave.
    jobs: tuple[JobId, ...]
    expected_at: int
    #: Whether they have notice already.
    have_notice: bool
    #: Whether they leave because of their quota share, or their priority in it.
    by_quota: bool = False

    def text(self) -> str:
        who = f"{'job' if len(self.jobs) == 1 else 'jobs'} {', '.join(self.jobs)}"
        whose = "of its own queue" if self.by_quota else "on reclaimable capacity"
        verb = ("leaves" if len(self.jobs) == 1 else "leave") if self.have_notice else "must leave"
        place, it = ("a place", "it") if len(self.instances) == 1 else ("places", "them")
        return (
            f"takes back {place} on {', '.join(self.instances)}: {who}, {whose}, {verb} {it}"
            f" at {utc(self.expected_at)} at the latest"
        )


@dataclass(frozen=True, slots=True)
class PlaceReserved:
    """It was passed over too long; a place is kept for it."""

    code: ClassVar[str] = "PLACE_RESERVED"
    instance: InstanceId
    #: Since when it has been waiting too long.
    since: int
    expected_at: int | None

    def text(self) -> str:
        reserved = f"a place on {self.instance} is reserved for it since {utc(self.since)}"
        if self.expected_at is None:
            return f"{reserved}, free when running jobs without a time limit end"
        return f"{reserved}, expected at {utc(self.expected_at)} at the latest"


@dataclass(frozen=True, slots=True)
class InstanceLaunching:
    """Capacity for it is launching."""

    code: ClassVar[str] = "INSTANCE_LAUNCHING"
    environment: EnvironmentName
    instances: int

    def text(self) -> str:
        verb = "is" if self.instances == 1 else "are"
        return f"{counted(self.instances, 'instance', 'instances')} of {self.environment} {verb} launching"


@dataclass(frozen=True, slots=True)
class LaunchesNext:
    """An instance that takes it can be launched at once."""

    code: ClassVar[str] = "LAUNCHES_NEXT"
    environment: EnvironmentName
    type: str

    def text(self) -> str:
        return f"an instance of type {self.type} can be launched for it in {self.environment}"


@dataclass(frozen=True, slots=True)
class EarlierEnvironment:
    """There is room, but environments that come before it in the queue's order can launch an instance."""

    code: ClassVar[str] = "EARLIER_ENVIRONMENT"
    environment: EnvironmentName
    instance: InstanceId

    def text(self) -> str:
        return f"{self.instance} of {self.environment} has room, but earlier environments of the queue can launch"


@dataclass(frozen=True, slots=True)
class MaxVcpusReached:
    """The environment is at its maxvCpus, or one more instance would exceed it."""

    code: ClassVar[str] = "MAX_VCPUS_REACHED"
    environment: EnvironmentName
    vcpus: float
    max_vcpus: int

    def text(self) -> str:
        most = f"at most {number(self.max_vcpus)} vCPUs (maxvCpus)"
        return f"{self.environment} has {number(self.vcpus)} of {most}, no room for one more instance"


@dataclass(frozen=True, slots=True)
class NoneAvailable:
    """The engine has no more instances of the types that would take it."""

    code: ClassVar[str] = "NONE_AVAILABLE"
    environment: EnvironmentName
    types: tuple[str, ...]

    def text(self) -> str:
        return f"no more instances of type {listed(self.types)} are available for {self.environment} now"


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The last launch of a type that would take it failed."""

    code: ClassVar[str] = "LAUNCH_FAILED"
    environment: EnvironmentName
    type: str
    trouble: str
    again_at: int

    def text(self) -> str:
        failed = f"{self.environment} could not get an instance of type {self.type} ({self.trouble})"
        return f"{failed}, and asks again at {utc(self.again_at)}"


@dataclass(frozen=True, slots=True)
class TooExpensive:
    """Spot instances that would take it cost more than the environment may pay."""

    code: ClassVar[str] = "TOO_DEAR"
    environment: EnvironmentName
    type: str
    usd_hour: float
    on_demand_usd_hour: float
    bid_percent: int

    def text(self) -> str:
        price = f"an instance of type {self.type} costs ${self.usd_hour:,.4g} an hour"
        most = f"{self.environment} pays at most {self.bid_percent} % of ${self.on_demand_usd_hour:,.4g}"
        return f"{price}, {most} (bidPercentage)"


@dataclass(frozen=True, slots=True)
class EngineTrouble:
    """The engine cannot launch, in its own words."""

    code: ClassVar[str] = "ENGINE_TROUBLE"
    environment: EnvironmentName
    trouble: str

    def text(self) -> str:
        return f"{self.environment} cannot launch instances: {self.trouble}"


@dataclass(frozen=True, slots=True)
class RoomTaken:
    """The instance that comes closest has too little left."""

    code: ClassVar[str] = "ROOM_TAKEN"
    environment: EnvironmentName
    instance: InstanceId
    resource: Resource
    asked: float
    free: float
    total: float
    #: Attempts that run there, or start in this round.
    running: int
    #: What its GPUs must be, to follow `GPU`.
    kind: str = ""

    def text(self) -> str:
        free, verb = number(self.free), "is" if self.free == 1 else "are"
        amount = amount_of(self.resource, self.asked) + self.kind
        needs = f"needs {amount}, {free} of {number(self.total)} {verb} free"
        runs = "runs" if self.running == 1 else "run"
        where = f"on {self.instance} of {self.environment}"
        return f"{needs} {where}, where {counted(self.running, 'job', 'jobs')} {runs}"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """There is room, but it is kept for a job that has waited longer."""

    code: ClassVar[str] = "HELD_BACK"
    by_job: JobId
    instance: InstanceId
    expected_at: int | None

    def text(self) -> str:
        reserved = f"the free room on {self.instance} is reserved for job {self.by_job}"
        return (
            reserved
            if self.expected_at is None
            else f"{reserved}, which is expected to start at {utc(self.expected_at)}"
        )


@dataclass(frozen=True, slots=True)
class HigherPriority:
    """A more urgent queue shares its environments and has jobs waiting."""

    code: ClassVar[str] = "HIGHER_PRIORITY"
    queue: QueueName
    priority: int
    jobs: int

    def text(self) -> str:
        verb = "goes" if self.jobs == 1 else "go"
        jobs = counted(self.jobs, "job", "jobs")
        return f"{jobs} of queue {self.queue} (priority {self.priority}) {verb} first"


@dataclass(frozen=True, slots=True)
class JobsAhead:
    """Jobs of its own queue that came earlier."""

    code: ClassVar[str] = "JOBS_AHEAD"
    queue: QueueName
    jobs: int

    def text(self) -> str:
        return f"{counted(self.jobs, 'job', 'jobs')} ahead in queue {self.queue}"


@dataclass(frozen=True, slots=True)
class NextCapacity:
    """The latest time at which running jobs have made room for one such job."""

    code: ClassVar[str] = "NEXT_CAPACITY"
    expected_at: int

    def text(self) -> str:
        return f"next capacity expected at {utc(self.expected_at)} at the latest"


@dataclass(frozen=True, slots=True)
class QueueDisabled:
    """Worth knowing, but it holds nothing back: a disabled queue lets its jobs go on."""

    code: ClassVar[str] = "QUEUE_DISABLED"
    queue: QueueName

    def text(self) -> str:
        return f"queue {self.queue} is disabled: it takes no new jobs, those in it still run"


@dataclass(frozen=True, slots=True)
class Undetermined:
    """Nothing that explain knows is in its way; the next round decides."""

    code: ClassVar[str] = "UNDETERMINED"

    def text(self) -> str:
        return "no reason was found; if this stays so, look for instances whose machine is not known"
