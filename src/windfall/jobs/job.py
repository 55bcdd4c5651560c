"""The job itself: what was submitted, where it stands, and the tries so far.

`Job` is data that the reactor changes; the only rule here is that its state changes through `move`, which asks
the table. Must not know about queues' order, capacity or the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from windfall.jobs.arrays import ArrayPart
from windfall.jobs.attempts import Attempt, GangEnd, LeftPlace, Market, StopCause
from windfall.jobs.containers import Pull, Runtime
from windfall.jobs.definitions import ContainerOverrides, ContainerSpec
from windfall.jobs.dependencies import Dependency
from windfall.jobs.diagnosis import FailureCause
from windfall.jobs.gpus import GpuWish, held_part
from windfall.jobs.ids import DefinitionKey, JobId, QueueName
from windfall.jobs.nodes import Nodes
from windfall.jobs.resources import Resources
from windfall.jobs.retry import RetryStrategy
from windfall.jobs.staging import Staging
from windfall.jobs.states import JOB_MOVES, TERMINAL, JobState
from windfall.jobs.submitters import UNKNOWN, Submitter
from windfall.jobs.workers import Worker


class JobKind(StrEnum):
    """Whose words a job is told in."""

    BATCH = "batch"
    TRAINING = "training"
    #: One server of an endpoint.
    REPLICA = "replica"


class OnPartition(StrEnum):
    """What an attempt does on a machine that has lost its daemon."""

    #: It runs on: it is adopted when the daemon is back, or fenced if its job has gone on elsewhere.
    CONTINUE = "continue"
    #: It saves and ends before its job goes on elsewhere.
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Limits on a training job as a whole, over all its attempts."""

    run_s: int | None = None
    #: Waiting and running together.
    wait_s: int | None = None
    #: Waiting for capacity alone.
    pending_s: int | None = None


@dataclass(frozen=True, slots=True)
class JobDeadline:
    """When a job is to be done, and how long its work takes on a place that stays."""

    at: int
    #: None where nobody said: then the length of earlier runs of its definition counts.
    work_s: float | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """What a caller asked for. Shared by an array and all its children; only its tags and its priority ever change."""

    name: str
    queue: QueueName
    definition: DefinitionKey
    resources: Resources
    retry: RetryStrategy
    timeout_s: int | None = None
    array_size: int | None = None
    depends_on: tuple[Dependency, ...] = ()
    overrides: ContainerOverrides | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    propagate_tags: bool = False
    submitter: Submitter = UNKNOWN
    #: Fields of the request that have no behaviour, for the wire alone.
    document: str = "{}"
    kind: JobKind = JobKind.BATCH
    #: What to run, for a job that has no job definition (`definition` is then empty).
    container: ContainerSpec | None = None
    staging: Staging | None = None
    #: Whether losing its capacity uses up none of its attempts.
    free_interruptions: bool = False
    #: The only instance type that it may run on, where instances have types.
    instance_type: str | None = None
    limits: TimeLimits | None = None
    #: What it may spend before it is asked to save and is stopped.
    budget_usd: float | None = None
    #: What its GPUs must be, beyond their number in `resources`.
    gpu_wish: GpuWish | None = None
    #: Whether it is tried again on a GPU with more memory when a GPU's memory was too small.
    larger_gpu_on_oom: bool = False
    #: Whether it keeps a GPU that has fallen ill, rather than being moved to another one.
    stays_on_sick_gpu: bool = False
    #: None means the daemon's own rule.
    runtime: Runtime | None = None
    pull: Pull | None = None
    #: For an array whose children share initialised processes.
    worker: Worker | None = None
    #: Its share of a fair-share queue, or its quota share.
    share: str | None = None
    #: Who goes first within a share: the higher.
    priority: int = 0
    #: How many tokens of which consumable resources it holds while it runs; of a multi-node job all nodes together.
    consumables: tuple[tuple[str, int], ...] = ()
    #: How often it may lose its place to more urgent jobs of its queue before it fails; None means without limit.
    preemptions_max: int | None = None
    #: For a multi-node parallel job; `resources` and `container` are then those of the main node.
    nodes: Nodes | None = None
    #: Whether a node that lost its place is replaced while the others go on.
    replaces_lost_nodes: bool = False
    #: The service job that this training job is an attempt of.
    service_job: JobId | None = None
    #: For a job, or an array, that runs children of an earlier array again.
    array_part: ArrayPart | None = None
    #: Where its process starts, entered with the rights of its own user; None leaves that to its image.
    directory: str | None = None
    deadline: JobDeadline | None = None
    #: None leaves it to its compute environment.
    partition: OnPartition | None = None
    #: What the log of an attempt may have at most; None leaves that to the daemon.
    log_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PriorityChange:
    """That somebody changed a job's priority within its share."""

    at: int
    by: str
    was: int
    priority: int


