"""What the core needs of the outside, and what the outside may ask of the core.

Store and Engine, with the files of its attempts, are implemented by adapters and tested by one conformance suite each;
CorePort is implemented by the daemon and used by the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from windfall.advisor.samples import Recording, Sample, SampledGpu
from windfall.capacity.environments import ComputeEnvironment, JobQueue
from windfall.capacity.machines import Instance, Machine, Offer
from windfall.control.changes import Changes, Declared, LogStream
from windfall.control.events import Command, Report
from windfall.control.instructions import Instruction
from windfall.control.outbox import OutboxEvent
from windfall.control.queue_shares import QueueShares
from windfall.control.why import Why
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import AttemptToken, DefinitionKey, InstanceId, JobId, QueueName
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob, ServiceState
from windfall.jobs.states import JobState
from windfall.jobs.storage import StorageAccess
from windfall.schedules.schedule import Tick


@dataclass(slots=True)
class Loaded:
    """All that a starting daemon needs: everything small, and the jobs that are not finished."""

    environments: list[ComputeEnvironment] = field(default_factory=list)
    queues: list[JobQueue] = field(default_factory=list)
    definitions: list[JobDefinition] = field(default_factory=list)
    images: list[ImageMapping] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    #: Live jobs, arrays and children (those with a record), in their FIFO order.
    jobs: list[Job] = field(default_factory=list)
    #: (parent id, index, state) of finished children of live arrays.
    finished_children: list[tuple[JobId, int, JobState]] = field(default_factory=list)
    #: Policies, shares, consumable resources, service environments, schedules: all that `Changes.declared` wrote.
    declared: list[Declared] = field(default_factory=list)
    #: Live service jobs, oldest first.
    service_jobs: list[ServiceJob] = field(default_factory=list)
    #: Ticks that are not done: DUE or WAITING.
    ticks: list[Tick] = field(default_factory=list)
    #: The highest `order` ever given to a job.
    last_order: int = 0


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a listing may ask for. `states` None means any."""

    queue: QueueName | None = None
    #: Several queues at once; None means the one of `queue`, or all.
    queues: tuple[QueueName, ...] | None = None
    #: Children of this array that have a record of their own.
    parent: JobId | None = None
    states: tuple[JobState, ...] | None = None
    #: Compared without case; `prefix` names end in the wildcard of the caller.
    name: str | None = None
    name_is_prefix: bool = False
    definition: str | None = None
    definition_is_prefix: bool = False
    #: The share that it was submitted under.
    share: str | None = None
    created_before: int | None = None
    created_after: int | None = None
    #: Jobs that name this consumable resource.
    consumable: str | None = None
    oldest_first: bool = False
    #: Jobs of this tenant; None means of all.
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of jobs, newest first unless asked otherwise, and where the next one begins (None at the end)."""

    jobs: list[Job]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class ServiceJobFilter:
    """What a listing of service jobs may ask for. `states` None means any."""

    queue: QueueName
    states: tuple[ServiceState, ...] | None = None
    #: Compared without case; `prefix` names end in the wildcard of the caller.
    name: str | None = None
    name_is_prefix: bool = False
    created_before: int | None = None
    created_after: int | None = None
    share: str | None = None
    quota_share: str | None = None
    #: Service jobs of this tenant; None means of all.
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceJobPage:
    """A page of service jobs, newest first, and where the next one begins (None at the end)."""

    jobs: list[ServiceJob]
    next_after: str | None


D = TypeVar("D", bound=Declared)


class Store(Protocol):
    """Durable state. `commit` returns only when the changes survive a power cut. Called from worker threads."""

    def load(self) -> Loaded:
        """Read what a starting daemon needs."""

    def commit(self, changes: Changes) -> Sequence[str]:
        """Write a round, all or nothing; answer the task ids whose jobs it removed."""

    def jobs(self, ids: Sequence[JobId]) -> list[Job]:
        """These jobs, in the order asked; unknown ones (and children without a record) are left out."""

    def list_jobs(self, wanted: JobFilter, limit: int, after: str | None) -> JobPage:
        """A page of top-level jobs, or of an array's recorded children by index when `parent` is given."""

    def ended_children(self, array: JobId) -> list[tuple[int, JobState]]:
        """Index and final state of an array's children that ended with a record of their own, by index."""

    def find_job(self, text: str, tenant: str | None = None) -> list[JobId]:
        """Ids of a tenant's jobs whose id begins with `text` or whose name is `text`, newest first, at most 10."""

    def counts(self, tenant: str | None = None) -> Mapping[tuple[QueueName, JobState], int]:
        """How many top-level jobs, of one tenant or of all, each queue has in each state."""

    def submitted(
        self, span: tuple[int, int], step_ms: int, queue: QueueName | None = None, tenant: str | None = None
    ) -> Mapping[tuple[int, JobState], int]:
        """How many top-level jobs were created in each step of a span (from, to), by their present state."""

    def environments(self) -> list[ComputeEnvironment]:
        """All compute environments, by name."""

    def queues(self) -> list[JobQueue]:
        """All job queues, by name."""

    def ticks(self, schedule: str, limit: int, before: int | None = None) -> list[Tick]:
        """Ticks of a schedule, newest first; those due before `before` if it is given."""

    def definitions(self, name: str | None = None, active_only: bool = False) -> list[JobDefinition]:
        """Job definitions, by name and revision."""

    def definition(self, key: DefinitionKey) -> JobDefinition | None:
        """One revision."""

    def images(self) -> list[ImageMapping]:
        """All image mappings, by pattern."""

    def declared(self, kind: type[D]) -> list[D]:
        """All declarations of a kind, by key."""

    def undelivered(self, destination: str, limit: int) -> list[OutboxEvent]:
        """The oldest events that a destination has not heard yet, in the order in which they happened."""

    def delivered(self, destination: str, ids: Sequence[str]) -> None:
        """Forget events that a destination has heard."""

    def forget_undelivered(self, wanted: Sequence[str]) -> int:
        """Forget the events for all destinations but these; answers how many."""

    def service_jobs(self, ids: Sequence[JobId]) -> list[ServiceJob]:
        """These service jobs, in the order asked; unknown ones are left out."""

    def list_service_jobs(self, wanted: ServiceJobFilter, limit: int, after: str | None) -> ServiceJobPage:
        """A page of a queue's service jobs."""

    def log_groups(self) -> list[str]:
        """Names of all log groups that have a stream."""

    def log_streams(self, group: str, prefix: str, limit: int, after: str | None) -> list[LogStream]:
        """Streams of a group by name, beginning after `after`."""

    def log_stream(self, group: str, name: str) -> LogStream | None:
        """One stream."""

    def close(self) -> None:
        """Let go of files and connections."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a starting daemon knows to be an engine's: environments, their instances, and the attempts placed there."""

    environments: Sequence[ComputeEnvironment] = ()
    instances: Sequence[Instance] = ()
    attempts: Mapping[AttemptToken, InstanceId] = field(default_factory=dict)
    #: The machines that this engine described to an earlier daemon.
    machines: Sequence[Machine] = ()
    #: The task ids of the attempts, which name their files.
    tasks: Mapping[AttemptToken, str] = field(default_factory=dict)
    #: Those that their agent ends when it hears no daemon, before they go on elsewhere.
    stop_alone: frozenset[AttemptToken] = frozenset()
    #: What the attempts may use of object storage, where it is opened for them.
    storage: Mapping[AttemptToken, StorageAccess] = field(default_factory=dict)


