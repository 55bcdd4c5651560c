"""What AWS writes into the statusReason of a job that blocks the head of its queue: why it cannot start.

Looked at every few seconds for the first job of each queue that has waiting jobs, with the scheduler's own
explanation. A job that is no longer blocked, or no longer first, loses the text again.
"""

from __future__ import annotations

from windfall.control.backlog import scheduling_class_of, shape_of
from windfall.control.round import Round
from windfall.control.snapshots import Offers, make_snapshot
from windfall.control.state import State
from windfall.control.state_changes import emit_blocked
from windfall.control.state_limits import reason_code
from windfall.jobs.job import Job
from windfall.scheduling.dispatch_order import dispatch_order
from windfall.scheduling.explain import explain

#: A look costs a snapshot and an explanation per queue; nobody needs the answer sooner.
LOOK_EVERY_MS = 5_000


def note_blocked_heads(state: State, offers: Offers, round_: Round) -> bool:
    """Give the head of each queue AWS's reason, where there is one, and take it from those that had it.

    The answer is whether it was time to look.
    """
    nothing_to_say = not state.blocked and not any(state.backlog.queues.values())
    if nothing_to_say or round_.now - state.heads_seen_at < LOOK_EVERY_MS:
        return False
    state.heads_watched_at = state.heads_watched_at or round_.now
    state.heads_seen_at = round_.now
    snapshot = make_snapshot(state, offers, round_.now)
    blocked = {}
    for view in snapshot.queues:
        for job_id, waiting in dispatch_order(view, 1):
            job = state.jobs[job_id]
            reason = explain(
                snapshot, view.queue.name, shape_of(job), waiting, 0, scheduling_class_of(job)
            ).aws_reason
            if reason is not None:
                blocked[job_id] = reason
    for job_id in state.blocked.keys() - blocked.keys():
        former = state.jobs.get(job_id)
        if former is not None and former.status_reason == state.blocked[job_id]:
            _say(former, None, round_)
    for job_id, reason in blocked.items():
        job = state.jobs[job_id]
        if job.status_reason != reason or job.blocked_at is None:
            is_news = job.blocked_at is None or reason_code(job.status_reason) != reason_code(reason)
            _say(job, reason, round_)
            if is_news:
                emit_blocked(state, job, round_)
    state.blocked = blocked
    return True


def _say(job: Job, reason: str | None, round_: Round) -> None:
    if reason is None:
        job.blocked_at = None
    elif job.blocked_at is None or reason_code(job.status_reason) != reason_code(reason):
        job.blocked_at = round_.now
    job.status_reason = reason
    round_.changes.jobs[job.id] = job
