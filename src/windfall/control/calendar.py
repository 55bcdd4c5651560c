"""The calendar: at its due time a schedule gets a tick, and the tick starts a run, waits, or is skipped with a reason.

Decides what becomes of due times that were missed, and of a tick whose predecessor still runs. A tick is decided once:
it and the schedule's `decided_at` are written in one round, so that a crash neither loses nor repeats one. Must not
know how a target is asked; calendar_runs.py has what came of it.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.control.agenda import (
    close_tick,
    moment,
    note_tick,
    open_tick,
    open_ticks,
    plan_next,
    policies,
    retire_if_done,
)
from windfall.control.events import TerminateJob
from windfall.control.instructions import InvokeTarget, WriteDeadLetter
from windfall.control.round import Round
from windfall.control.state import State
from windfall.control.stopping import on_terminate_job
from windfall.jobs.tenants import given_schedule
from windfall.schedules.due_times import Due, due_times, window_offset_ms
from windfall.schedules.schedule import CatchUp, Overlap, Schedule, Tick, TickOutcome

#: Later than this a tick was missed; before, it is merely late.
LATE_MS = 60_000
#: At most this many schedules and ticks in one round, so that a midnight of thousands does not make others wait.
LOOKS_MAX = 500


def on_calendar(state: State, round_: Round) -> None:
    """Decide every due time up to now, and do the ticks whose time has come; of very many, some at a time."""
    for _ in range(LOOKS_MAX):
        taken = state.calendar_index.take(round_.now)
        if taken is None:
            return
        key, due_at = taken
        if due_at is not None:
            _do(state, state.ticks[key, due_at], round_)
        elif (schedule := state.schedules.get(key)) is not None:
            _decide(state, schedule, round_)


def _decide(state: State, schedule: Schedule, round_: Round) -> None:
    """Make ticks of all due times up to now."""
    dues = _due_now(state, schedule, round_)
    ticks = [_tick(schedule, due) for due in dues]
    _judge_missed(state, schedule, [tick for tick in ticks if tick.unstarted], round_.now)
    for tick in ticks:
        if not tick.unstarted:
            tick.done_at = round_.now
        open_tick(state, tick, round_)
        if tick.unstarted:
            state.calendar_index.wait((tick.schedule, tick.due_at), tick.at)
    decided = replace(schedule, decided_at=max(schedule.decided_at, round_.now, *(due.at for due in dues)))
    state.schedules[schedule.key] = round_.changes.declared[Schedule, schedule.key] = decided
    plan_next(state, decided)
    retire_if_done(state, schedule.key, round_)


def _tick(schedule: Schedule, due: Due) -> Tick:
    at = due.at + window_offset_ms(schedule.key, due.at, schedule.window_minutes)
    outcome = TickOutcome.SKIPPED if due.skipped else TickOutcome.DUE
    return Tick(schedule.key, due.at, at, outcome, due.note)


def _due_now(state: State, schedule: Schedule, round_: Round) -> list[Due]:
    """The due times since the last decision; of those that are too old to be done, one stands for all."""
    zone, summer_time = state.rules.zones(schedule.timezone), policies(state, schedule).summer_time
    window_ms = (schedule.window_minutes or 0) * 60_000
    max_age_s = schedule.target.retry.max_age_s
    oldest = round_.now - max_age_s * 1000 - window_ms - LATE_MS
    passed: list[Due] = []
    coming = due_times(schedule, schedule.decided_at, zone, summer_time)
    first = next(coming, None)
    if first is not None and first.at < oldest:
        second = next(coming, None)
        others = second is not None and second.at < oldest
        note = f"no daemon ran at its time, and it is older than MaximumEventAgeInSeconds ({max_age_s} s)"
        if others:
            note += f"; so is every other due time before {moment(state, schedule, oldest)}"
        passed.append(Due(first.at, note, skipped=True))
        coming = due_times(schedule, oldest - 1, zone, summer_time)
        first = next(coming, None)
    while first is not None and first.at <= round_.now:
        passed.append(first)
        first = next(coming, None)
    return passed


def _judge_missed(state: State, schedule: Schedule, ticks: list[Tick], now: int) -> None:
    """Skip what the policy for missed ticks does not want; the newest is missed only if it is really late."""
    past = [tick for tick in ticks if tick.at <= now]
    policy = policies(state, schedule).catch_up
    for tick in past:
        newest = tick is past[-1]
        if newest and now - tick.at <= LATE_MS:
            continue
        skipped = not newest if policy is CatchUp.ONCE else policy is CatchUp.SKIP
        tick.caught_up, why = not skipped, "no daemon ran at its time"
        if skipped:
            tick.move(TickOutcome.SKIPPED)
            stands = (
                f"; the tick of {moment(state, schedule, past[-1].due_at)} stands for all that were missed"
            )
            why += stands if policy is CatchUp.ONCE else "; missed ticks are skipped (windfall:catch-up)"
        else:
            tick.at = now
            why += "; done late"
        tick.reason = "; ".join(part for part in (tick.reason, why) if part)


def _do(state: State, tick: Tick, round_: Round) -> None:
    """Do a tick whose time has come, or have it wait its turn."""
    schedule = state.schedules.get(tick.schedule)
    if tick.letter_due:
        _write_letter(schedule, tick, round_)
        if schedule is None:
            tick.letter_due = False
            note_tick(state, tick, round_)
        return
    assert schedule is not None, f"{tick.schedule} is gone, and its ticks were closed with it"
    before = [] if tick.asked_at is not None else _before(state, tick)
    overlap = policies(state, schedule).overlap
    if not before or overlap is Overlap.ALLOW:
        _ask(state, schedule, tick, round_)
    elif overlap is Overlap.SKIP:
        reason = f"{_named(state, schedule, before)} was not over (windfall:overlap)"
        close_tick(state, tick, TickOutcome.SKIPPED, reason, round_)
    elif tick.outcome is not TickOutcome.WAITING:
        _wait_for(state, schedule, tick, before, round_)


def _before(state: State, tick: Tick) -> list[Tick]:
    """The open ticks before one, and those whose runs are not over."""
    return [
        other
        for other in open_ticks(state, tick.schedule)
        if other.due_at < tick.due_at and (other.unstarted or other.run in state.jobs)
    ]


def _wait_for(state: State, schedule: Schedule, tick: Tick, before: list[Tick], round_: Round) -> None:
    tick.move(TickOutcome.WAITING)
    words = f"waited for the end of {_named(state, schedule, before)} (windfall:overlap)"
    tick.reason = f"{tick.reason}; {words}" if tick.reason else words
    note_tick(state, tick, round_)
    replaces = policies(state, schedule).overlap is Overlap.REPLACE
    now = moment(state, schedule, tick.due_at)
    for other in before:
        if other.unstarted:
            # Of those that wait in order because all that were missed are to be done, none gives way.
            gives_way = other.outcome is TickOutcome.WAITING and not (other.caught_up and tick.caught_up)
            if replaces or gives_way:
                close_tick(state, other, TickOutcome.SKIPPED, f"the tick of {now} took its place", round_)
        elif replaces and other.run is not None:
            reason = f"Replaced by the run of {now} of schedule {given_schedule(schedule.key)}"
            on_terminate_job(state, TerminateJob(other.run, reason), round_)
    if not _before(state, tick):
        state.calendar_index.wait((tick.schedule, tick.due_at), round_.now)


def _named(state: State, schedule: Schedule, before: list[Tick]) -> str:
    """The newest run among those before, for people."""
    tick = next((tick for tick in reversed(before) if tick.run is not None), before[-1])
    run = f" ({tick.run})" if tick.run is not None else ""
    return f"the run of {moment(state, schedule, tick.due_at)}{run}"


def _ask(state: State, schedule: Schedule, tick: Tick, round_: Round) -> None:
    if tick.outcome is TickOutcome.WAITING:
        tick.move(TickOutcome.DUE)
    tick.attempts += 1
    tick.asked_at = tick.asked_at or round_.now
    note_tick(state, tick, round_)
    round_.instructions.append(InvokeTarget(schedule, tick.due_at, tick.attempts))


def _write_letter(schedule: Schedule | None, tick: Tick, round_: Round) -> None:
    if schedule is not None:
        letter = WriteDeadLetter(schedule, tick.due_at, tick.attempts, tick.error or "")
        round_.instructions.append(letter)
