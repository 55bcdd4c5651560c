"""Commands and reports about schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windfall.schedules.schedule import Schedule, ScheduleGroup


@dataclass(frozen=True, slots=True)
class CreateSchedule:
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class UpdateSchedule:
    """Replace a schedule; what the calendar remembers of its ticks stays."""

    schedule: Schedule


@dataclass(frozen=True, slots=True)
class DeleteSchedule:
    key: str
    #: The same request a second time is not an error.
    client_token: str | None = None


@dataclass(frozen=True, slots=True)
class CreateScheduleGroup:
    group: ScheduleGroup


@dataclass(frozen=True, slots=True)
class DeleteScheduleGroup:
    """Its schedules go with it."""

    name: str
    client_token: str | None = None


@dataclass(frozen=True, slots=True)
class TagSchedules:
    """Set and remove tags of a group, or of one schedule."""

    group: str
    #: None means the group itself.
    name: str | None = None
    add: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start what a tick is for: the job and the tick become what they are in one round. The reply is the Job."""

    schedule: str
    due_at: int
    #: SubmitJob or SubmitTraining of control.events, which imports this module.
    command: Any


@dataclass(frozen=True, slots=True)
class TargetFailed:
    """A tick's target could not be invoked; `again` when asking later may help."""

    schedule: str
    due_at: int
    error: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterWritten:
    schedule: str
    due_at: int


CalendarCommand = (
    CreateSchedule
    | UpdateSchedule
    | DeleteSchedule
    | CreateScheduleGroup
    | DeleteScheduleGroup
    | TagSchedules
    | StartRun
    | TargetFailed
    | DeadLetterWritten
)
