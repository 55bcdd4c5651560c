"""What the reactor is told: commands of callers, reports of engines, and the passing of time.

Commands are imperative and may be refused (`jobs.errors.Rejected`); reports are in the past tense and never are.
Ids are made by the sender of the command, so that the core draws no random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windfall.capacity.environments import ComputeEnvironment
from windfall.capacity.machines import GpuDevice, Machine
from windfall.control.commands import capacity
from windfall.control.commands.calendar import CalendarCommand
from windfall.control.commands.consumables import ConsumableCommand
from windfall.control.commands.hosting import ReplicaReport, SageMakerCommand
from windfall.control.commands.hosts import ListingCommand
from windfall.control.commands.logs import LogCommand
from windfall.control.commands.policies import PolicyCommand
from windfall.control.commands.turns import TurnCommand
from windfall.control.machine_events import MachineReport
from windfall.jobs.arrays import ArrayPart
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec, JobDefinition
from windfall.jobs.dependencies import Dependency
from windfall.jobs.diagnosis import Diagnosis
from windfall.jobs.ids import AttemptToken, InstanceId, JobId, MachineId, QueueName
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import TimeLimits
from windfall.jobs.nodes import NodeOverrides, Nodes
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.staging import LeftFiles, Mark, Progress, Staging
from windfall.jobs.states import JobState
from windfall.jobs.submitters import UNKNOWN, Submitter

# Commands ------------------------------------------------------------------------------------------------

# These have a module of their own, and are known by `events.` like all others.
CreateComputeEnvironment = capacity.CreateComputeEnvironment
UpdateComputeEnvironment = capacity.UpdateComputeEnvironment
DeleteComputeEnvironment = capacity.DeleteComputeEnvironment
CreateJobQueue = capacity.CreateJobQueue
UpdateJobQueue = capacity.UpdateJobQueue
DeleteJobQueue = capacity.DeleteJobQueue


@dataclass(frozen=True, slots=True)
class RegisterJobDefinition:
    """The reactor gives the revision; the one in `definition` is ignored. The reply is the JobDefinition."""

    definition: JobDefinition


@dataclass(frozen=True, slots=True)
class DeregisterJobDefinition:
    name: str
    revision: int


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """What is known of a dependency that has finished and left memory."""

    id: JobId
    state: JobState
    array_size: int | None = None
    #: The final states of an array's children, as a ChildTable codes them; None where nobody asks for them.
    children: bytes | None = None


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """The reply is the Job."""

    job_id: JobId
    name: str
    queue: QueueName
    #: A definition's name (its latest active revision is taken) or `name:revision`.
    definition: str
    array_size: int | None = None
    depends_on: tuple[Dependency, ...] = ()
    overrides: ContainerOverrides | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    retry: RetryStrategy | None = None
    timeout_s: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    propagate_tags: bool | None = None
    submitter: Submitter = UNKNOWN
    document: str = "{}"
    #: Dependencies that the store knows as finished; the reactor remembers only the recent ones.
    finished: tuple[FinishedJob, ...] = ()
    share: str | None = None
    #: None means the definition's.
    priority: int | None = None
    #: In place of the definition's consumable resources.
    consumables: tuple[tuple[str, int], ...] | None = None
    #: For a multi-node job: what changes in the definition's nodes.
    node_overrides: NodeOverrides | None = None
    #: For a multi-node job that is run again: its nodes as they were, in place of the definition's.
    nodes: Nodes | None = None
    #: The job that this one runs again, from its checkpoints if it kept some.
    retry_of: JobId | None = None
    #: For children of an array that are run again.
    array_part: ArrayPart | None = None


@dataclass(frozen=True, slots=True)
class SubmitTraining:
    """A training job. The reply is the Job; a live job of this id is AlreadyExists.

    The environment `environment` and the queue of the same name are made if they are missing.
    """

    job_id: JobId
    name: str
    environment: ComputeEnvironment
    container: ContainerSpec
    staging: Staging
    limits: TimeLimits
    #: How often it may be tried when the fault was not its own.
    attempts: int = 1
    instance_type: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    submitter: Submitter = UNKNOWN
    document: str = "{}"
    #: For more than one instance; `container` and `instance_type` are then those of algo-1.
    nodes: Nodes | None = None
    service_job: JobId | None = None


@dataclass(frozen=True, slots=True)
class DeleteTraining:
    """Remove the record of a finished training job, so that its name can be used again."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class UpdateTraining:
    """Replace the kept request of a live training job; others are NotFound. The reply is the Job."""

    job_id: JobId
    document: str


@dataclass(frozen=True, slots=True)
class InterruptJob:
    """The drill: take a running job's place away, with notice. The reply is how many attempts have notice."""

    job_id: JobId
    notice_s: float


@dataclass(frozen=True, slots=True)
class InterruptInstance:
    """The drill for a whole instance: no new placements, notice to all that runs there. Reply as InterruptJob's."""

    instance: InstanceId
    notice_s: float


