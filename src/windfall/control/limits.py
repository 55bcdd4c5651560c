"""Limits on a job as a whole, over all its attempts: a training job's times, and what a job may spend.

Each job with such a limit has one entry in a heap, for the next moment at which something may be due; it is worked out
anew whenever an attempt is placed, starts or ends. A job that waits ends at once; one that runs is asked to stop first.
For an array the budget is what each child may spend.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass

from windfall.accounting.ledger import HOUR_MS, spent_usd
from windfall.accounting.prices import price_of
from windfall.control.gangs import current_try, gang_of, hold_back, members
from windfall.control.interrupting import ask_to_stop, give_notice, grace_of
from windfall.control.lifecycle import finish
from windfall.control.round import Round
from windfall.control.state import State
from windfall.jobs.attempts import Attempt, StopCause
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import QueueName
from windfall.jobs.job import Job
from windfall.jobs.resources import Resources
from windfall.jobs.states import FAILED, RUNNABLE


@dataclass(frozen=True, slots=True)
class LimitDeadline:
    """A limit, and when it is reached if nothing changes."""

    at: int
    cause: StopCause


def watch(state: State, job: Job) -> None:
    """Note when the next limit of a job is due, if it has any."""
    submission = job.submission
    if (submission.limits is None and submission.budget_usd is None) or job.is_array:
        return
    job = gang_of(state, job)
    due = next_limit(state, job)
    if due is None:
        state.limit_due.pop(job.id, None)
    elif state.limit_due.get(job.id) != due.at:
        state.limit_due[job.id] = due.at
        heapq.heappush(state.limits, (due.at, job.id))


def next_limit(state: State, job: Job) -> LimitDeadline | None:
    """The limit that a live job reaches first as things are; one that is being stopped reaches none."""
    attempt = current_try(state, job)
    if attempt is not None and (attempt.stop_cause is not None or attempt.exited_at is not None):
        return None
    if attempt is None and job.state is not RUNNABLE:
        return None
    limits = [*_time_limits(job, attempt), *_budget(state, job, attempt)]
    return min(limits, key=lambda due: due.at, default=None)


def end_overdue(state: State, round_: Round) -> None:
    """Stop what has used up its time or its money."""
    while state.limits and state.limits[0][0] <= round_.now:
        at, job_id = heapq.heappop(state.limits)
        if state.limit_due.get(job_id) != at:
            continue
        del state.limit_due[job_id]
        job = state.jobs.get(job_id)
        due = next_limit(state, job) if job is not None else None
        if job is None or due is None:
            continue
        attempt = current_try(state, job)
        if due.at > round_.now:
            watch(state, job)
        elif attempt is None:
            end_at_limit(state, job, due.cause, round_)
        else:
            _stop(state, job, due.cause, round_)


def end_at_limit(state: State, job: Job, cause: StopCause, round_: Round) -> None:
    """End a job for good that has used up its time or its money."""
    job.ended_by = cause
    finish(state, job, FAILED, _reason(state, job, cause), round_)


def check_queue_budget(
    state: State, queue: QueueName, resources: Resources, budget_usd: float | None
) -> None:
    """As `check_budget`, for a job of a queue."""
    of_queue = state.queues[queue].environments if queue in state.queues else ()
    names = [name for name in of_queue if name in state.environments]
    check_budget(state, {state.environments[name].engine for name in names}, resources, budget_usd)


def check_budget(
    state: State, engines: Collection[str | None], resources: Resources, budget_usd: float | None
) -> None:
    """Refuse a budget that could never be reached, because nothing that the job can run on has a price."""
    if budget_usd is None or state.rules.rates.usd_hour(resources) is not None:
        return
    if engines and state.rules.unpriced_engines.issuperset(engines):
        kind = "gpu" if resources.gpus else "vcpu"
        raise Invalid(
            f"windfall:budget-usd needs a price, and what the job would run on has none: start the daemon with"
            f" --usd-{kind}-hour (or set usd_{kind}_hour in windfall.toml), or leave the budget out"
        )


def reached_while_waiting(state: State, job: Job, now: int) -> StopCause | None:
    """The limit by which a job whose attempt has just been closed may not be tried again, if there is one."""
    submission = job.submission
    if submission.limits is None and submission.budget_usd is None:
        return None
    reached = [due for due in (*_time_limits(job, None), *_budget(state, job, None)) if due.at <= now]
    return min(reached, key=lambda due: due.at).cause if reached else None


def _reason(state: State, job: Job, cause: StopCause) -> str:
    """What a job is told that has reached a limit."""
    return _budget_reason(job) if cause is StopCause.BUDGET else state.rules.aws_texts.limit_reached(cause)


def _budget_reason(job: Job) -> str:
    staging = job.submission.staging
    has_checkpoint = staging is not None and staging.checkpoints is not None
    text = f"Budget of ${job.submission.budget_usd:,.2f} spent (windfall:budget-usd)"
    return f"{text}; its last checkpoint is kept" if has_checkpoint else text


def _stop(state: State, job: Job, cause: StopCause, round_: Round) -> None:
    words = _reason(state, job, cause)
    if cause is StopCause.BUDGET:
        deadline_at = round_.now + int(state.rules.notice_s * 1000)
        give_notice(state, job, deadline_at, words, round_, cause=StopCause.BUDGET)
        return
    hold_back(state, job)
    ask_to_stop(state, members(state, job), cause, round_)
    for member in members(state, job):
        if member.attempt is not None:
            member.attempt.stop_words = words
            member.attempt.deadline_at = round_.now + int(grace_of(state, job) * 1000)


def _time_limits(job: Job, attempt: Attempt | None) -> list[LimitDeadline]:
    limits = job.submission.limits
    if limits is None:
        return []
    deadlines = []
    if limits.wait_s is not None:
        deadlines.append(LimitDeadline(job.created_at + limits.wait_s * 1000, StopCause.WAIT_TIME))
    if limits.run_s is not None:
        before = job.tries if attempt is None else job.tries[:-1]
        left_ms = limits.run_s * 1000 - sum(_run_ms(tried) for tried in before)
        if attempt is not None and attempt.started_at is not None:
            deadlines.append(LimitDeadline(attempt.started_at + left_ms, StopCause.RUN_TIME))
        elif left_ms <= 0:
            deadlines.append(LimitDeadline(job.created_at, StopCause.RUN_TIME))
    if limits.pending_s is not None and attempt is None:
        since, waited_ms = job.created_at, 0
        for tried in job.tries:
            waited_ms += max(0, tried.placed_at - since)
            since = tried.stopped_at or tried.placed_at
        at = since + limits.pending_s * 1000 - waited_ms
        deadlines.append(LimitDeadline(at, StopCause.PENDING_TIME))
    return deadlines


def _run_ms(attempt: Attempt) -> int:
    ended_at = attempt.exited_at or attempt.stopped_at
    if attempt.started_at is None or ended_at is None:
        return 0
    return max(0, ended_at - attempt.started_at)


def _budget(state: State, job: Job, attempt: Attempt | None) -> list[LimitDeadline]:
    budget, rates = job.submission.budget_usd, state.rules.rates
    if budget is None:
        return []
    payers = members(state, job)
    # Up to the last change among those who pay: who has ended is counted in full then, and the others go on from there.
    until = max(
        (tried.stopped_at or tried.placed_at for each in payers for tried in each.attempts), default=0
    )
    left_usd = budget - sum(spent_usd(each, rates, until) for each in payers)
    if left_usd <= 0:
        return [LimitDeadline(job.created_at, StopCause.BUDGET)]
    if attempt is None:
        return []
    prices = [
        price_of(current, each.resources, rates) for each in payers if (current := each.attempt) is not None
    ]
    usd_hour = sum(price.paid_usd or 0.0 for price in prices)
    if usd_hour <= 0:
        return []
    # A thousand years are enough: a price of next to nothing must not overflow.
    held_ms = min(left_usd / usd_hour * HOUR_MS, 1000 * 365 * 24 * HOUR_MS)
    return [LimitDeadline(until + int(held_ms), StopCause.BUDGET)]
