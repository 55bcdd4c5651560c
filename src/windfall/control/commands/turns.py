"""Commands about a job's turn: whether it may start, and which jobs go before it."""

from __future__ import annotations

from dataclasses import dataclass

from windfall.jobs.ids import JobId


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Keep a job that has not started from starting. The reply is whether it was not held before."""

    job_id: JobId
    #: The name of who holds it, for those who ask.
    by: str


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """Let a held job start. The reply is whether it was held."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Change a live job's priority within its share. The reply is whether it was another one before."""

    job_id: JobId
    priority: int
    #: The name of who changes it, for those who ask.
    by: str


TurnCommand = HoldJob | ReleaseJob | SetPriority
