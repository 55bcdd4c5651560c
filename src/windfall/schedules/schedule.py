"""A schedule, its group, and its ticks: what the calendar keeps. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from windfall.capacity.environments import Switch
from windfall.jobs.ids import JobId
from windfall.jobs.states import MoveTable
from windfall.jobs.submitters import UNKNOWN, Submitter

DEFAULT_GROUP = "default"


class Overlap(StrEnum):
    """What happens at a tick while the run of an earlier one is not over."""

    #: It starts beside it, as on AWS.
    ALLOW = "allow"
    SKIP = "skip"
    #: It starts when the run before has ended; one waits at most, the newest.
    QUEUE = "queue"
    #: The run before is terminated, and it starts when that has ended.
    REPLACE = "replace"


class CatchUp(StrEnum):
    """What happens when ticks were missed because no daemon ran."""

    ONCE = "once"
    ALL = "all"
    SKIP = "skip"


class SummerTime(StrEnum):
    """What happens to a time of day that a change of the clocks leaves out or has twice."""

    #: As on AWS: a time that does not exist is skipped, and one that comes twice is run the first time.
    AWS = "aws"
    #: A time that does not exist is run at the moment the clocks go forward; one that comes twice is run once.
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Retry:
    """How long and how often a target is asked again that could not be invoked."""

    max_age_s: int = 86_400
    attempts: int = 185


@dataclass(frozen=True, slots=True)
class Target:
    """What a tick does."""

    #: `arn:aws:scheduler:::aws-sdk:batch:submitJob`, a job queue's ARN (templated), ...
    arn: str
    role_arn: str
    input: str | None = None
    retry: Retry = field(default_factory=Retry)
    #: Where ticks go that could not be done: the ARN as it was sent.
    dead_letter: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleGroup:
    """Schedules that are listed, tagged and deleted together."""

    name: str
    created_at: int = 0
    modified_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    #: Tells the same request again from another one for the same name.
    client_token: str | None = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """A request to delete a schedule or a group that was carried out."""

    #: `<group>/<name>` or `<group>`, a blank, and the request's token.
    request: str
    at: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """When to do what."""

    group: str
    name: str
    #: As it was sent: cron(...), rate(...) or at(...).
    expression: str
    target: Target
    timezone: str = "UTC"
    start_at: int | None = None
    end_at: int | None = None
    #: None means exactly on time; else a tick comes some time within this many minutes.
    window_minutes: int | None = None
    switch: Switch = Switch.ENABLED
    delete_when_done: bool = False
    created_at: int = 0
    modified_at: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    #: The request as it was sent, for the wire alone.
    document: str = "{}"
    submitter: Submitter = UNKNOWN
    #: Up to which due time ticks have been decided; the next one is the first after it.
    decided_at: int = 0
    #: The run of the last tick that started one.
    last_run: JobId | None = None

    @property
    def key(self) -> str:
        """What tells it from schedules of the same name in other groups."""
        return f"{self.group}/{self.name}"


class TickOutcome(StrEnum):
    """What became of a tick."""

    #: Decided, and its target is being invoked.
    DUE = "due"
    #: It waits for the end of the run before.
    WAITING = "waiting"
    STARTED = "started"
    SKIPPED = "skipped"
    #: Its target could not be invoked, in the end.
    FAILED = "failed"


DUE, WAITING, STARTED, SKIPPED, FAILED = TickOutcome

TICK_MOVES = MoveTable(
    {
        (DUE, WAITING): "the run before is not over, and this one is to wait for it",
        (DUE, STARTED): "its target was invoked, and the run begins",
        (DUE, SKIPPED): "missed, overlapping, replaced by a later tick, or the schedule is off or gone",
        (DUE, FAILED): "its target could not be invoked, and no retry is left",
        (WAITING, DUE): "the run before is over",
        (WAITING, SKIPPED): "replaced by a later tick, or the schedule is off or gone",
    },
    begins={DUE: "its time has come", SKIPPED: "its time of day does not exist, or is too long ago"},
    ends={STARTED: "", SKIPPED: "", FAILED: ""},
)


@dataclass(slots=True)
class Tick:
    """One due time of a schedule and what became of it. Kept as history."""

    schedule: str
    due_at: int
    #: When it is (or was) to be done: later than due in a flexible window, or after a restart.
    at: int
    outcome: TickOutcome = TickOutcome.DUE
    #: Why it was skipped or failed, or what was unusual (a change of summer time), for people.
    reason: str | None = None
    #: What it started: a job's id, or a training job's.
    run: JobId | None = None
    #: How often its target was asked, and when first.
    attempts: int = 0
    asked_at: int | None = None
    #: What its target answered the last time that it could not be invoked.
    error: str | None = None
    done_at: int | None = None
    #: Whether no daemon ran when it was due, and it is done late.
    caught_up: bool = False
    #: Whether it failed and that has not yet been written to its dead letters.
    letter_due: bool = False
    #: When the run ended and how, once it has.
    run_started_at: int | None = None
    run_ended_at: int | None = None
    run_succeeded: bool | None = None

    def move(self, new: TickOutcome) -> None:
        """Change the outcome, if the table has such a move."""
        TICK_MOVES.check(self.outcome, new, self.story)
        self.outcome = new

    def story(self) -> str:
        """Its life in one line, for errors and logs."""
        return (
            f"the tick of schedule {self.schedule} at {self.due_at} is {self.outcome};"
            f" run: {self.run}, attempts: {self.attempts}, reason: {self.reason}"
        )

    @property
    def unstarted(self) -> bool:
        """Whether it is still to be done."""
        return self.outcome in (TickOutcome.DUE, TickOutcome.WAITING)

    @property
    def undone(self) -> bool:
        """Whether it is not yet known what becomes of it, or of its run."""
        running = self.outcome is TickOutcome.STARTED and self.run_ended_at is None
        return self.unstarted or running or self.letter_due
