"""How a training job ended: the cause, from the job's own record.

The wire has words for each of them. Must not know these.
"""

from __future__ import annotations

from enum import Enum, auto

from windfall.jobs.attempts import StopCause
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED, SUCCEEDED


class TrainingEnd(Enum):
    """Why a training job is over."""

    COMPLETED = auto()
    #: Somebody stopped it.
    STOPPED = auto()
    RUN_TIME = auto()
    WAIT_TIME = auto()
    PENDING_TIME = auto()
    BUDGET = auto()
    #: Its own fault, or ours.
    FAULT = auto()


_LIMITS = {
    StopCause.RUN_TIME: TrainingEnd.RUN_TIME,
    StopCause.WAIT_TIME: TrainingEnd.WAIT_TIME,
    StopCause.PENDING_TIME: TrainingEnd.PENDING_TIME,
    StopCause.BUDGET: TrainingEnd.BUDGET,
}


def end_of(job: Job) -> TrainingEnd:
    """The cause of the end of a job that has ended."""
    if job.state is SUCCEEDED:
        return TrainingEnd.COMPLETED
    if job.ended_by in _LIMITS:
        return _LIMITS[job.ended_by]
    cause = job.tries[-1].stop_cause if job.tries else None
    if cause in (StopCause.RUN_TIME, StopCause.WAIT_TIME):
        return _LIMITS[cause]
    if job.terminated or job.cancelled or cause is StopCause.TERMINATED:
        return TrainingEnd.STOPPED
    return TrainingEnd.FAULT


def lacked_capacity(job: Job) -> bool:
    """Whether a job was given up before it ever had its instances, and so through no fault of its own."""
    return job.state is FAILED and not job.attempts and end_of(job) is not TrainingEnd.FAULT
