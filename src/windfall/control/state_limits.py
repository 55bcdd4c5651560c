"""The blocked heads of queues: why each cannot start, and how long it may stay so (jobStateTimeLimitActions).

What AWS writes into the statusReason of a job that blocks the head of its queue is looked at every few seconds, with
the scheduler's own explanation. A job that is no longer blocked, or no longer first, loses the text again. The time
counts from when a job became the blocked head for that reason (`Job.blocked_at`, which is stored), so a restart loses
none of it.
"""

from __future__ import annotations

from windfall.control.backlog import scheduling_class_of, shape_of
from windfall.control.events import CancelJob
from windfall.control.round import Round
from windfall.control.snapshots import Offers, make_snapshot
from windfall.control.state import State
from windfall.control.state_changes import emit_blocked
from windfall.jobs.aws_texts import STATE_TIME_LIMIT, AwsReason
from windfall.jobs.ids import JobId, child_id
from windfall.jobs.job import Job
from windfall.scheduling.dispatch_order import dispatch_order
from windfall.scheduling.explain import explain

#: A daemon that has just started may not see all of its capacity yet; nothing is cancelled for lack of it before.
SETTLING_MS = 60_000


def reason_code(text: str | None) -> str:
    """The code that one of AWS's reasons begins with, such as `CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY`."""
    return (text or "").partition(" - ")[0]


#: The reasons that AWS lets a queue of jobs on compute environments act upon.
LIMITED_REASONS = tuple(
    reason_code(reason) for reason in (AwsReason.NO_CAPACITY, AwsReason.MAX_VCPUS, AwsReason.TOO_LARGE)
)


def due_at(state: State, job: Job) -> int | None:
    """When a blocked head is to be cancelled, if its queue has a limit for its reason."""
    queue = state.queues.get(job.submission.queue)
    if queue is None or job.blocked_at is None:
        return None
    code = reason_code(job.status_reason)
    limits_s = [limit.max_time_s for limit in queue.time_limits if limit.reason == code]
    return job.blocked_at + min(limits_s) * 1000 if limits_s else None


def overdue_heads(state: State, now: int) -> list[CancelJob]:
    """Commands that cancel the heads whose time is over; to be asked right after heads were looked at."""
    if now - state.heads_watched_at < SETTLING_MS:
        return []
    commands = []
    for job_id in state.blocked:
        job = state.jobs[job_id]
        due = due_at(state, job)
        if due is None or due > now:
            continue
        commands.append(CancelJob(_head_of(state, job), _words(job)))
        # Of an array this was one child; the next one is the head from now on, and has its own time.
        job.blocked_at = None
    return commands


def _head_of(state: State, job: Job) -> JobId:
    """The job itself, or the child of an array whose turn it is."""
    if not job.is_array:
        return job.id
    index = state.children[job.id].next_at_rest()
    assert index is not None, f"{job.story()} has no child left that waits"
    return child_id(job.id, index)


def _words(job: Job) -> str:
    return f"{STATE_TIME_LIMIT}: {reason_code(job.status_reason)}"


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
