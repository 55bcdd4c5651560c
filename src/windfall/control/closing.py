"""How an attempt ends and what becomes of its job: done, failed, or RUNNABLE again.

The one place where an end is read. A lost host, and every end within a notice but exit code 0, is an interruption: it
costs a job that keeps checkpoints none of its attempts, and a GPU that falls ill costs nobody one. Neither does a place
that a job leaves to another of its own queue, until that has happened too often, nor an end for lack of GPU memory, if
the job is to be tried on a larger GPU then (growing.py).
"""

from __future__ import annotations

from windfall.control import share_use
from windfall.control.gangs import end_of_peers, gang_of, hold_back, members, nodes_of
from windfall.control.growing import ask_for_more
from windfall.control.instances import let_go_if_left
from windfall.control.interrupting import ask_to_stop, give_notice
from windfall.control.job_deadlines import reconsider
from windfall.control.lengths import note_length
from windfall.control.lifecycle import finish, make_runnable
from windfall.control.limits import end_at_limit, reached_while_waiting, watch
from windfall.control.round import Round
from windfall.control.standby import pass_on
from windfall.control.state import State
from windfall.jobs.attempts import PREEMPTIONS, TAKEN_AWAY, Attempt, StopCause
from windfall.jobs.aws_texts import EXITED, FAILED_TO_START, TIMED_OUT, host_lost
from windfall.jobs.job import Job
from windfall.jobs.retry import Action, decide
from windfall.jobs.states import FAILED, SUCCEEDED


def close_attempt(state: State, job: Job, attempt: Attempt, at: int, round_: Round, *, lost: bool) -> None:
    """End an attempt, give its place back, and decide what becomes of the job; `lost` when its end is not known."""
    _end(state, job, attempt, at, round_, lost=lost)
    nodes = job.submission.nodes
    if nodes is not None and nodes.peers:
        _peer_ended(state, job, attempt, round_)
    elif job.is_gang:
        _main_ended(state, job, attempt, at, round_)
    elif job.is_node:
        _node_ended(state, job, attempt, round_)
    else:
        _decide(state, job, attempt, round_)


def _end(state: State, job: Job, attempt: Attempt, at: int, round_: Round, *, lost: bool) -> None:
    attempt.stopped_at, attempt.doing = at, None
    round_.closed.add(attempt.token)
    attempt.status_reason = _words(attempt, lost=lost)
    del state.attempts[attempt.token]
    share_use.ended(state, job, round_)
    state.progress_written.pop(attempt.token, None)
    instance = state.instances.get(attempt.instance)
    if instance is not None:
        state.occupancy.give_back(attempt.token, instance, round_.now)
    pass_on(state, attempt, round_)
    if instance is not None:
        let_go_if_left(state, instance, round_)
    note_length(state, job, attempt)
    round_.changes.jobs[job.id] = job
    state.unsettled = True


def _main_ended(state: State, gang: Job, attempt: Attempt, at: int, round_: Round) -> None:
    """The main node has ended: the others are stopped, and when the last of them has, the job is decided."""
    hold_back(state, gang)
    for node in nodes_of(state, gang):
        if node.attempt is None:
            continue
        if attempt.started_at is None:  # Then nobody was asked to start it.
            _end(state, node, node.attempt, at, round_, lost=False)
        elif node.attempt.stop_cause is None:
            ask_to_stop(state, [node], StopCause.MAIN_ENDED, round_)
    _decide_if_over(state, gang, round_)


def _node_ended(state: State, node: Job, attempt: Attempt, round_: Round) -> None:
    """Another node has ended: that moves nothing while the main one runs, unless its place was taken away."""
    gang = gang_of(state, node)
    main = gang.attempt
    if main is None:
        _decide_if_over(state, gang, round_)
    elif not attempt.interrupted or main.stop_cause is not None:
        return
    elif node.submission.replaces_lost_nodes:
        node.status_reason = attempt.status_reason
        make_runnable(state, node, round_)
    else:
        deadline_at = round_.now + int(state.rules.notice_s * 1000)
        words = f"node {node.node} has lost its place on {attempt.instance}"
        give_notice(state, gang, deadline_at, words, round_)


