"""What a forecast is made from: a copy of the durable state, and the few values that only memory has.

Each play begins with a state of its own. Decides what of the state does not count: schedules to come, and service
jobs that are not trainings yet. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from windfall.control.job_deadlines import worked_ms
from windfall.control.ports import Loaded
from windfall.control.rebuild import rebuild
from windfall.control.snapshots import Offers
from windfall.control.state import Rules, SpotPool, State
from windfall.forecast.lengths import WorkEstimate, by_pace, estimate
from windfall.jobs.ids import JobId, QueueName, split_child, split_node
from windfall.jobs.job import Job
from windfall.jobs.pace import left_by_steps
from windfall.schedules.schedule import Schedule

#: From the place to the process where no attempt of the job has shown it, in seconds.
USUAL_START_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The real state at one moment, as values."""

    now: int
    #: Makes the records anew: a play changes them.
    records: Callable[[], Loaded]
    rules: Rules
    offers: Offers
    #: How long earlier runs like a job took, in seconds, by top-level job.
    runs: Mapping[JobId, tuple[float, ...]] = field(default_factory=dict)
    spot_pools: Mapping[QueueName, SpotPool] = field(default_factory=dict)
    tenants: tuple[str, ...] = ()

    def state(self, revise: Callable[[Loaded], None] = lambda _records: None) -> State:
        """A state to play with, from records that may be revised first."""
        records = self.records()
        records.declared = [it for it in records.declared if not isinstance(it, Schedule)]
        records.ticks, records.service_jobs = [], []
        revise(records)
        state = rebuild(records, self.rules)
        state.spot_pools, state.tenants = dict(self.spot_pools), self.tenants
        state.offers = self.offers
        return state

    def estimate_of(self, job: Job) -> WorkEstimate:
        """What is known of the work of a job."""
        left = left_by_steps(job.attempts, self.now) if job.attempts else None
        if left is not None:
            done_ms = sum(worked_ms(attempt, self.now) for attempt in job.attempts)
            return by_pace(done_ms / 1000, left.seconds, sure=left.sure)
        deadline = job.submission.deadline
        said_s = None if deadline is None else deadline.work_s
        return estimate(self.runs.get(top_of(job.id), ()), said_s, job.submission.timeout_s)


def top_of(job_id: JobId) -> JobId:
    """The job that a child or a node belongs to."""
    return split_node(split_child(job_id)[0])[0]


def start_s(job: Job) -> float:
    """How long a start of a job takes, as its own attempts have shown."""
    measured = [
        (attempt.started_at - attempt.placed_at) / 1000
        for attempt in job.attempts
        if attempt.started_at is not None
    ]
    return sum(measured) / len(measured) if measured else USUAL_START_S


class Estimates:
    """The estimate of every job of one copy, each made once; children of an array are alike."""

    def __init__(self, copied: Copied) -> None:
        self._copied = copied
        self._of: dict[JobId, WorkEstimate] = {}

    def of(self, job: Job) -> WorkEstimate:
        """What is known of the work of a job."""
        top = top_of(job.id)
        if top not in self._of:
            self._of[top] = self._copied.estimate_of(job)
        return self._of[top]
