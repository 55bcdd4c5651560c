"""A service job: a training job that waits in a Batch queue and is created when its turn has come.

Data that the reactor changes through `move`, which asks the table. Its attempts are training jobs of their own; must
not know how these run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.retry import ONCE, RetryStrategy
from windfall.jobs.states import MoveTable
from windfall.jobs.submitters import UNKNOWN, Submitter


class ServiceState(StrEnum):
    """AWS's states of a service job."""

    SUBMITTED = "SUBMITTED"
    RUNNABLE = "RUNNABLE"
    SCHEDULED = "SCHEDULED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


_S = ServiceState
SERVICE_MOVES = MoveTable(
    {
        (_S.SUBMITTED, _S.RUNNABLE): "accepted",
        (_S.SUBMITTED, _S.FAILED): "terminated",
        (_S.RUNNABLE, _S.SCHEDULED): "its service environment has room for it",
        (_S.RUNNABLE, _S.FAILED): "terminated, or its time to wait is used up",
        (_S.SCHEDULED, _S.STARTING): "its training job has a place",
        (_S.SCHEDULED, _S.RUNNING): "its training job runs",
        (_S.SCHEDULED, _S.RUNNABLE): "preempted, or is tried again",
        (_S.SCHEDULED, _S.SUCCEEDED): "its training job succeeded",
        (_S.SCHEDULED, _S.FAILED): "its training job could not be created or failed, or terminated",
        (_S.STARTING, _S.RUNNING): "its training job runs",
        (_S.STARTING, _S.SCHEDULED): "its training job lost its place and waits",
        (_S.STARTING, _S.RUNNABLE): "preempted, or is tried again",
        (_S.STARTING, _S.SUCCEEDED): "its training job succeeded",
        (_S.STARTING, _S.FAILED): "its training job failed, or terminated",
        (_S.RUNNING, _S.SCHEDULED): "its training job lost its place and waits",
        (_S.RUNNING, _S.STARTING): "its training job lost its place and has another",
        (_S.RUNNING, _S.RUNNABLE): "preempted, or is tried again",
        (_S.RUNNING, _S.SUCCEEDED): "its training job succeeded",
        (_S.RUNNING, _S.FAILED): "its training job failed, or terminated",
    },
    begins={_S.SUBMITTED: ""},
    ends={_S.SUCCEEDED: "", _S.FAILED: ""},
)
FINISHED = frozenset({_S.SUCCEEDED, _S.FAILED})
#: Those that take up capacity of the service environment.
HOLDING = frozenset({_S.SCHEDULED, _S.STARTING, _S.RUNNING})


#: How many digits tell the training jobs of one prefix apart.
NAME_DIGITS = 32
#: Stands for the type of a payload that names none.
UNKNOWN_TYPE = ""


@dataclass(slots=True)
class ServiceAttempt:
    """One training job that was created for a service job."""

    training_job: str
    #: The job that the training job is; None until it has been created.
    training_id: JobId | None = None
    #: What the service environment and the quota share count for it, by unit.
    capacity: Mapping[str, float] = field(default_factory=dict)
    scheduled_at: int = 0
    started_at: int | None = None
    stopped_at: int | None = None
    status_reason: str | None = None
    #: Why it does not count against the retry strategy, if it does not.
    preempted: bool = False
    no_capacity: bool = False
    #: While it is asked to leave: for which job, and in which words.
    leaves_for: JobId | None = None
    leaves_because: str | None = None
    #: The service environment that it takes up, also when its queue is gone before it has ended.
    environment: str = ""

    @property
    def is_charged(self) -> bool:
        """Whether it counts against the retry strategy."""
        return not (self.preempted or self.no_capacity)


@dataclass(slots=True)
class ServiceJob:
    """Where a service job stands."""

    id: JobId
    name: str
    queue: QueueName
    #: A CreateTrainingJob request as text; looked at only when its turn has come, as on AWS.
    payload: str
    state: ServiceState = ServiceState.SUBMITTED
    created_at: int = 0
    order: int = 0
    priority: int = 0
    share: str | None = None
    quota_share: str | None = None
    #: How often it may be preempted before it fails; None means without limit.
    preemptions_max: int | None = None
    timeout_s: int | None = None
    retry: RetryStrategy = ONCE
    client_token: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    submitter: Submitter = UNKNOWN
    #: Where it was submitted; its training jobs are told so.
    region: str = "us-east-1"
    #: How many instances of which type its payload asks for; the type is empty where it names none.
    instances: Mapping[str, int] = field(default_factory=dict)
    #: What the names of its training jobs begin with.
    name_prefix: str = ""
    runnable_at: int | None = None
    scheduled_at: int | None = None
    started_at: int | None = None
    stopped_at: int | None = None
    status_reason: str | None = None
    blocked_at: int | None = None
    terminated: bool = False
    stop_reason: str | None = None
    attempts: list[ServiceAttempt] = field(default_factory=list)
    #: How many training jobs were created for it, those that are not kept included.
    trainings: int = 0
    #: Whether others were asked to leave for it, and it has not started since.
    promised: bool = False

    @property
    def attempt(self) -> ServiceAttempt | None:
        """The try that is under way, if one is."""
        if self.attempts and self.attempts[-1].stopped_at is None:
            return self.attempts[-1]
        return None

    def training_name(self, number: int) -> str:
        """What the training job of its `number`-th try is called: the same every time it is asked."""
        digits = hashlib.md5(f"{self.id}#{number}".encode(), usedforsecurity=False).hexdigest()
        return f"{self.name_prefix}{digits[:NAME_DIGITS]}"

    @property
    def finished(self) -> bool:
        """Whether it can change no more."""
        return self.state in FINISHED

    def move(self, new: ServiceState) -> None:
        """Change the state, if the table has such a move."""
        SERVICE_MOVES.check(self.state, new, self.story)
        self.state = new

    def story(self) -> str:
        """Its life in one line, for errors and logs."""
        return f"service job {self.id} ({self.name}) is {self.state}; trainings: {self.trainings}"
