"""Which changes become events: every state that a job comes to, and the head of a queue that is blocked.

A job that has a record of its own notes the states it moves to (`Job.moves`), and the end of the round makes events of
them, each with the job as it was at that state. Where nobody listens no job notes anything. Must not know who listens.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from windfall.control.outbox import EventKind, OutboxEvent
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.attempts import Attempt
from windfall.jobs.job import Job, Move
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.states import STARTING, TERMINAL


def tell_of(state: State, job: Job) -> None:
    """Have a job that was just made note the state it is in, and all that follow, if anybody listens."""
    if state.rules.event_destinations and job.moves is None:
        job.moves = []
        job.note_move()


def watch_loaded_jobs(state: State) -> None:
    """Record the moves of loaded jobs from now on."""
    if state.rules.event_destinations:
        for job in state.jobs.values():
            job.moves = []


def emit_moves(state: State, job: Job, round_: Round) -> None:
    """Make events of the moves of a job since the last call."""
    if not job.moves:
        return
    moves, job.moves = job.moves, []
    for move in moves:
        then = as_of(job, move, is_last=move is moves[-1])
        event_id = _event_id(EventKind.JOB, job.id, job.created_at, move.state, move.attempts, round_.now)
        _put(state, OutboxEvent(event_id, EventKind.JOB, round_.now, job.id, job=then), round_)


def emit_blocked(state: State, job: Job, round_: Round) -> None:
    """Report that a job at the head of its queue blocks it, with its reason."""
    if not state.rules.event_destinations:
        return
    kind = EventKind.QUEUE_BLOCKED
    event_id = _event_id(kind, job.id, job.created_at, job.status_reason, round_.now)
    _put(state, OutboxEvent(event_id, kind, round_.now, job.id, job=replace(job, moves=None)), round_)


def emit_service_job(
    state: State, job: ServiceJob, round_: Round, kind: EventKind = EventKind.SERVICE_JOB
) -> None:
    """Report the new state of a service job, or what else happened to it."""
    if not state.rules.event_destinations:
        return
    event_id = _event_id(kind, job.id, job.created_at, job.state, len(job.attempts), round_.now)
    then = replace(job, attempts=[replace(attempt) for attempt in job.attempts])
    _put(state, OutboxEvent(event_id, kind, round_.now, job.id, service_job=then), round_)


def emit_round(state: State, round_: Round) -> None:
    """Make events of all moves of the round."""
    if state.rules.event_destinations:
        for job in round_.changes.jobs.values():
            emit_moves(state, job, round_)


def as_of(job: Job, move: Move, *, is_last: bool) -> Job:
    """A job as it was when it came to a state, without what happened to it later in the same round."""
    if is_last:
        return replace(job, attempts=list(job.attempts), moves=None)
    attempts = job.attempts[: move.attempts]
    if attempts and not move.ended:
        attempts[-1] = _while_running(attempts[-1], started=move.state is not STARTING)
    has_started = any(attempt.started_at is not None for attempt in attempts)
    return replace(
        job,
        state=move.state,
        status_reason=move.status_reason,
        attempts=attempts,
        started_at=job.started_at if has_started else None,
        stopped_at=job.stopped_at if move.state in TERMINAL else None,
        moves=None,
    )


def _while_running(attempt: Attempt, *, started: bool) -> Attempt:
    return replace(
        attempt,
        started_at=attempt.started_at if started else None,
        stopped_at=None,
        exit_code=None,
        reason=None,
        status_reason=None,
        diagnosis=None,
    )


def _put(state: State, event: OutboxEvent, round_: Round) -> None:
    for destination in state.rules.event_destinations:
        round_.changes.outbox[destination, event.id] = event


def _event_id(*parts: object) -> str:
    """A UUID that the same event always gets: receivers know by it what they have heard before."""
    text = "\n".join(str(part) for part in parts)
    digest = hashlib.blake2b(
        text.encode(errors="replace"), digest_size=16, person=b"windfallevent"
    ).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"
