"""jobStateTimeLimitActions: how long the head of a queue may be blocked for one reason before it is cancelled.

Decides which heads are due. The time counts from when a job became the blocked head for that reason (`Job.blocked_at`,
which is stored), so a restart loses none of it. Must not know why a head is blocked: control/blocked.py notes that.
"""

from __future__ import annotations

from windfall.control.events import CancelJob
from windfall.control.state import State
from windfall.jobs.aws_texts import STATE_TIME_LIMIT, AwsReason
from windfall.jobs.ids import JobId, child_id
from windfall.jobs.job import Job

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
