"""The moves of a job that several handlers share: becoming RUNNABLE, finishing, and what follows from an end.

An end travels: to the array it is a child of, to the children that wait for it (SEQUENTIAL, N_TO_N), to the jobs that
depend on it. `settle` carries it with a work list. Must not know why a job ended, only how.
"""

from __future__ import annotations

from windfall.control import share_use
from windfall.control.calendar_runs import note_end
from windfall.control.consumables import give_back_tokens
from windfall.control.events import FinishedJob
from windfall.control.gangs import nodes_of, outcome, return_nodes
from windfall.control.holding import let_wait
from windfall.control.round import NewlyFinished, Round
from windfall.control.state import RecentEnd, State, Waits
from windfall.control.state_changes import tell_of
from windfall.jobs.arrays import ChildTable, state_of_code
from windfall.jobs.aws_texts import CHILD_FAILED, DEPENDENCY_FAILED
from windfall.jobs.ids import JobId, child_id
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED, PENDING, RUNNABLE, SUCCEEDED, JobState


def make_runnable(state: State, job: Job, round_: Round) -> None:
    """Let a job (or all resting children of an array) wait for a place."""
    if not job.order:
        job.order = state.next_order()
        job.runnable_at = round_.now
    if job.is_array:
        table = state.children[job.id]
        _move_rest(table, job, RUNNABLE)
        if table.resting:
            let_wait(state, job, table.resting)
    else:
        job.move(RUNNABLE)
        note_child(state, job, round_)
        if job.is_gang:
            return_nodes(state, job, round_)
        let_wait(state, job)
    round_.changes.jobs[job.id] = job
    state.unsettled = True


def _move_rest(
    table: ChildTable, array: Job, new: JobState, reason: str | None = None, at: int | None = None
) -> None:
    """Move all children at rest, in the table and in the array's record."""
    table.move_rest(new, reason, at)
    array.rest, array.rest_reason, array.rest_at = table.rest, table.rest_reason, table.rest_at


def touch(state: State, job_id: JobId, round_: Round) -> None:
    """Have an array written again at the end of the round, with its new summary."""
    round_.changes.jobs[job_id] = state.jobs[job_id]


def note_child(state: State, job: Job, round_: Round) -> None:
    """Have the array of a child know the child's state; other jobs have none."""
    if job.parent in state.children and job.index is not None:
        state.children[job.parent].move(job.index, job.state)
        touch(state, job.parent, round_)


def finish(state: State, job: Job, new: JobState, reason: str | None, round_: Round) -> None:
    """End a job for good, with all its nodes if it has some; its dependants are told by `settle`."""
    if job.is_gang:
        for node in nodes_of(state, job):
            last = node.attempts[-1] if node.attempts and node.state is not RUNNABLE else None
            finish(state, node, outcome(node, new), reason if last is None else last.status_reason, round_)
        job.gang_number = None
    state.backlog.remove(job)
    give_back_tokens(state, job, round_)
    share_use.left(state, job, round_)
    job.move(new)
    job.status_reason = reason
    job.stopped_at = _stopped_at(job, round_)
    round_.changes.jobs[job.id] = job
    del state.jobs[job.id]
    note_end(state, job, round_)
    state.waits.pop(job.id, None)
    state.reservations.pop(job.id, None)
    state.limit_due.pop(job.id, None)
    table = state.children.pop(job.id, None)
    if table is not None:
        job.summary, job.summary_at = table.summary(), round_.now
    if job.parent is None:
        children = bytes(table.states) if table else None
        finished = FinishedJob(job.id, new, job.submission.array_size, children)
        state.finished[job.id] = RecentEnd(round_.now, finished, job.submission.submitter.tenant)
    else:
        note_child(state, job, round_)
    round_.ended.append(NewlyFinished(job.id, new is SUCCEEDED, job.parent, job.index))


def _stopped_at(job: Job, round_: Round) -> int:
    """When a job ended: with its last attempt where that has ended it, as on AWS, and else now.

    A multi-node job ends when the last of its nodes has, whichever that is.
    """
    last = job.attempts[-1] if job.attempts and not job.is_gang else None
    if last is None or last.token not in round_.closed:
        return round_.now
    return last.stopped_at or round_.now


def recorded_child(state: State, array: Job, index: int, round_: Round) -> Job:
    """A child's own record, made if it was at rest until now."""
    existing = state.jobs.get(child_id(array.id, index))
    if existing is not None:
        return existing
    table = state.children[array.id]
    child = Job(
        child_id(array.id, index),
        array.submission,
        table.state(index),
        array.created_at,
        parent=array.id,
        index=index,
        order=array.order if table.rest is RUNNABLE else 0,
        runnable_at=array.runnable_at if table.rest is RUNNABLE else None,
    )
    tell_of(state, child)
    table.move(index, child.state)
    state.jobs[child.id] = round_.changes.jobs[child.id] = child
    touch(state, array.id, round_)
    return child


