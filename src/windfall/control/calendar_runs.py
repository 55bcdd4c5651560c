"""What came of a tick: its run, the run's end, or an error that is tried again, and in the end told as a dead letter.

Decides when a target is asked again. A run and the tick that it belongs to begin in one round, so that asking
again after a crash finds the tick started. Must not know when schedules are due.
"""

from __future__ import annotations

from dataclasses import replace

from windfall.backoff import Pauses
from windfall.control.agenda import close_tick, note_tick
from windfall.control.calendar_index import TickKey
from windfall.control.commands.calendar import DeadLetterWritten, StartRun, TargetFailed
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Conflict
from windfall.jobs.job import Job
from windfall.jobs.states import SUCCEEDED
from windfall.schedules.schedule import Schedule, Tick, TickOutcome

#: How long a target is left alone that could not be invoked: doubled each time, so that the 185 retries that AWS has by
#: default fill its 24 hours.
RETRY_MS = Pauses(1_000, 480_000)


def due_tick(state: State, command: StartRun) -> Tick:
    """The tick that a run is to be started for; raises when it is not due any more."""
    tick = state.ticks.get((command.schedule, command.due_at))
    if tick is None or tick.outcome is not TickOutcome.DUE:
        raise Conflict(
            f"The tick of schedule {command.schedule} at {command.due_at} is not due any more; nothing was started"
        )
    return tick


def note_start(state: State, tick: Tick, job: Job, round_: Round) -> None:
    """A tick's run has begun."""
    key = (tick.schedule, tick.due_at)
    tick.run = job.id
    tick.error = None
    if (schedule := state.schedules.get(tick.schedule)) is not None:
        started = replace(schedule, last_run=job.id)
        state.schedules[schedule.key] = round_.changes.declared[Schedule, schedule.key] = started
    if job.finished:
        _note_ended(tick, job, round_.now)
    else:
        state.calendar_index.runs[job.id] = key
    close_tick(state, tick, TickOutcome.STARTED, None, round_)


def note_end(state: State, job: Job, round_: Round) -> None:
    """A job has finished: if it was a tick's run, the tick says how, and what waits for it may go on."""
    key: TickKey | None = state.calendar_index.runs.pop(job.id, None)
    tick = state.ticks.get(key) if key is not None else None
    if tick is not None and tick.run == job.id:
        _note_ended(tick, job, round_.now)
        note_tick(state, tick, round_)


def _note_ended(tick: Tick, job: Job, now: int) -> None:
    starts = [attempt.started_at for attempt in job.attempts if attempt.started_at is not None]
    tick.run_started_at = starts[0] if starts else job.started_at
    tick.run_ended_at = now
    tick.run_succeeded = job.state is SUCCEEDED


def on_target_failed(state: State, report: TargetFailed, round_: Round) -> None:
    """Ask again later, as long as the retry policy lets, or give up."""
    tick, schedule = state.ticks.get((report.schedule, report.due_at)), state.schedules.get(report.schedule)
    if tick is None or schedule is None or tick.outcome is not TickOutcome.DUE:
        return
    tick.error = report.error
    retry, again_at = schedule.target.retry, round_.now + int(RETRY_MS.after(tick.attempts))
    oldest_at = (tick.asked_at or round_.now) + retry.max_age_s * 1000
    if report.again and tick.attempts <= retry.attempts and again_at <= oldest_at:
        tick.at = again_at
        state.calendar_index.wait((tick.schedule, tick.due_at), again_at)
        note_tick(state, tick, round_)
        return
    times = "once" if tick.attempts == 1 else f"{tick.attempts} times"
    tick.letter_due = schedule.target.dead_letter is not None
    tick.at = round_.now
    if tick.letter_due:
        state.calendar_index.wait((tick.schedule, tick.due_at), round_.now)
    close_tick(state, tick, TickOutcome.FAILED, f"asked {times}: {report.error}", round_)


def on_dead_letter_written(state: State, report: DeadLetterWritten, round_: Round) -> None:
    """A failed tick has been reported."""
    tick = state.ticks.get((report.schedule, report.due_at))
    if tick is not None and tick.letter_due:
        tick.letter_due = False
        note_tick(state, tick, round_)