class LogFile(Protocol):
    """One attempt's log as it was when it was opened, with the times at which its parts were written."""

    #: Bytes of the log, and when it was last written; 0 and -1 while there is no log.
    size: int
    written_at: int

    @property
    def timed_size(self) -> int:
        """How much of the log has a recorded time; 0 without records."""

    @property
    def timed_at(self) -> int:
        """The time of the last record; 0 without records."""

    def read(self, offset: int, length: int) -> bytes:
        """A part of the log, with newlines where it was not kept; nothing when it has been removed."""

    def gap(self, offset: int) -> tuple[int, int]:
        """The first part at or behind an offset that was not kept; at the log's end where there is none."""

    def at(self, end: int) -> int | None:
        """The time of the first record that reaches `end`; None when none does (yet)."""

    def size_before(self, at_ms: int) -> int:
        """How large the log was when last seen before a time; 0 when it was not."""


class AttemptFiles(Protocol):
    """What attempts leave on their machines, by task id. Called from worker threads; only the engine knows files."""

    def log(self, task_id: str, /) -> LogFile:
        """An attempt's log; an empty one until its process has started."""

    def recording(self, task_id: str, /) -> Recording | None:
        """All samples of an attempt; None if there are none."""

    def latest(self, task_id: str, /) -> Sample | None:
        """The newest sample of an attempt."""

    def machine_head(self, machine: str | None = None, /) -> tuple[tuple[SampledGpu, ...], Sample] | None:
        """The newest sample of a machine, or of this host, and its GPUs in the order of the sample."""

    def remove(self, task_id: str, /, *, samples: bool = True) -> None:
        """Remove an attempt's log with its times, and its samples too unless told otherwise; OSError if one stays."""


