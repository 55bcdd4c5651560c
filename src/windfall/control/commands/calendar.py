"""Commands and reports about schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windfall.jobs.ids import JobId
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


@dataclass(frozen=True, slots=True)
class CreateScheduleGroup:
    group: ScheduleGroup


@dataclass(frozen=True, slots=True)
class DeleteScheduleGroup:
    """Its schedules go with it."""

    name: str


@dataclass(frozen=True, slots=True)
class TagSchedules:
    """Set and remove tags of a group, or of one schedule."""

    #: `<group>` or `<group>/<name>`
    key: str
    add: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetInvoked:
    """What became of asking a tick's target: a run, or the error (`again` when asking later may help)."""

    schedule: str
    due_at: int
    run: JobId | None = None
    error: str | None = None
    again: bool = False


CalendarCommand = (
    CreateSchedule
    | UpdateSchedule
    | DeleteSchedule
    | CreateScheduleGroup
    | DeleteScheduleGroup
    | TagSchedules
    | TargetInvoked
)
