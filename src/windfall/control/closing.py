"""How an attempt ends and what becomes of its job: done, failed, or RUNNABLE again.

The one place where an end is read. A lost host, and every end within a notice but exit code 0, is an interruption: it
costs a job that keeps checkpoints none of its attempts, and a GPU that falls ill costs nobody one. Neither does an end
for want of GPU memory, if the job is to be tried on a larger GPU then (growing.py).
"""

from __future__ import annotations

from windfall.control.growing import ask_for_more
from windfall.control.instances import let_go_if_left
from windfall.control.lifecycle import finish, make_runnable
from windfall.control.limits import RUN_TIME, WAIT_TIME, budget_reason, reached_while_waiting, watch
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.attempts import (
    EXITED,
    FAILED_TO_START,
    TAKEN_AWAY,
    TIMED_OUT,
    Attempt,
    StopCause,
    host_lost,
)
from windfall.jobs.job import Job
from windfall.jobs.retry import Action, decide
from windfall.jobs.states import FAILED, SUCCEEDED


def close_attempt(state: State, job: Job, attempt: Attempt, at: int, round_: Round, *, lost: bool) -> None:
    """End an attempt, give its place back, and decide what becomes of the job; `lost` when its end is not known."""
    attempt.stopped_at, attempt.doing = at, None
    round_.closed.add(attempt.token)
    attempt.status_reason = _words(attempt, lost=lost)
    del state.attempts[attempt.token]
    state.progress_written.pop(attempt.token, None)
    instance = state.instances.get(attempt.instance)
    if instance is not None:
        state.occupancy.give_back(attempt.token, instance, round_.now)
        let_go_if_left(state, instance, round_)
    state.unsettled = True
    _decide(state, job, attempt, round_)


def _words(attempt: Attempt, *, lost: bool) -> str:
    if attempt.stop_cause is StopCause.TIMED_OUT:
        return TIMED_OUT
    if lost or (attempt.stop_cause in TAKEN_AWAY and not attempt.succeeded):
        return host_lost(attempt.instance)
    return FAILED_TO_START if attempt.started_at is None else EXITED


def _decide(state: State, job: Job, attempt: Attempt, round_: Round) -> None:
    stopped = {
        StopCause.TERMINATED: job.stop_reason,
        StopCause.TIMED_OUT: TIMED_OUT,
        StopCause.RUN_TIME: RUN_TIME,
        StopCause.WAIT_TIME: WAIT_TIME,
    }
    if attempt.stop_cause in stopped:
        finish(state, job, FAILED, stopped[attempt.stop_cause], round_)
    elif attempt.succeeded:
        finish(state, job, SUCCEEDED, attempt.status_reason, round_)
    elif attempt.stop_cause is StopCause.BUDGET:
        finish(state, job, FAILED, budget_reason(job), round_)
    elif job.outgrew(attempt) and (reason := ask_for_more(state, job, attempt)) is not None:
        finish(state, job, FAILED, reason, round_)
    elif not job.outgrew(attempt) and not _tried_again(job, attempt):
        finish(state, job, FAILED, attempt.status_reason, round_)
    elif (reason := reached_while_waiting(state, job, round_.now)) is not None:
        finish(state, job, FAILED, reason, round_)
    else:
        job.status_reason = attempt.status_reason
        make_runnable(state, job, round_)
        watch(state, job)


def _tried_again(job: Job, attempt: Attempt) -> bool:
    if not attempt.interrupted:
        outcome = (attempt.status_reason, attempt.reason, attempt.exit_code)
        return decide(job.submission.retry, job.charged_attempts, *outcome) is Action.RETRY
    if job.submission.free_interruptions or attempt.moved:
        return True
    # A host that is gone says nothing of the process: rules about it do not match, as on AWS.
    outcome = (attempt.status_reason, None, None)
    return decide(job.submission.retry, job.charged_attempts, *outcome) is Action.RETRY
