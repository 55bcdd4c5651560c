"""Changing a job's priority within its share, and what that does to its turn.

A priority counts among the jobs of one share, so only jobs of queues with a scheduling policy have one. A job that
waits keeps its order of arrival among jobs of its new priority. One that runs goes on; its priority counts when a more
urgent job of its share needs its place, and for its next attempt. The newest changes are stored with the job. Must not
know who may change what: ownership.py does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from windfall.control.backlog import scheduling_class_of
from windfall.control.commands.turns import SetPriority
from windfall.control.holding import whole_job
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.errors import Invalid
from windfall.jobs.job import Job, PriorityChange
from windfall.scheduling.dispatch_order import jobs_ahead
from windfall.scheduling.snapshot import QueueView

PRIORITY_MAX = 9999
#: How many changes of its priority are stored with a job.
CHANGES_MAX = 20


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a job stands among the waiting jobs of its share, and where it would with another priority."""

    share: str
    priority: int
    #: How many jobs have their turn before it; None where it does not wait for a place.
    ahead: int | None
    ahead_then: int | None


def turn_with(state: State, job: Job, priority: int) -> Turn:
    """What another priority would change, with nothing changed; Invalid where a job can have none."""
    share = _share_of(job)
    _check(priority)
    waiting = state.backlog.find(job)
    queue = state.queues.get(job.submission.queue)
    if waiting is None or queue is None:
        return Turn(share, job.submission.priority, None, None)
    view, now = QueueView(queue, state.backlog.groups(queue.name)), scheduling_class_of(job)
    then = replace(now, priority=priority)
    return Turn(share, now.priority, jobs_ahead(view, waiting, now), jobs_ahead(view, waiting, then))


def on_set_priority(state: State, command: SetPriority, round_: Round) -> bool:
    """Give a live job another priority; the reply is whether it was another one before."""
    job = whole_job(state, command.job_id, round_, "given another priority")
    _share_of(job)
    _check(command.priority)
    was = job.submission.priority
    if was == command.priority:
        return False
    submission = replace(job.submission, priority=command.priority)
    for part in [job, *(part for part in state.jobs.values() if part.parent == job.id)]:
        # The group that it waits in has the priority in its name.
        waiting = state.backlog.find(part)
        state.backlog.remove(part)
        part.submission = submission
        if waiting is not None:
            state.backlog.add(part, waiting.count, returns=True)
    change = PriorityChange(round_.now, command.by, was, command.priority)
    job.priority_changes = (*job.priority_changes, change)[-CHANGES_MAX:]
    round_.changes.jobs[job.id] = job
    state.unsettled = True
    return True


def _share_of(job: Job) -> str:
    share = job.submission.share
    if share is None:
        raise Invalid(
            f"Job {job.id} is in no share of queue {job.submission.queue}, and a priority counts among the jobs of a"
            " share. Without one, jobs go in the order in which they came: hold those before it with `windfall hold`,"
            " or submit it to a queue with a scheduling policy"
        )
    return share


def _check(priority: int) -> None:
    if not 0 <= priority <= PRIORITY_MAX:
        raise Invalid(f"priority must be from 0 to {PRIORITY_MAX}, not {priority}; the higher goes first")
