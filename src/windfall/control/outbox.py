"""Events of AWS Batch for receivers outside, as values: each with the job as it was at that moment.

It is committed with the change that it reports, so that neither is there without the other. Must not know how an event
reads on the wire, nor which receivers there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob


class Destination(StrEnum):
    """Where events go; each receives all of them, at its own pace."""

    FILE = "file"
    WEBHOOK = "webhook"


class EventKind(StrEnum):
    """EventBridge's names for them."""

    JOB = "Batch Job State Change"
    QUEUE_BLOCKED = "Batch Job Queue Blocked"
    SERVICE_JOB = "Batch Service Job State Change"
    SERVICE_QUEUE_BLOCKED = "Batch Service Job Queue Blocked"
    PREEMPTION_STARTED = "Batch Service Job Preemption Started"
    PREEMPTION_COMPLETED = "Batch Service Job Preemption Completed"


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """One event."""

    #: The same for every receiver, and for every repetition.
    id: str
    kind: EventKind
    at: int
    #: The job that it is about: events of one subject are sent in order.
    subject: JobId
    #: As it was then; of these two it has the one that its kind is about.
    job: Job | None = None
    service_job: ServiceJob | None = None