class Engine(Protocol):
    """Launches and terminates instances and starts and stops attempts on them.

    After a restart of the daemon an engine reports InstanceReady for what exists and InstanceLost for what went
    meanwhile. What an agent says at its connection (AgentConnected) comes before everything else that it says.
    """

    name: str

    @property
    def files(self) -> AttemptFiles:
        """What its attempts leave."""

    def check(self, environment: ComputeEnvironment, /) -> None:
        """Raise Rejected if this engine cannot serve an environment that somebody is about to declare."""

    def adopt(self, holdings: Holdings, /) -> None:
        """Take over what the store knows; called once, before all else. What the engine cannot keep it reports."""

    def offers(self, environment: ComputeEnvironment, /) -> tuple[Offer, ...]:
        """What could be launched for an environment now; asked at every pass, so it must be quick."""

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Begin to do these; what comes of them is reported through the sink that the engine was given."""

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The machines that it has without any launch, as their agents describe them; empty while none is known.

        An engine whose machines come with its instances has none: they are reported as they get ready.
        """

    @property
    def away(self) -> str | None:
        """Why its agents do not do what they are told, for people; None while they answer, or nothing runs there."""

    @property
    def trouble(self) -> str | None:
        """Why its machines are not known, for people; None when they are, or when it needs none."""

    async def settle(self, *, or_unfit: bool = False) -> None:
        """Wait until its machines are known; with `or_unfit`, or until it is clear that no agent can be started."""

    async def run(self) -> None:
        """Keep its agents alive and hear them until told to close; AgentRejected when another daemon leads."""

    async def dial(self, instance: InstanceId, /) -> tuple[Any, Any]:
        """A byte stream to the agent of an instance (asyncio's reader and writer), for a session in an attempt."""

    async def shut_down(self, *, kill: bool) -> None:
        """End its agents, with their attempts if `kill`; without it they run on and are adopted by the next ones."""

    def let_go(self) -> None:
        """Leave its agents to themselves."""


#: How an engine reports.
Sink = Callable[[Report], None]


class CorePort(Protocol):
    """How the wire reaches the core: nothing is answered that is not durable."""

    async def execute(self, command: Command, tenant: str | None = None) -> Any:
        """Do it and answer when what it changed is durable, or raise Rejected with nothing changed.

        For a command on behalf of a tenant the things of other tenants do not exist; None sees all.
        """

    async def read(self, question: Callable[[Store], Any]) -> Any:
        """Ask the store, off the event loop."""

    async def why(self, job_id: JobId) -> Why | None:
        """Why a live job is where it is; None when it is not live."""

    async def queue_snapshot(self, queue: QueueName) -> list[tuple[JobId, int]]:
        """The first waiting jobs of a queue in dispatch order, each with the time since it waits there."""

    async def shares(self, queue: QueueName) -> QueueShares | None:
        """How much of a queue's capacity each of its shares uses; None when there is no such queue."""