def end_rest(state: State, array: Job, reason: str, round_: Round) -> None:
    """Fail all children of an array that are still at rest, at once."""
    table = state.children[array.id]
    indices = list(table.at_rest())
    state.backlog.remove(array)
    _move_rest(table, array, FAILED, reason, round_.now)
    touch(state, array.id, round_)
    if state.dependents:
        round_.ended.extend(
            NewlyFinished(child_id(array.id, index), succeeded=False, parent=array.id, index=index)
            for index in indices
        )
    _finish_array_if_done(state, array, round_)


def settle(state: State, round_: Round) -> None:
    """Carry every end to the jobs that wait for it, until nothing moves any more."""
    while round_.ended:
        ended = round_.ended.popleft()
        if ended.parent is not None and ended.index is not None:
            _child_ended(state, ended.parent, ended.index, ended.succeeded, round_)
        for dependent in state.dependents.pop(ended.id, ()):
            _dependency_ended(state, dependent, ended, round_)


def _child_ended(state: State, parent: JobId, index: int, succeeded: bool, round_: Round) -> None:
    for dependent in state.dependents.get(parent, ()):
        waits = state.waits.get(dependent)
        if waits is not None and parent in waits.n_to_n:
            consider_child(state, state.jobs[dependent], index, round_)
    array = state.jobs.get(parent)
    if array is None:
        return
    own = state.waits.get(parent)
    if own is not None and own.sequential:
        table = state.children[parent]
        first = table.next_at_rest()
        # Only when nothing at rest comes before it: a child ended out of turn takes its successors alone.
        if not succeeded and table.rest is not FAILED and first is not None and first > index:
            end_rest(state, array, DEPENDENCY_FAILED, round_)
            return
        if index + 1 < table.size:
            consider_child(state, array, index + 1, round_)
    _finish_array_if_done(state, array, round_)


def _finish_array_if_done(state: State, array: Job, round_: Round) -> None:
    table = state.children.get(array.id)
    if table is None or not table.finished:
        return
    if not table.failed:
        finish(state, array, SUCCEEDED, None, round_)
    elif table.rest is FAILED and table.rest_reason and table.resting == table.size:
        finish(state, array, FAILED, table.rest_reason, round_)
    else:
        finish(state, array, FAILED, array.stop_reason or CHILD_FAILED, round_)


def _dependency_ended(state: State, dependent: JobId, ended: NewlyFinished, round_: Round) -> None:
    job, waits = state.jobs.get(dependent), state.waits.get(dependent)
    if job is None or waits is None:
        return
    waits.n_to_n.discard(ended.id)
    if ended.id not in waits.whole:
        return
    waits.whole.discard(ended.id)
    if not ended.succeeded:
        fail_waiting(state, job, job.stop_reason or DEPENDENCY_FAILED, round_)
    elif not waits.whole:
        dependencies_met(state, job, waits, round_)


def fail_waiting(state: State, job: Job, reason: str, round_: Round) -> None:
    """Fail a job that has never been RUNNABLE (an array with all its resting children)."""
    if job.is_array:
        end_rest(state, job, reason, round_)
    else:
        finish(state, job, FAILED, reason, round_)


def dependencies_met(state: State, job: Job, waits: Waits, round_: Round) -> None:
    """All jobs it waited for as a whole have succeeded: go on, unless it was cancelled meanwhile."""
    if job.cancelled:
        fail_waiting(state, job, job.stop_reason or "Cancelled", round_)
    elif not waits.by_child:
        del state.waits[job.id]
        make_runnable(state, job, round_)
    else:
        for index in list(state.children[job.id].at_rest()):
            if job.id not in state.jobs:
                return
            consider_child(state, job, index, round_)
            if waits.sequential and not waits.n_to_n:
                return  # the others wait for this one anyway; with N_TO_N, some may have failed already


def _state_of_child(state: State, array: JobId, index: int) -> JobState:
    """A child's state in an array that is live, or has ended in this very round."""
    table = state.children.get(array)
    if table is not None:
        return table.state(index)
    children = state.finished[array].job.children
    assert children is not None, f"{array} is not an array, and cannot gate another one"
    return state_of_code(children[index])


def fail_child(state: State, array: Job, index: int, round_: Round) -> None:
    """Fail one resting child for what it waited for."""
    finish(state, recorded_child(state, array, index, round_), FAILED, DEPENDENCY_FAILED, round_)


def consider_child(state: State, array: Job, index: int, round_: Round) -> None:
    """Release or fail one resting child of such an array, if what it waits for is decided."""
    table, waits = state.children[array.id], state.waits[array.id]
    if table.recorded[index] or table.rest is not PENDING:
        return
    before = [_state_of_child(state, array_id, index) for array_id in waits.n_to_n]
    if waits.sequential and index > 0:
        before.append(table.state(index - 1))
    if FAILED in before:
        fail_child(state, array, index, round_)
    elif not waits.whole and all(state_before is SUCCEEDED for state_before in before):
        make_runnable(state, recorded_child(state, array, index, round_), round_)