def _peer_ended(state: State, job: Job, attempt: Attempt, round_: Round) -> None:
    """A node has ended whose gang needs all of them: unless it has done its part, none can go on without it."""
    gang = gang_of(state, job)
    others = [member for member in members(state, gang) if member.attempt is not None]
    if attempt.interrupted:
        deadline_at = round_.now + int(state.rules.notice_s * 1000)
        words = attempt.stop_words or f"node {job.node} has lost its place on {attempt.instance}"
        give_notice(state, gang, deadline_at, words, round_)
    elif not attempt.succeeded:
        unasked = [
            member for member in others if member.attempt is not None and member.attempt.stop_cause is None
        ]
        ask_to_stop(state, unasked, StopCause.PEER_FAILED, round_)
    if others:
        watch(state, gang)
    else:
        gang.gang_ends.append(end_of_peers(state, gang))
        round_.changes.jobs[gang.id] = gang
        _decide(state, gang, gang.tries[-1], round_)


def _decide_if_over(state: State, gang: Job, round_: Round) -> None:
    if all(member.attempt is None for member in members(state, gang)):
        _decide(state, gang, gang.attempts[-1], round_)


def _words(attempt: Attempt, *, lost: bool) -> str:
    if attempt.stop_cause is StopCause.TIMED_OUT:
        return TIMED_OUT
    if lost or (attempt.stop_cause in TAKEN_AWAY and not attempt.succeeded):
        preempted = None if lost or attempt.stop_cause is None else PREEMPTIONS.get(attempt.stop_cause)
        return preempted or host_lost(attempt.instance)
    return FAILED_TO_START if attempt.started_at is None else EXITED


def _decide(state: State, job: Job, attempt: Attempt, round_: Round) -> None:
    cause = attempt.stop_cause
    if cause is StopCause.TERMINATED:
        finish(state, job, FAILED, job.stop_reason, round_)
    elif cause is StopCause.TIMED_OUT:
        finish(state, job, FAILED, TIMED_OUT, round_)
    elif cause is StopCause.RUN_TIME or cause is StopCause.WAIT_TIME:
        end_at_limit(state, job, cause, round_)
    elif attempt.succeeded:
        finish(state, job, SUCCEEDED, attempt.status_reason, round_)
    elif job.terminated:  # while the last nodes of a gang were being stopped
        finish(state, job, FAILED, job.stop_reason, round_)
    elif cause is StopCause.BUDGET:
        end_at_limit(state, job, cause, round_)
    elif attempt.is_unstored and not attempt.interrupted:
        # Its work is done: another try would do it again, and is not stored either.
        finish(state, job, FAILED, attempt.status_reason, round_)
    elif job.outgrew(attempt) and (reason := ask_for_more(state, job, attempt)) is not None:
        finish(state, job, FAILED, reason, round_)
    elif not job.outgrew(attempt) and not _tried_again(job, attempt):
        finish(state, job, FAILED, attempt.status_reason, round_)
    elif (limit := reached_while_waiting(state, job, round_.now)) is not None:
        end_at_limit(state, job, limit, round_)
    else:
        job.status_reason = None if attempt.given_back else attempt.status_reason
        make_runnable(state, job, round_)
        watch(state, job)
        reconsider(state, job, round_)


def _tried_again(job: Job, attempt: Attempt) -> bool:
    if attempt.given_back and not attempt.preempted:
        return True
    if not attempt.interrupted:
        outcome = (attempt.status_reason, attempt.reason, attempt.exit_code)
        return decide(job.submission.retry, job.charged_attempts, *outcome) is Action.RETRY
    if attempt.preempted:
        return not job.preemptions_exceeded
    if job.submission.free_interruptions or attempt.moved:
        return True
    # A host that is gone says nothing of the process: rules about it do not match, as on AWS.
    outcome = (attempt.status_reason, None, None)
    return decide(job.submission.retry, job.charged_attempts, *outcome) is Action.RETRY
