"""Builders for tests of the calendar: a schedule in a few words, and a daemon that does what ticks ask of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

from tests.builders import TestWorld, a_job, a_machine, a_world
from tests.unit.schedules.schedules import TARGET, ms
from windfall.control.commands.calendar import (
    CreateSchedule,
    DeadLetterWritten,
    StartRun,
    TagSchedules,
    TargetFailed,
)
from windfall.control.instructions import InvokeTarget, WriteDeadLetter
from windfall.control.timekeeping import next_due
from windfall.jobs.errors import Conflict
from windfall.schedules.schedule import Retry, Schedule, Tick, TickOutcome

__all__ = ["BERLIN", "KEY", "Calendar", "a_calendar", "a_schedule", "ms"]

BERLIN = "Europe/Berlin"
KEY = "default/nightly"


def a_schedule(expression: str, name: str = "nightly", **changes: Any) -> Schedule:
    """A schedule whose target is a job."""
    retry = Retry(changes.pop("max_age_s", 86_400), changes.pop("retries", 185))
    target = replace(TARGET, retry=retry, dead_letter=changes.pop("dead_letter", None))
    return Schedule("default", name, expression, target, **changes)


@dataclass
class Calendar:
    """A world in which targets are invoked as the daemon would, unless told otherwise."""

    world: TestWorld
    #: What targets answer instead of starting a run.
    refusal: str | None = None
    again: bool = True
    #: Tasks that nobody has done: the daemon was killed before it could.
    undone: list[Any] = field(default_factory=list)
    letters: list[WriteDeadLetter] = field(default_factory=list)
    deaf: bool = False

    def makes(self, schedule: Schedule, **tags: str) -> Calendar:
        """A schedule is made, with tags of our own: `overlap="skip"`."""
        self.world.happens(CreateSchedule(schedule))
        if tags:
            named = {f"windfall:{name.replace('_', '-')}": value for name, value in tags.items()}
            self.world.happens(TagSchedules(schedule.group, schedule.name, named))
        return self

    def until(self, at: int) -> Calendar:
        """Time passes from due time to due time, as the daemon's loop lets it."""
        while (due := next_due(self.world.state)) is not None and due <= at:
            self.world.now = max(self.world.now, due)
            self.world.later(0)
            self.carries_out()
        self.world.now = max(self.world.now, at)
        self.world.later(0)
        self.carries_out()
        return self

    def down_until(self, at: int) -> Calendar:
        """No daemon runs for a while; then one begins from the store."""
        self.world.now = at
        self.world.restarted()
        return self.until(at)

    def carries_out(self) -> None:
        """Run the post-commit tasks of the last round, and those that follow from them."""
        tasks = [one for one in self.world.instructions if isinstance(one, InvokeTarget | WriteDeadLetter)]
        self.world.instructions = []
        if self.deaf:
            self.undone += tasks
            return
        for task in tasks:
            self.does(task)

    def does(self, task: InvokeTarget | WriteDeadLetter) -> None:
        """Ask a target, or write a letter."""
        key = task.schedule.key
        if isinstance(task, WriteDeadLetter):
            self.letters.append(task)
            self.world.happens(DeadLetterWritten(key, task.due_at))
        elif self.refusal is not None:
            self.world.happens(TargetFailed(key, task.due_at, self.refusal, self.again))
        else:
            job = a_job(f"{task.schedule.name}-{task.due_at}").gpus(1).command
            try:
                self.world.happens(StartRun(key, task.due_at, job))
            except Conflict:
                return
        self.carries_out()

    def runs(self, due_at: int) -> str:
        """The id of the run of a due time."""
        return f"nightly-{due_at}"

    def ends(self, due_at: int, code: int = 0) -> Calendar:
        """The run of a due time ends."""
        self.world.ready()
        self.world.exits(self.runs(due_at), code)
        return self.until(self.world.now)

    def tick(self, due_at: int, key: str = KEY) -> Tick:
        """A tick as the store has it."""
        return self.world.store.ticks[key, due_at]

    def outcomes(self) -> list[TickOutcome]:
        """What became of all ticks, oldest first."""
        return [self.world.store.ticks[key].outcome for key in sorted(self.world.store.ticks)]


def a_calendar(now: str = "2026-11-15 12:00", **rules: Any) -> Calendar:
    """A calendar over a queue with room, at a time of day (UTC)."""
    world = a_world(a_machine(gpus=8), zones=ZoneInfo, **rules)
    world.now = ms(now)
    return Calendar(world.declared())
