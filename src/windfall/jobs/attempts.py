"""One try at running a job, with all its time stamps, and how its end is read.

Decides what an attempt's end means (succeeded, failed and with which words). Must not know about retries or
capacity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from windfall.jobs.aws_texts import CROSS_SHARE_PREEMPTION, IN_SHARE_PREEMPTION, host_lost
from windfall.jobs.diagnosis import Diagnosis
from windfall.jobs.ids import AttemptToken, EnvironmentName, InstanceId, JobId, MachineId, TaskId
from windfall.jobs.staging import LeftFiles, Mark, Progress


class Market(StrEnum):
    """How the capacity of an attempt is paid for."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


class StopCause(StrEnum):
    """Why Windfall itself asked an attempt to stop."""

    TERMINATED = "terminated"
    TIMED_OUT = "timed out"
    #: Its capacity is taken away; it has notice, and is tried again.
    INTERRUPTED = "interrupted"
    #: A GPU of it has fallen ill; it has notice, and is tried again elsewhere at no cost.
    SICK_GPU = "sick GPU"
    #: Its quota share holds more than its own, and another one wants that back; it has notice, and is tried again.
    PREEMPTED = "preempted"
    #: A more urgent job of its quota share takes its place; it has notice, and is tried again.
    OUTRANKED = "outranked"
    #: Its deadline is kept better elsewhere (spot or on demand); it has notice, and goes on there at no cost.
    MIGRATED = "migrated"
    #: It has spent what its tag allows; it has notice, and is not tried again.
    BUDGET = "budget spent"
    #: A training job's whole running time (MaxRuntimeInSeconds) is over.
    RUN_TIME = "run time exceeded"
    #: A training job has waited and run for as long as it may (MaxWaitTimeInSeconds).
    WAIT_TIME = "wait time exceeded"
    #: A training job has waited for a place for as long as it may (MaxPendingTimeInSeconds); no attempt ends by it.
    PENDING_TIME = "pending time exceeded"
    #: The main node of its multi-node job has ended.
    MAIN_ENDED = "main node ended"
    #: Another node of its multi-node job has failed, and all of them are needed.
    PEER_FAILED = "another node failed"


#: The attempt's place goes away, through no doing of its own.
TAKEN_AWAY = frozenset(
    {
        StopCause.INTERRUPTED,
        StopCause.SICK_GPU,
        StopCause.PREEMPTED,
        StopCause.OUTRANKED,
        StopCause.MIGRATED,
    }
)
#: Of these, what costs no job an attempt, whether it keeps checkpoints or not.
_FREE = frozenset({StopCause.SICK_GPU, StopCause.MIGRATED})
#: What an attempt that left its place to a job of its own queue ends with; the first are AWS's words.
PREEMPTIONS = {
    StopCause.PREEMPTED: CROSS_SHARE_PREEMPTION,
    StopCause.OUTRANKED: IN_SHARE_PREEMPTION,
}

#: How the reason of an attempt begins whose process ended well and whose outputs could not be stored.
UNSTORED = "Artifact upload failed"
#: How the isolation of a training reads that has its files elsewhere than at /opt/ml.
ML_ROOT_ELSEWHERE = "no sandbox: /opt/ml is"


@dataclass(frozen=True, slots=True)
class LeftPlace:
    """An attempt that was asked to leave its place to a job."""

    token: AttemptToken
    machine: MachineId
    #: When its notice is over.
    deadline_at: int


@dataclass(frozen=True, slots=True)
class GangEnd:
    """How a try of a multi-node job of peers ended: with the last node, and as the one that decided it did."""

    #: The node that decided it.
    node: int
    instance: InstanceId
    stopped_at: int
    exited_at: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    status_reason: str | None = None
    stop_at: int | None = None
    stop_cause: StopCause | None = None
    stop_words: str | None = None
    failure: str | None = None
    diagnosis: Diagnosis | None = None