@dataclass(frozen=True, slots=True)
class Move:
    """A state that a job has come to, and what of it the next move may change."""

    state: JobState
    status_reason: str | None
    #: How many attempts it had then, and whether the last of them had ended.
    attempts: int
    ended: bool


@dataclass(slots=True)
class Job:
    """Where a job stands. A job, an array, and a child that has left the rest of its array."""

    id: JobId
    submission: Submission
    state: JobState
    created_at: int
    #: For a child of an array.
    parent: JobId | None = None
    index: int | None = None
    #: Its place in the FIFO order: given when it first becomes RUNNABLE and kept over retries.
    order: int = 0
    runnable_at: int | None = None
    started_at: int | None = None
    stopped_at: int | None = None
    status_reason: str | None = None
    #: Since when it has been the head of its queue, blocked for the reason in `status_reason`.
    blocked_at: int | None = None
    cancelled: bool = False
    terminated: bool = False
    #: Of a job with a deadline: the only capacity that it may be placed on now.
    market: Market | None = None
    #: The name of who holds it: it does not start before it is released.
    held_by: str | None = None
    #: What the caller said when cancelling or terminating.
    stop_reason: str | None = None
    #: The tries so far, the present one last.
    attempts: list[Attempt] = field(default_factory=list)
    #: For an array: how its children stand, kept for readers.
    summary: dict[str, int] | None = None
    summary_at: int | None = None
    #: For an array: what children without a record of their own are, and why.
    rest: JobState | None = None
    rest_reason: str | None = None
    rest_at: int | None = None
    #: GPUs with less memory than this have been tried and were too small.
    gpu_memory_floor_mib: int | None = None
    #: The part of a GPU that it asks for since what it asked for first was too small; 1 is all of it.
    gpu_share: float | None = None
    #: Whether it holds its consumable resources: from its first place to its end.
    holds_consumables: bool = False
    #: For a multi-node job that has its places: its number among those of this moment, which gives its nodes addresses.
    gang_number: int | None = None
    #: For a multi-node job of peers: how each of its tries that are over ended.
    gang_ends: list[GangEnd] = field(default_factory=list)
    #: Who was asked to leave for it and has not been made up for by a place; of an array, one for each place.
    left_places: tuple[LeftPlace, ...] = ()
    #: The limit on the whole job that ended it, whether it ran or waited then.
    ended_by: StopCause | None = None
    #: The newest changes of its priority, the last one last.
    priority_changes: tuple[PriorityChange, ...] = ()
    #: The states that it came to in this round, where somebody wants to hear of them. Never stored.
    moves: list[Move] | None = field(default=None, compare=False, repr=False)

    @property
    def is_array(self) -> bool:
        """Whether it is the parent of an array."""
        return self.submission.array_size is not None and self.parent is None

    @property
    def is_gang(self) -> bool:
        """Whether it is a multi-node job; its own attempts are those of its main node."""
        return self.submission.nodes is not None and self.parent is None

    @property
    def is_node(self) -> bool:
        """Whether it is a node of a multi-node job other than the main one, which has no job of its own."""
        return self.submission.nodes is not None and self.parent is not None

    @property
    def node(self) -> int | None:
        """Its number among the nodes of a multi-node job; the job itself stands for its main node."""
        nodes = self.submission.nodes
        return None if nodes is None else nodes.main if self.index is None else self.index

    @property
    def array_place(self) -> tuple[int, int] | None:
        """Its index in an array and that array's size, as its program is told; None for any other job."""
        submission = self.submission
        if submission.nodes is not None or self.is_array:
            return None
        if submission.array_part is not None:
            return submission.array_part.indexes[self.index or 0], submission.array_part.size
        return None if self.index is None else (self.index, submission.array_size or 0)

    @property
    def finished(self) -> bool:
        """Whether it can change no more."""
        return self.state in TERMINAL

    @property
    def attempt(self) -> Attempt | None:
        """The try that is under way, if one is."""
        if self.attempts and self.attempts[-1].stopped_at is None:
            return self.attempts[-1]
        return None

    @property
    def tries(self) -> list[Attempt]:
        """Its attempts as those of the whole job: where its nodes are peers, none is over before the last node is."""
        nodes = self.submission.nodes
        if nodes is None or not nodes.peers:
            return self.attempts
        over = [attempt.as_whole(end) for attempt, end in zip(self.attempts, self.gang_ends, strict=False)]
        # At most one has no end yet.
        now = self.attempts[len(over) :]
        return over + [
            replace(attempt, stopped_at=None, exited_at=None, exit_code=None, reason=None) for attempt in now
        ]

    @property
    def begun_attempts(self) -> list[Attempt]:
        """Its attempts without those that were given back, of which nothing was begun."""
        return [attempt for attempt in self.attempts if not attempt.given_back]

    @property
    def charged_attempts(self) -> int:
        """How many of its tries count against its retry strategy."""
        free = self.submission.free_interruptions
        if not free and not self.submission.larger_gpu_on_oom:
            return sum(
                not (attempt.moved or attempt.preempted or attempt.given_back) for attempt in self.tries
            )
        return sum(
            not (
                attempt.moved
                or attempt.preempted
                or attempt.given_back
                or (free and attempt.interrupted)
                or self.outgrew(attempt)
            )
            for attempt in self.tries
        )

    @property
    def preemptions_exceeded(self) -> bool:
        """Whether it has lost its place to jobs of its own queue more often than it may."""
        most = self.submission.preemptions_max
        return most is not None and sum(attempt.preempted for attempt in self.tries) > most

    def outgrew(self, attempt: Attempt) -> bool:
        """Whether an ended attempt failed for lack of GPU memory, and its job is to be tried on a larger GPU then."""
        return (
            self.submission.larger_gpu_on_oom
            and attempt.diagnosis is not None
            and attempt.diagnosis.cause is FailureCause.GPU_MEMORY
            and not attempt.succeeded
            and attempt.stop_cause is None
            and bool(attempt.gpu_ids)
        )

    @property
    def share(self) -> float | None:
        """The part of one GPU that it asks for now; None when it asks for whole ones, or none."""
        wish = self.submission.gpu_wish
        if wish is None or wish.share is None:
            return None
        share = wish.share if self.gpu_share is None else self.gpu_share
        return share if share < 1 else None

    @property
    def needs(self) -> Resources:
        """What it holds while it runs: what AWS was told, but of a shared GPU its part."""
        share = self.share
        resources = self.resources
        return resources if share is None else replace(resources, gpus=held_part(share))

    @property
    def resources(self) -> Resources:
        """What it was submitted with; the nodes of a multi-node job may differ."""
        nodes = self.submission.nodes
        if nodes is None or self.index is None:
            return self.submission.resources
        return nodes.resources(self.index)

    @property
    def wish(self) -> GpuWish | None:
        """What its GPUs must be now, with what has turned out to be too small left out."""
        wish, floor = self.submission.gpu_wish, self.gpu_memory_floor_mib
        if floor is None and self.gpu_share is None:
            return wish
        wish = wish or GpuWish()
        memory_mib = max(wish.memory_mib or 0, floor or 0) or None
        now = GpuWish(wish.model, memory_mib, self.share)
        return None if now == GpuWish() else now

    def move(self, new: JobState) -> None:
        """Change the state, if the table has such a move."""
        JOB_MOVES.check(self.state, new, self.story)
        self.state = new
        if self.moves is not None:
            self.note_move()

    def note_move(self) -> None:
        """Remember the state that it is in, for those who want to hear of every one."""
        if self.moves is not None:
            tries = len(self.attempts)
            self.moves.append(Move(self.state, self.status_reason, tries, self.attempt is None))

    def story(self) -> str:
        """Its life in one line, for errors and logs."""
        tries = ", ".join(
            f"#{a.number} on {a.instance} exit {a.exit_code} {a.status_reason or ''}".strip()
            for a in self.attempts
        )
        return f"job {self.id} ({self.submission.name}) is {self.state}; tries: {tries or 'none'}"