@dataclass(frozen=True, slots=True)
class CancelJob:
    """SUBMITTED, PENDING and RUNNABLE jobs fail with `reason`; others go on. Unknown or finished: no effect."""

    job_id: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class TerminateJob:
    """As CancelJob, and STARTING and RUNNING jobs are stopped. The reply is whether the job was live."""

    job_id: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class TagResource:
    """Set and remove tags of a live thing. `kind` is compute-environment, job-queue, job-definition or job."""

    kind: str
    name: str
    add: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddImage:
    mapping: ImageMapping


@dataclass(frozen=True, slots=True)
class RemoveImage:
    pattern: str


Command = (
    CreateComputeEnvironment
    | UpdateComputeEnvironment
    | DeleteComputeEnvironment
    | CreateJobQueue
    | UpdateJobQueue
    | DeleteJobQueue
    | RegisterJobDefinition
    | DeregisterJobDefinition
    | SubmitJob
    | SubmitTraining
    | UpdateTraining
    | DeleteTraining
    | InterruptJob
    | InterruptInstance
    | CancelJob
    | TurnCommand
    | TerminateJob
    | TagResource
    | AddImage
    | RemoveImage
    | PolicyCommand
    | LogCommand
    | ConsumableCommand
    | SageMakerCommand
    | CalendarCommand
    | ListingCommand
)

# Reports -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InstanceReady:
    """An instance can take attempts now."""

    instance: InstanceId
    machine: Machine


@dataclass(frozen=True, slots=True)
class InstanceLost:
    """An instance is gone, and with it all that ran there."""

    instance: InstanceId


@dataclass(frozen=True, slots=True)
class InstanceLaunchFailed:
    """An instance could not be had."""

    instance: InstanceId
    reason: str


@dataclass(frozen=True, slots=True)
class InterruptionNoticed:
    """An instance will be taken away at `deadline_at`."""

    instance: InstanceId
    deadline_at: int
    words: str = "spot interruption"


@dataclass(frozen=True, slots=True)
class RebalanceRecommended:
    """An instance is likelier than before to be taken away."""

    instance: InstanceId


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    token: AttemptToken
    at: int
    isolation: str | None = None
    #: When all that it needed had been brought; None when nothing had to be.
    prepared_at: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptProgressed:
    """What the agent knows of an attempt has changed; None leaves a part as it is, except `doing` and `alarm`."""

    token: AttemptToken
    at: int
    #: What the agent does for it now, for people; None when it just runs.
    doing: str | None = None
    restored: Mark | None = None
    checkpoint: Mark | None = None
    alarm: str | None = None
    progress: Progress | None = None
    commit: str | None = None
    #: When its process ended, while what it left is still being saved.
    exited_at: int | None = None


@dataclass(frozen=True, slots=True)
class IsolationChanged:
    """What keeps a running attempt apart is now this: limits are set up when it has lived for a moment."""

    token: AttemptToken
    isolation: str


@dataclass(frozen=True, slots=True)
class AttemptExited:
    """The process ended, or could not be started (`started_at` and `exit_code` None, `reason` says why)."""

    token: AttemptToken
    at: int
    exit_code: int | None
    reason: str | None = None
    started_at: int | None = None
    isolation: str | None = None
    #: When the process ended, if what it left had to be saved afterwards.
    exited_at: int | None = None
    checkpoint: Mark | None = None
    progress: Progress | None = None
    #: What its failure file said.
    failure: str | None = None
    diagnosis: Diagnosis | None = None
    #: The files that go with its private directory.
    left: LeftFiles | None = None
    #: Whether nothing of it was begun, because it was asked to go before.
    given_back: bool = False
    #: Whether its agent asked it to go, because no daemon was heard.
    alone: bool = False


@dataclass(frozen=True, slots=True)
class AttemptLost:
    """Nobody knows, or will ever know, how it ended; it does not run any more."""

    token: AttemptToken
    at: int


@dataclass(frozen=True, slots=True)
class AgentConnected:
    """An agent (again) answers, and says all that it knows. What it does not name does not run there."""

    machine: Machine
    running: tuple[AttemptStarted, ...] = ()
    #: Taken on by the agent, but not running yet: it will report them by itself.
    preparing: tuple[AttemptToken, ...] = ()
    ended: tuple[AttemptExited | AttemptLost, ...] = ()


@dataclass(frozen=True, slots=True)
class DevicesChanged:
    """What a machine's GPUs are, or how they are, has changed."""

    machine: MachineId
    gpus: tuple[GpuDevice, ...]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing but time: look at what is due."""


Report = (
    InstanceReady
    | InstanceLost
    | InstanceLaunchFailed
    | InterruptionNoticed
    | RebalanceRecommended
    | AttemptStarted
    | AttemptProgressed
    | IsolationChanged
    | AttemptExited
    | AttemptLost
    | AgentConnected
    | DevicesChanged
    | MachineReport
    | ReplicaReport
    | TimePassed
)
Event = Command | Report
