"""Opens and closes ticks, and plans when each schedule is looked at next: the calendar's bookkeeping.

Code that changes a schedule says so here. Must not know what a tick decides, nor how its target is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.capacity.environments import Switch
from windfall.control.round import Round
from windfall.control.state import State
from windfall.schedules.due_times import local_time, next_due
from windfall.schedules.errors import ScheduleError
from windfall.schedules.schedule import Schedule, Tick, TickOutcome
from windfall.schedules.tag_rules import Policies, policies_of
from windfall.schedules.zones import utc_only

#: A schedule's history is cut after this many ticks: not at each, because to find its end is work.
CUT_EVERY = 100


def watch_schedule(state: State, key: str, round_: Round) -> None:
    """Plan anew after a schedule was made, changed or removed; one that is off, or gone, does nothing more."""
    schedule = state.schedules.get(key)
    if schedule is not None and schedule.switch is Switch.ENABLED:
        plan_next(state, schedule)
        return
    state.calendar_index.plan(key, None)
    reason = "the schedule was deleted" if schedule is None else "the schedule was disabled"
    if schedule is None:
        state.calendar_index.forget(key)
    for tick in list(open_ticks(state, key)):
        if tick.unstarted:
            close_tick(state, tick, TickOutcome.SKIPPED, reason, round_)


def plan_next(state: State, schedule: Schedule) -> None:
    """Look at an enabled schedule when it is due next."""
    try:
        due_at = _next_due_at(state, schedule)
    except ScheduleError:
        # Its zone was known when it was made. One schedule must not keep a daemon from starting.
        due_at = None
    state.calendar_index.plan(schedule.key, due_at)


def _next_due_at(state: State, schedule: Schedule) -> int | None:
    zone = state.rules.zones(schedule.timezone)
    due = next_due(schedule, schedule.decided_at, zone, policies(state, schedule).summer_time)
    return None if due is None else due.at


def rebuild_agenda(state: State) -> None:
    """Derive what the calendar does next from the schedules and the open ticks."""
    for schedule in state.schedules.values():
        if schedule.switch is Switch.ENABLED:
            plan_next(state, schedule)
    for key, tick in state.ticks.items():
        state.calendar_index.open.setdefault(tick.schedule, set()).add(tick.due_at)
        if tick.unstarted or tick.letter_due:
            # Asked already, perhaps: what asks for a run a second time finds it started.
            state.calendar_index.wait(key, tick.at)
        elif tick.run is not None:
            state.calendar_index.runs[tick.run] = key


def policies(state: State, schedule: Schedule) -> Policies:
    """What the tags of a schedule and its group say."""
    return policies_of(schedule, state.schedule_groups.get(schedule.group))


def moment(state: State, schedule: Schedule, at: int) -> str:
    """A time as the schedule's own clocks show it, for people."""
    try:
        zone = state.rules.zones(schedule.timezone)
    except ScheduleError:
        zone = utc_only("UTC")
    return f"{local_time(at, zone):%Y-%m-%d %H:%M:%S %Z}"


def open_ticks(state: State, key: str) -> Iterator[Tick]:
    """The ticks of a schedule that are not closed, oldest first."""
    return (state.ticks[key, due_at] for due_at in sorted(state.calendar_index.open.get(key, ())))


def open_tick(state: State, tick: Tick, round_: Round) -> None:
    """Begin to keep a tick; one that is closed from the start is history at once."""
    key = (tick.schedule, tick.due_at)
    round_.changes.ticks[key] = tick
    index = state.calendar_index
    index.uncut[tick.schedule] = index.uncut.get(tick.schedule, 0) + 1
    if index.uncut[tick.schedule] >= CUT_EVERY:
        index.uncut[tick.schedule] = 0
        round_.changes.cut_histories.add(tick.schedule)
    if tick.undone:
        state.ticks[key] = tick
        index.open.setdefault(tick.schedule, set()).add(tick.due_at)


def close_tick(state: State, tick: Tick, outcome: TickOutcome, reason: str | None, round_: Round) -> None:
    """Say what became of a tick."""
    tick.move(outcome)
    tick.done_at = tick.done_at or round_.now
    tick.reason = "; ".join(part for part in (tick.reason, reason) if part) or None
    note_tick(state, tick, round_)


def note_tick(state: State, tick: Tick, round_: Round) -> None:
    """Have a tick written again; when it is closed, what waits for it may go on, and its schedule may be done."""
    key = (tick.schedule, tick.due_at)
    round_.changes.ticks[key] = tick
    index = state.calendar_index
    if not (tick.unstarted or tick.letter_due):
        index.waiting.pop(key, None)
    if not tick.undone:
        state.ticks.pop(key, None)
        left = index.open.get(tick.schedule, set())
        left.discard(tick.due_at)
        if not left:
            index.open.pop(tick.schedule, None)
        # One at a time: what waits behind the first would find it open.
        for other in open_ticks(state, tick.schedule):
            if other.outcome is TickOutcome.WAITING:
                index.wait((other.schedule, other.due_at), round_.now)
                break
    retire_if_done(state, tick.schedule, round_)


def retire_if_done(state: State, key: str, round_: Round) -> None:
    """Remove a schedule that was to go when it is done, once its last tick is."""
    schedule = state.schedules.get(key)
    if schedule is None or not schedule.delete_when_done or schedule.switch is Switch.DISABLED:
        return
    if key in state.calendar_index.planned or any(
        tick.unstarted or tick.letter_due for tick in open_ticks(state, key)
    ):
        return
    try:
        over = _next_due_at(state, schedule) is None
    except ScheduleError:
        return
    if over:
        del state.schedules[key]
        state.calendar_index.forget(key)
        round_.changes.declared[Schedule, key] = None
