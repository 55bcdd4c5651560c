"""CancelJob and TerminateJob, with AWS's meaning for each state.

Cancel ends what has no place yet and leaves the rest alone; terminate also stops what runs. A PENDING job is only
ended when the jobs it depends on have ended, as on AWS. Finished and unknown jobs are not errors.
"""

from __future__ import annotations

from windfall.control.events import CancelJob, TerminateJob
from windfall.control.gangs import hold_back, members
from windfall.control.holding import held_by, let_wait
from windfall.control.interrupting import ask_to_stop
from windfall.control.lifecycle import end_rest, finish, recorded_child, touch
from windfall.control.ownership import live_job
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.attempts import StopCause
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import JobId, child_id, split_child, split_node
from windfall.jobs.job import Job
from windfall.jobs.states import FAILED, PENDING, PLACED, RUNNABLE, TERMINAL


def on_cancel_job(state: State, command: CancelJob, round_: Round) -> bool:
    """Cancel a job; the reply is whether it was live."""
    job = _find(state, command.job_id, round_)
    if job is None:
        return False
    _stop(state, job, command.reason, round_, terminate=False)
    return True


def on_terminate_job(state: State, command: TerminateJob, round_: Round) -> bool:
    """Terminate a job; the reply is whether it was live."""
    job = _find(state, command.job_id, round_)
    if job is None:
        return False
    _stop(state, job, command.reason, round_, terminate=True)
    return True


def _find(state: State, job_id: JobId, round_: Round) -> Job | None:
    """A live job; a child at rest gets its record, because it now leaves the rest."""
    gang, number = split_node(job_id)
    if number is not None:
        raise Invalid(
            f"{job_id} is one node of a multi-node parallel job, which is stopped as a whole: name job {gang}"
        )
    if (job := live_job(state, job_id, round_)) is not None:
        return job
    parent, index = split_child(job_id)
    array, table = live_job(state, parent, round_), state.children.get(parent)
    if index is None or array is None or table is None:
        return None
    if index >= table.size or table.state(index) in TERMINAL:
        return None
    if table.rest is RUNNABLE and held_by(state, array) is None:
        state.backlog.take(array)
    child = recorded_child(state, array, index, round_)
    if child.state is RUNNABLE:
        let_wait(state, child)
    return child


def _stop(state: State, job: Job, reason: str, round_: Round, *, terminate: bool) -> None:
    if job.is_array:
        _stop_array(state, job, reason, round_, terminate=terminate)
    elif job.state in PLACED:
        if terminate:
            _stop_attempt(state, job, reason, round_)
    elif job.state is RUNNABLE or (job.state is PENDING and not _unmet(state, job)):
        job.cancelled, job.terminated, job.stop_reason = not terminate, terminate, reason
        finish(state, job, FAILED, reason, round_)
    elif not job.cancelled:
        job.cancelled, job.terminated, job.stop_reason = True, terminate, reason
        round_.changes.jobs[job.id] = job


def _unmet(state: State, job: Job) -> bool:
    waits = state.waits.get(job.id)
    return waits is not None and bool(waits.whole)


def _stop_array(state: State, array: Job, reason: str, round_: Round, *, terminate: bool) -> None:
    array.cancelled, array.terminated = array.cancelled or not terminate, array.terminated or terminate
    array.stop_reason = array.stop_reason or reason
    touch(state, array.id, round_)
    if _unmet(state, array):
        array.cancelled = True
        return  # ended by `dependencies_met`
    table = state.children[array.id]
    recorded = [index for index in range(table.size) if table.recorded[index]]
    for index in recorded:
        child = state.jobs.get(child_id(array.id, index))
        if child is not None:
            _stop(state, child, reason, round_, terminate=terminate)
    if table.resting and table.rest not in TERMINAL:
        end_rest(state, array, reason, round_)


def _stop_attempt(state: State, job: Job, reason: str, round_: Round) -> None:
    if job.terminated:
        return
    job.terminated, job.stop_reason = True, reason
    round_.changes.jobs[job.id] = job
    hold_back(state, job)
    ask_to_stop(state, members(state, job), StopCause.TERMINATED, round_)