@dataclass(slots=True)
class Attempt:
    """One try. Times are milliseconds since the epoch; None is "not yet" or "not known"."""

    number: int
    token: AttemptToken
    task_id: TaskId
    environment: EnvironmentName
    instance: InstanceId
    #: The GPU devices that are this attempt's own while it lives.
    gpu_ids: tuple[str, ...]
    log_stream: str
    placed_at: int
    started_at: int | None = None
    stopped_at: int | None = None
    #: When it was asked to stop, and why.
    stop_at: int | None = None
    stop_cause: StopCause | None = None
    #: When its place is taken away at the latest, for one that has notice; and what takes it, for people.
    deadline_at: int | None = None
    stop_words: str | None = None
    #: The job that its place is taken back for.
    stop_for: JobId | None = None
    exit_code: int | None = None
    #: About the process: OutOfMemoryError, CannotPullContainerError, ...
    reason: str | None = None
    #: About the attempt: one of the status reasons of aws_texts.py.
    status_reason: str | None = None
    #: What kept it apart from the rest of the host, as the agent saw it.
    isolation: str | None = None
    #: When all that it needed had been brought; None when nothing had to be.
    prepared_at: int | None = None
    #: When its process ended. `stopped_at` is when what it left was in safety too, and its place free.
    exited_at: int | None = None
    #: What the agent does for it now (restoring, uploading, ...), for people.
    doing: str | None = None
    #: What it began with, and the newest one since that is in safety.
    restored: Mark | None = None
    checkpoint: Mark | None = None
    #: Those that were in safety one after another, oldest first; of many, ever fewer of the older ones.
    marks: tuple[Mark, ...] = ()
    #: The loss that it told, as (time, step, loss), thinned like the marks.
    losses: tuple[tuple[int, int | None, float], ...] = ()
    #: What is wrong with keeping its checkpoints safe, for people.
    alarm: str | None = None
    progress: Progress | None = None
    #: The commit that its code was taken from.
    commit: str | None = None
    #: What its failure file said.
    failure: str | None = None
    #: Why it failed, as far as its end, its log and its samples tell.
    diagnosis: Diagnosis | None = None
    #: The part of its one GPU that it holds; None means all of them.
    gpu_share: float | None = None
    instance_type: str | None = None
    market: Market = Market.ON_DEMAND
    #: What its share of the instance costs, and would cost on demand; None when nobody said.
    usd_hour: float | None = None
    on_demand_usd_hour: float | None = None
    #: The files that went with its private directory.
    left: LeftFiles | None = None
    #: The attempt that has the place which this one will get; None once it is its own.
    behind: AttemptToken | None = None
    #: Whether nothing of it was begun when its place went away: it costs its job nothing.
    given_back: bool = False

    def as_whole(self, end: GangEnd) -> Attempt:
        """The try of the whole multi-node job whose main node's attempt this is."""
        return replace(
            self,
            instance=end.instance,
            stopped_at=end.stopped_at,
            exited_at=end.exited_at,
            exit_code=end.exit_code,
            reason=end.reason,
            status_reason=end.status_reason,
            stop_at=end.stop_at,
            stop_cause=end.stop_cause,
            stop_words=end.stop_words,
            failure=end.failure,
            diagnosis=end.diagnosis,
        )

    @property
    def interrupted(self) -> bool:
        """Whether it ended because its place was taken away or lost, with or without notice."""
        return self.preempted or (
            self.stopped_at is not None and self.status_reason == host_lost(self.instance)
        )

    @property
    def preempted(self) -> bool:
        """Whether it ended because it had to leave its place to a job of its own queue."""
        words = None if self.stop_cause is None else PREEMPTIONS.get(self.stop_cause)
        return self.stopped_at is not None and words is not None and self.status_reason == words

    @property
    def moved(self) -> bool:
        """Whether it was moved, which is never its job's fault: a GPU fell ill, or its deadline is kept elsewhere."""
        return self.interrupted and self.stop_cause in _FREE

    @property
    def was_container(self) -> bool:
        """Whether it ran in a container of its image; its agent's words say so."""
        return self.isolation is not None and self.isolation.removeprefix("warm worker, ").startswith(
            "container"
        )

    @property
    def was_plain(self) -> bool:
        """Whether it ran as a process without a sandbox; its agent's words say so."""
        return self.isolation is not None and self.isolation.removeprefix("warm worker, ").startswith(
            "process"
        )

    @property
    def is_unstored(self) -> bool:
        """Whether its process ended well and what it left could not be stored; that is kept and tried again."""
        return self.exit_code == 0 and self.reason is not None and self.reason.startswith(UNSTORED)

    @property
    def succeeded(self) -> bool:
        """Whether its process ended by itself with exit code 0."""
        return self.exit_code == 0 and self.reason is None
