"""What is to be told to the outside, as values: an event of AWS Batch's, with the job as it was at that moment.

It is committed with the change that it reports, so that neither is there without the other. Must not know how an event
reads on the wire, nor who hears it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob


class Destination(StrEnum):
    """Where events go; each hears all of them, at its own pace."""

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
class Told:
    """One event."""

    #: The same for everyone who hears it, and whenever it is told again.
    id: str
    kind: EventKind
    at: int
    #: Whose event it is: those of one subject are told in their order.
    subject: JobId
    #: As it was then; of these two it has the one that its kind is about.
    job: Job | None = None
    service_job: ServiceJob | None = None
