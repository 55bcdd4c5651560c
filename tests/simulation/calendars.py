"""Schedules in the simulated world: with every policy, changed and deleted, over times when no daemon runs.

What must hold: every due time that was decided has exactly one tick, a tick has one run at most, what became of one
stays, and of a schedule that forbids it no two runs live at once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.simulation.store import BrokenPromise, FakeStore
from windfall.capacity.environments import Switch
from windfall.control.changes import Changes
from windfall.control.commands.calendar import (
    CreateSchedule,
    CreateScheduleGroup,
    DeleteSchedule,
    UpdateSchedule,
)
from windfall.control.state import State
from windfall.jobs.ids import JobId
from windfall.schedules.schedule import (
    CatchUp,
    Overlap,
    Retry,
    Schedule,
    ScheduleGroup,
    Target,
    Tick,
    TickOutcome,
)
from windfall.schedules.tag_rules import CATCH_UP, OVERLAP

if TYPE_CHECKING:
    from tests.simulation.clients import Clients
    from tests.simulation.world import World

MINUTE_MS = 60_000
#: A group for every pair of policies; what a schedule does at an overlap is then in the name of its group.
GROUPS = tuple(
    ScheduleGroup(f"{overlap}-{catch_up}", tags={OVERLAP: overlap, CATCH_UP: catch_up})
    for overlap in Overlap
    for catch_up in CatchUp
)
NAMES = ("a", "b", "c")
EXPRESSIONS = ("rate(1 minute)", "rate(2 minutes)", "cron(* * * * ? *)", "cron(0/2 * * * ? *)", "at")
#: A due time is decided so much later at most while a daemon runs.
PATIENCE_MS = 10_000


def declare_groups(clients: Clients) -> None:
    """All groups exist."""
    for group in GROUPS:
        clients.call(CreateScheduleGroup(group))


def act_on_schedules(clients: Clients) -> None:
    """Somebody makes a schedule, changes one, switches it, or deletes it."""
    rng = clients.rng
    known = list(clients.world.daemon.state.schedules.values())
    if len(known) < len(NAMES) and (not known or rng.random() < 0.7):
        clients.call(CreateSchedule(_made(clients)))
        return
    schedule = rng.choice(known)
    chance = rng.random()
    if chance < 0.3:
        clients.call(DeleteSchedule(schedule.key))
    elif chance < 0.6:
        switch = Switch.DISABLED if schedule.switch is Switch.ENABLED else Switch.ENABLED
        clients.call(UpdateSchedule(replace(schedule, switch=switch)))
    else:
        clients.call(UpdateSchedule(replace(schedule, expression=_expression(clients), document="changed")))


def _made(clients: Clients) -> Schedule:
    rng = clients.rng
    target = Target(
        "arn:aws:scheduler:::aws-sdk:batch:submitJob",
        "arn:aws:iam::000000000000:role/any",
        retry=Retry(attempts=rng.choice((0, 2))),
        dead_letter=rng.choice((None, "arn:aws:sqs:us-east-1:000000000000:letters")),
    )
    return Schedule(
        rng.choice(GROUPS).name,
        rng.choice(NAMES),
        _expression(clients),
        target,
        window_minutes=rng.choice((None, None, 1)),
        delete_when_done=rng.random() < 0.5,
        document=f"request {clients.submitted} {rng.random()}",
    )


def _expression(clients: Clients) -> str:
    expression = clients.rng.choice(EXPRESSIONS)
    if expression != "at":
        return expression
    soon = clients.world.now + clients.rng.randrange(5_000, 90_000)
    return f"at({datetime.fromtimestamp(soon // 1000, UTC):%Y-%m-%dT%H:%M:%S})"


def delete_schedules(clients: Clients) -> None:
    """Nobody wants anything regularly any more."""
    for key in list(clients.world.daemon.state.schedules):
        clients.call(DeleteSchedule(key))


def due_between(schedule: Schedule, after: int, until: int) -> set[int]:
    """The due times of the expressions that this world has, reckoned without the calendar's own code."""
    if schedule.expression.startswith("at("):
        moment = datetime.fromisoformat(schedule.expression[3:-1]).replace(tzinfo=UTC)
        at = int(moment.timestamp()) * 1000
        return {at} if after < at <= until else set()
    period = 2 * MINUTE_MS if "2" in schedule.expression else MINUTE_MS
    base = schedule.created_at if schedule.expression.startswith("rate") else 0
    first = max(base, base + -(-(after + 1 - base) // period) * period)
    return set(range(first, until + 1, period))


class TickWatch:
    """Sees that no due time is lost or decided twice."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._ticks: dict[tuple[str, int], Tick] = {}
        #: The ticks that schedules of the same name had before.
        self._older: dict[str, set[int]] = {}
        self.decided = 0

    def look(self, store: FakeStore, changes: Changes) -> None:
        """After a commit: what it decided is all that was due, and what was decided before stands."""
        for key, tick in changes.ticks.items():
            before = self._ticks.get(key)
            if before is not None:
                _check_stands(before, tick)
            self._ticks[key] = replace(tick)
        for (kind, name), row in changes.declared.items():
            if kind is not Schedule:
                continue
            old = self._schedules.pop(name, None)
            if not isinstance(row, Schedule):
                continue
            if old is None or old.created_at != row.created_at:
                self._older[name] = {due_at for key, due_at in self._ticks if key == name}
            self._schedules[name] = row
            if old is not None and _goes_on(old, row):
                self._check_decided(store, old, row.decided_at)

    def _check_decided(self, store: FakeStore, schedule: Schedule, until: int) -> None:
        since = schedule.decided_at
        wanted = due_between(schedule, since, until)
        found = {due_at for name, due_at in store.ticks if name == schedule.key and since < due_at <= until}
        # A one-time schedule may be due a little before it was made, when another one had its name.
        found -= self._older.get(schedule.key, set()) - wanted
        self.decided += len(wanted)
        if found != wanted:
            raise BrokenPromise(f"{schedule} was due at {sorted(wanted)} and has ticks for {sorted(found)}")


def _goes_on(old: Schedule, new: Schedule) -> bool:
    """Whether it is the same schedule with the same times, and was on all the time."""
    kept = (old.created_at, old.expression, old.switch) == (new.created_at, new.expression, new.switch)
    return kept and new.switch is Switch.ENABLED


def _check_stands(before: Tick, after: Tick) -> None:
    if not before.unstarted and after.outcome is not before.outcome:
        raise BrokenPromise(f"a tick that was closed was opened again: {before}, {after}")
    if before.run is not None and after.run != before.run:
        raise BrokenPromise(f"a tick that had a run got another: {before}, {after}")


def check_calendar(world: World) -> None:
    """After a round: no due time is forgotten, no two runs overlap that must not, and all ticks are looked after."""
    state = world.daemon.state
    live: dict[str, list[str]] = {}
    for key, tick in state.ticks.items():
        if not tick.undone:
            raise BrokenPromise(f"closed and not forgotten: {tick}")
        if tick.run is not None and tick.run in state.jobs:
            live.setdefault(tick.schedule, []).append(tick.run)
        if tick.unstarted and tick.schedule not in state.schedules:
            raise BrokenPromise(f"its schedule is gone and it is still to be done: {tick}")
        if (
            tick.outcome is TickOutcome.DUE
            and tick.asked_at is None
            and key not in state.calendar_index.waiting
        ):
            raise BrokenPromise(f"nobody will ever do {tick}")
    for schedule, runs in live.items():
        if len(runs) > 1 and not schedule.startswith(Overlap.ALLOW):
            raise BrokenPromise(f"{schedule} has runs beside one another: {runs}")
    _check_waiting(state)


def _check_waiting(state: State) -> None:
    """Whoever waits for a run waits for one that is there."""
    for key, tick in state.ticks.items():
        if tick.outcome is not TickOutcome.WAITING or key in state.calendar_index.waiting:
            continue
        before = [
            other
            for other in state.ticks.values()
            if other.schedule == tick.schedule and other.due_at < tick.due_at
        ]
        if not any(other.unstarted or other.run in state.jobs or other.letter_due for other in before):
            raise BrokenPromise(f"waits for nothing and for ever: {tick}")


def check_on_time(world: World) -> None:
    """While a daemon runs undisturbed every due time is decided."""
    for schedule in world.daemon.state.schedules.values():
        late = due_between(schedule, schedule.decided_at, world.now - PATIENCE_MS)
        if late and schedule.switch is Switch.ENABLED:
            raise BrokenPromise(f"{schedule} was due at {sorted(late)}, and nobody noticed at {world.now}")


def _check_catch_up(tick: Tick) -> None:
    """What was missed was done late or skipped as the schedule's group says."""
    group, missed = tick.schedule.partition("/")[0], "no daemon ran" in (tick.reason or "")
    if tick.caught_up and group.endswith(f"-{CatchUp.SKIP}"):
        raise BrokenPromise(f"was missed and done late, and was to be skipped: {tick}")
    if missed and not tick.caught_up and group.endswith(f"-{CatchUp.ALL}"):
        raise BrokenPromise(f"was missed and skipped, and was to be done late: {tick}")


def check_ticks_at_rest(world: World) -> None:
    """In the end every tick is closed, and runs and ticks belong together one to one."""
    runs: dict[str, Tick] = {}
    for tick in world.store.ticks.values():
        if tick.undone:
            raise BrokenPromise(f"it is not known what became of {tick}")
        if (tick.outcome is TickOutcome.STARTED) is not (tick.run is not None):
            raise BrokenPromise(f"started without a run, or the other way round: {tick}")
        if tick.outcome in (TickOutcome.SKIPPED, TickOutcome.FAILED) and not tick.reason:
            raise BrokenPromise(f"nobody said why: {tick}")
        if tick.run is not None:
            runs[tick.run] = tick
        _check_catch_up(tick)
    made = {job_id for job_id in world.store.jobs if job_id in world.post_commit_tasks.asked}
    if made != runs.keys():
        raise BrokenPromise(f"runs without a tick or ticks without a run: {sorted(made ^ runs.keys())}")
    for job_id, tick in runs.items():
        if world.post_commit_tasks.asked[JobId(job_id)] != (tick.schedule, tick.due_at):
            raise BrokenPromise(f"{job_id} was started for another tick than {tick}")
