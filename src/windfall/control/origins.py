"""What a submission of the daemon's own is for: the run of a tick, or an attempt of a service job.

Decides how a submission carries its origin to the core, which accepts it only while the origin still waits for it. Must
not know who asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from windfall.control.commands.calendar import StartRun
from windfall.control.events import SubmitJob, SubmitTraining
from windfall.jobs.ids import JobId


@dataclass(frozen=True, slots=True)
class TickOrigin:
    """A due time of a schedule; job and tick begin in one round."""

    schedule: str
    due_at: int
    #: The id of the job, always the same for this due time.
    run_id: JobId


@dataclass(frozen=True, slots=True)
class ServiceJobOrigin:
    """A service job, whose attempt the training job becomes."""

    job_id: JobId


Origin = TickOrigin | ServiceJobOrigin


def attributed(
    command: SubmitJob | SubmitTraining, origin: Origin | None
) -> SubmitJob | SubmitTraining | StartRun:
    """The submission, with what it is for."""
    if isinstance(origin, TickOrigin):
        return StartRun(origin.schedule, origin.due_at, command)
    if isinstance(origin, ServiceJobOrigin) and isinstance(command, SubmitTraining):
        return replace(command, service_job=origin.job_id)
    return command
