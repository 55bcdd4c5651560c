"""Holding and releasing jobs: a held job keeps its state and its order, and does not start.

Being held is a fact about a job and stored with it. A held job is not in the backlog, so the scheduler never sees it.
An array is held as a whole: children that run go on, the others do not start. Dependencies are met as usual while a job
is held. Must not know who may hold what: ownership.py does.
"""

from __future__ import annotations

from windfall.control.commands.turns import HoldJob, ReleaseJob
from windfall.control.ownership import live_job
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import JobId, split_child, split_node
from windfall.jobs.job import Job
from windfall.jobs.states import PLACED, RUNNABLE


def held_by(state: State, job: Job) -> str | None:
    """Who holds a job, or the array that it is a child of; None where nobody does."""
    array = state.jobs.get(job.parent) if job.parent is not None else None
    return job.held_by or (array.held_by if array is not None else None)


def let_wait(state: State, job: Job, count: int = 1) -> None:
    """Let a RUNNABLE job (or `count` children of an array) wait for a place, unless it is held."""
    if held_by(state, job) is None:
        state.backlog.add(job, count)


def on_hold_job(state: State, command: HoldJob, round_: Round) -> bool:
    """Hold a job that has not started; the reply is whether it was not held before."""
    job = whole_job(state, command.job_id, round_, "held and released")
    if job.state in PLACED:
        raise Invalid(
            f"Job {job.id} is {job.state}, and only a job that has not started can be held; `windfall interrupt` takes"
            " its place away with notice, `windfall terminate` stops it"
        )
    if job.is_array and not any(child.state is RUNNABLE for child in _recorded(state, job)):
        table = state.children[job.id]
        if not table.resting:
            raise Invalid(
                f"All children of array {job.id} have started or ended; there is nothing left to hold"
            )
    if job.held_by is not None:
        return False
    job.held_by, job.blocked_at = command.by, None
    job.status_reason = f"Held by {command.by}"
    for waiting in (job, *_recorded(state, job)):
        state.backlog.remove(waiting)
        state.reservations.pop(waiting.id, None)
    round_.changes.jobs[job.id] = job
    state.unsettled = True
    return True


def on_release_job(state: State, command: ReleaseJob, round_: Round) -> bool:
    """Let a held job start again, in its old place in the queue; the reply is whether it was held."""
    job = whole_job(state, command.job_id, round_, "held and released")
    if job.held_by is None:
        return False
    job.held_by = job.status_reason = None
    for waiting in _recorded(state, job):
        if waiting.state is RUNNABLE:
            state.backlog.add(waiting, returns=True)
    if job.is_array:
        table = state.children[job.id]
        if table.waiting:
            state.backlog.add(job, table.waiting, returns=True)
    elif job.state is RUNNABLE:
        state.backlog.add(job, returns=True)
    round_.changes.jobs[job.id] = job
    state.unsettled = True
    return True


def whole_job(state: State, job_id: JobId, round_: Round, treated: str) -> Job:
    """A live job that is not part of another one; `treated` says what is done with it."""
    job = live_job(state, job_id, round_)
    parent = split_node(split_child(job_id)[0])[0]
    if (job is not None and job.parent is not None) or (job is None and parent != job_id):
        if live_job(state, parent, round_) is not None:
            raise Invalid(f"{job_id} is a part of job {parent}, which is {treated} as a whole: name {parent}")
        job = None
    if job is None:
        raise Invalid(f"Job {job_id} has ended or does not exist, so it cannot be {treated}")
    return job


def _recorded(state: State, array: Job) -> list[Job]:
    """The live children of an array that have a record of their own."""
    if not array.is_array:
        return []
    table = state.children[array.id]
    ids = [JobId(f"{array.id}:{index}") for index in range(table.size) if table.recorded[index]]
    return [state.jobs[child] for child in ids if child in state.jobs]
