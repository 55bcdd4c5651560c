"""What the reactor asks engines to do. Carried out only after the changes that led to them are durable.

Every one may be given twice (after a crash they are derived from state again), so engines must take a repetition
in their stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windfall.capacity.machines import Offer
from windfall.jobs.containers import ContainerRun, Secret
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, JobId, TaskId
from windfall.jobs.job_users import RunAs
from windfall.jobs.resources import Resources
from windfall.jobs.staging import Staging
from windfall.jobs.storage import StorageAccess
from windfall.jobs.submitters import Submitter
from windfall.jobs.workers import Worker
from windfall.schedules.schedule import Schedule


@dataclass(frozen=True, slots=True)
class LaunchInstance:
    instance: InstanceId
    environment: EnvironmentName
    offer: Offer


@dataclass(frozen=True, slots=True)
class TerminateInstance:
    instance: InstanceId


@dataclass(frozen=True, slots=True)
class StartAttempt:
    token: AttemptToken
    task_id: TaskId
    instance: InstanceId
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    #: None means a private, empty working directory.
    directory: str | None
    resources: Resources
    gpu_ids: tuple[str, ...]
    shared_memory_mib: int | None
    #: Whether more than one tenant uses this daemon, so that jobs must not see one another.
    shared_with_strangers: bool = False
    staging: Staging | None = None
    #: What fences off earlier attempts of the same job: higher is newer.
    fence: int = 0
    #: For the instance's metadata, as programs on EC2 ask for it.
    instance_type: str = ""
    market: str = "on-demand"
    #: Set for a container; `argv` and `directory` are then not used.
    container: ContainerRun | None = None
    #: The part of its one GPU that it may use; None means all of them.
    gpu_share: float | None = None
    #: Set for a child that is to run in a warm worker; `worker_key` names whose worker it may share.
    worker: Worker | None = None
    worker_key: str = ""
    #: What a process gets as variables; a container has them in its options.
    secrets: tuple[Secret, ...] = ()
    #: What of object storage may be opened for it.
    storage: StorageAccess = field(default_factory=lambda: StorageAccess(()))
    #: The user that it runs as; None means the daemon's job user.
    run_as: RunAs | None = None
    #: Whose credentials for Git its code is fetched with.
    tenant: str = ""
    #: Whether the submitter named `directory`, so that only what the job's user may enter by itself will do.
    enters_as_user: bool = False
    #: The attempt whose place it gets: it begins when that one has ended.
    behind: AttemptToken | None = None
    #: Whether its agent ends it when it hears no daemon, before it goes on elsewhere.
    stops_alone: bool = False
    #: What its log may have at most; None leaves that to the daemon's settings.
    log_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """SIGTERM to all its processes now, SIGKILL to what is left after the grace."""

    token: AttemptToken
    #: None when the core no longer knows the attempt: the engine knows who spoke of it.
    instance: InstanceId | None
    grace_s: float
    #: Whether its host is really gone: nothing that it left may be saved.
    lose: bool = False
    #: How long what it left may take to be saved; None where nothing presses.
    save_within_s: float | None = None
    #: Whether nobody wants what cannot be stored by then.
    gives_up: bool = False
    #: Whether it is only to be given back, if nothing of it was begun.
    if_unbegun: bool = False


@dataclass(frozen=True, slots=True)
class InterruptAttempt:
    """Give notice: its place is taken away at the deadline; until then it may save and leave."""

    token: AttemptToken
    instance: InstanceId
    deadline_at: int
    #: For which job or what else, for people.
    words: str = ""


@dataclass(frozen=True, slots=True)
class RecommendRebalance:
    """Tell an attempt that its place may be taken away soon."""

    token: AttemptToken
    instance: InstanceId
    at: int


@dataclass(frozen=True, slots=True)
class ForgetAttempt:
    """Its end is durable: the agent may drop what it kept of it."""

    token: AttemptToken
    #: None when the core no longer knows the attempt: the engine knows who spoke of it.
    instance: InstanceId | None


@dataclass(frozen=True, slots=True)
class CreateTraining:
    """Create the training job of a service job's attempt. A post-commit task of the daemon: engines do not see it."""

    job_id: JobId
    #: The name that it gets in place of the payload's.
    training_job: str
    payload: str
    region: str
    submitter: Submitter


@dataclass(frozen=True, slots=True)
class InvokeTarget:
    """Invoke a schedule's target. A post-commit task of the daemon, answered by StartRun or TargetFailed."""

    schedule: Schedule
    due_at: int
    #: Counts from 1.
    attempt: int


@dataclass(frozen=True, slots=True)
class WriteDeadLetter:
    """Report a failed tick to its dead-letter queue. A post-commit task of the daemon."""

    schedule: Schedule
    due_at: int
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class FollowHosts:
    """The hosts that the user listed have changed. A post-commit task of the daemon."""


@dataclass(frozen=True, slots=True)
class PublishRoutes:
    """Where the requests of endpoints go may have changed. A post-commit task of the daemon."""


#: What the daemon itself carries out; engines do not see these.
PostCommitTask = CreateTraining | InvokeTarget | WriteDeadLetter | FollowHosts | PublishRoutes

Instruction = (
    LaunchInstance
    | TerminateInstance
    | StartAttempt
    | StopAttempt
    | InterruptAttempt
    | RecommendRebalance
    | ForgetAttempt
    | PostCommitTask
)
