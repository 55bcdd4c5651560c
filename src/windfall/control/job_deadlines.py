"""Jobs that are to be done by a time: which capacity each may use now, and when it moves to another kind.

A job's slack is measured when it is looked at; the scheduler hears only its class (spot, or on demand), so that a tick
costs what it did. Each such job has one entry in a heap. deadlines/ decides; this measures, and acts.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from math import ceil, log2

from windfall.capacity.environments import RECLAIMABLE
from windfall.capacity.machines import InstanceState
from windfall.control.holding import held_by
from windfall.control.interrupting import give_notice
from windfall.control.round import Round
from windfall.control.state import SpotPool, State
from windfall.deadlines.market import state_of
from windfall.deadlines.policy import (
    DecidedBy,
    Decision,
    JobMode,
    Situation,
    cost_of_deadline,
    decide,
    decide_steadily,
    slack_for_spot,
)
from windfall.deadlines.solving import PolicyTerms, SpotAction
from windfall.jobs.attempts import Attempt, Market, StopCause
from windfall.jobs.errors import Invalid
from windfall.jobs.ids import EnvironmentName, QueueName
from windfall.jobs.job import Job, JobDeadline
from windfall.jobs.pace import WorkLeft, left_by_steps
from windfall.jobs.states import RUNNABLE
from windfall.scheduling.wording import utc

#: Decisions are made this often at most and at least; between them, so that a table covers the whole job.
_LEAST_TICK_S, _MOST_TICK_S, _TICKS = 1.0, 600.0, 288
#: A job that is too late already has no decision left that could not wait for this long.
_LATE_TICK_S = 60.0
#: Looks at jobs in one round, about 40 ms: the rest is due still, and other events get their turn between.
LOOKS_OF_A_ROUND = 2_000
#: The shield counts with more than the longest changeover that was measured; without any, with twice the usual.
_MARGIN, _UNMEASURED = 1.5, 2.0
#: Work that takes longer than was said goes on; this part of it is expected to be left.
_ALWAYS_LEFT = 0.1
#: What spot capacity costs where nobody says, as a part of the price on demand.
USUAL_SPOT_PRICE = 0.3


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a job stands to its deadline, in seconds."""

    work_s: float
    slack_s: float
    terms: PolicyTerms
    situation: Situation
    decision: Decision


def check_deadline(
    state: State, queue: QueueName, deadline: JobDeadline, learnt_s: float | None, now: int
) -> None:
    """Refuse a deadline that cannot be kept, with the earliest one that can."""
    if set(_kinds(state, queue).values()) == {True}:
        raise Invalid(
            "windfall:deadline needs a queue with an on-demand compute environment, and this one has only SPOT:"
            " capacity that may not come cannot keep a deadline. Add one to the queue, or omit the deadline"
        )
    work_s = deadline.work_s if deadline.work_s is not None else learnt_s
    if work_s is None:
        raise Invalid(
            "windfall:deadline needs to know how long the job works: no earlier run of its definition in this queue has"
            " ended since the daemon started. Say it with windfall:work, such as 6h"
        )
    shield_s = state.rules.changeover_s * _UNMEASURED
    earliest = now + int((work_s + shield_s) * 1000)
    if deadline.at < earliest:
        raise Invalid(
            f"The deadline {utc(deadline.at)} cannot be kept: {said(work_s)} of work, and {said(shield_s)} to get a"
            f" place. The earliest one that can is {utc(earliest)}"
        )


def learnt_work_s(state: State, queue: QueueName, definition: str) -> float | None:
    """How long earlier runs of a definition took, in seconds."""
    length = state.lengths.get((queue, definition))
    return None if length is None else length / 1000


def watch_deadline(state: State, job: Job, at: int) -> None:
    """Look at a job again at some time, if it has a deadline."""
    if job.submission.deadline is not None and state.deadline_looks.get(job.id) != at:
        state.deadline_looks[job.id] = at
        heapq.heappush(state.deadline_heap, (at, job.id))


def look_at_deadlines(state: State, round_: Round) -> None:
    """Decide anew for the jobs that are due to be looked at."""
    looks = 0
    while looks < LOOKS_OF_A_ROUND and state.deadline_heap and state.deadline_heap[0][0] <= round_.now:
        at, job_id = heapq.heappop(state.deadline_heap)
        if state.deadline_looks.get(job_id) != at:
            continue
        looks += 1
        del state.deadline_looks[job_id]
        job = state.jobs.get(job_id)
        if job is not None:
            reconsider(state, job, round_)


def reconsider(state: State, job: Job, round_: Round) -> None:
    """Choose the capacity for a job, and move it if it runs elsewhere and a move is better."""
    see_pool(state, job.submission.queue, round_.now)
    outlook = outlook_of(state, job, round_.now)
    if outlook is None:
        return
    again_s = outlook.terms.tick_s if outlook.slack_s >= 0 else max(outlook.terms.tick_s, _LATE_TICK_S)
    watch_deadline(state, job, round_.now + int(again_s * 1000))
    target = _target(outlook) if _has_both(state, job.submission.queue) else None
    if job.market is target:
        return
    attempt = job.attempt
    if attempt is None:
        waits = state.backlog.find(job) is not None
        state.backlog.remove(job)
        job.market = target
        if waits or (job.state is RUNNABLE and held_by(state, job) is None):
            state.backlog.add(job, returns=True)
    elif attempt.stop_cause is not None or attempt.exited_at is not None:
        return  # It is decided when the attempt has ended.
    else:
        job.market = target
        if target is not None and attempt.market is not target and job.submission.free_interruptions:
            deadline_at = round_.now + int(state.rules.notice_s * 1000)
            give_notice(*(state, job, deadline_at, _words(outlook, target), round_), cause=StopCause.MIGRATED)
    round_.changes.jobs[job.id] = job
    state.unsettled = True


def outlook_of(state: State, job: Job, now: int) -> Outlook | None:
    """How a live job stands to its deadline, and what is best for it; None without a deadline."""
    deadline = job.submission.deadline
    if deadline is None or job.finished:
        return None
    left = _work_left(state, job, deadline, now)
    work_s = left.seconds
    slack_s = (deadline.at - now) / 1000 - work_s
    terms = _terms(state, job, deadline)
    pool = state.spot_pools.get(job.submission.queue, SpotPool(up=True, since=now))
    market_state = state_of(
        up=pool.up,
        seconds=(now - pool.since) / 1000,
        last_up_s=pool.last_up_s,
        last_down_s=pool.last_down_s,
    )
    # Looks come a little later than they are due, so it may be gone at the one after the next.
    is_longer = not left.sure and work_s <= _total_s(state, job, deadline) * _ALWAYS_LEFT
    shrinks_s = 2 * terms.tick_s if is_longer else 0.0
    situation = Situation(work_s, slack_s, _mode(job.attempt), market_state, shrinks_s)
    table = state.rules.policy_tables(terms)
    if table is not None:
        decision = decide(table, situation)
    else:
        decision = decide_steadily(terms, situation, _lead_s(job, deadline, work_s, now))
    return Outlook(work_s, slack_s, terms, situation, decision)


def _work_left(state: State, job: Job, deadline: JobDeadline, now: int) -> WorkLeft:
    """The work that is left: by the steps that the job counts, else what was said or learnt, less what was done."""
    total_s = _total_s(state, job, deadline)
    done_ms = sum(worked_ms(attempt, now) for attempt in job.attempts)
    guess_s = max(total_s - done_ms / 1000, total_s * _ALWAYS_LEFT)
    counted = left_by_steps(job.attempts, now)
    if counted is not None and counted.sure:
        return counted
    return WorkLeft(max(guess_s, 0.0 if counted is None else counted.seconds), sure=False)


def _total_s(state: State, job: Job, deadline: JobDeadline) -> float:
    return deadline.work_s or learnt_work_s(state, job.submission.queue, job.submission.definition) or 0.0


def worked_ms(attempt: Attempt, now: int) -> int:
    """What an attempt has done that is not lost: until its last checkpoint, and all of it while it runs."""
    if attempt.started_at is None:
        return 0
    if attempt.stopped_at is None:
        return max(0, (attempt.exited_at or now) - attempt.started_at)
    saved = attempt.checkpoint
    return 0 if saved is None else max(0, saved.state_at - attempt.started_at)


def _terms(state: State, job: Job, deadline: JobDeadline) -> PolicyTerms:
    measured = [
        (attempt.started_at - attempt.placed_at) / 1000
        for attempt in job.attempts
        if attempt.started_at is not None
    ]
    usual = state.rules.changeover_s
    changeover_s = max(1.0, sum(measured) / len(measured)) if measured else usual
    shield_s = max(measured) * _MARGIN + usual * (_UNMEASURED - _MARGIN) if measured else usual * _UNMEASURED
    window_s = (deadline.at - job.created_at) / 1000
    # A power of two, so that few tables serve all jobs.
    tick_s = min(_MOST_TICK_S, 2.0 ** ceil(log2(max(_LEAST_TICK_S, window_s / _TICKS))))
    return PolicyTerms(
        changeover_s=changeover_s,
        shield_s=max(shield_s, changeover_s),
        spot_price=USUAL_SPOT_PRICE,
        tick_s=tick_s,
    )


def _mode(attempt: Attempt | None) -> JobMode:
    if attempt is None or attempt.stop_cause is not None:
        return JobMode.NONE
    return JobMode.SPOT if attempt.market is Market.SPOT else JobMode.ON_DEMAND


def _lead_s(job: Job, deadline: JobDeadline, work_s: float, now: int) -> float:
    """How far it is ahead of steady progress from its submission to its deadline."""
    total_s = deadline.work_s or work_s
    window_ms = max(1, deadline.at - job.created_at)
    return total_s - work_s - total_s * (now - job.created_at) / window_ms


def _target(outlook: Outlook) -> Market:
    action = outlook.decision.action
    if action is SpotAction.WAIT and outlook.slack_s < slack_for_spot(outlook.terms, outlook.situation):
        return Market.ON_DEMAND  # Spot capacity that comes could not be used any more.
    return Market.ON_DEMAND if action is SpotAction.ON_DEMAND else Market.SPOT


def see_pool(state: State, queue: QueueName, now: int) -> None:
    """Note whether spot capacity of a queue is there, and since when."""
    pool = state.spot_pools.get(queue)
    if pool is not None and pool.seen_at == now:
        return
    up = _is_up(state, queue)
    if pool is None:
        state.spot_pools[queue] = SpotPool(up=up, since=now, seen_at=now)
    elif pool.up is not up:
        lasted_s = (now - pool.since) / 1000
        last_up_s, last_down_s = (lasted_s, pool.last_down_s) if pool.up else (pool.last_up_s, lasted_s)
        state.spot_pools[queue] = SpotPool(
            up=up, since=now, last_up_s=last_up_s, last_down_s=last_down_s, seen_at=now
        )
    else:
        state.spot_pools[queue] = replace(pool, seen_at=now)


def _kinds(state: State, queue: QueueName) -> dict[EnvironmentName, bool]:
    """The environments of a queue, and whether each is spot capacity."""
    declared = state.queues.get(queue)
    return {
        name: state.environments[name].provisioning in RECLAIMABLE
        for name in (declared.environments if declared is not None else ())
        if name in state.environments
    }


def _has_both(state: State, queue: QueueName) -> bool:
    return len(set(_kinds(state, queue).values())) == 2


def _is_up(state: State, queue: QueueName) -> bool:
    names = [name for name, is_spot in _kinds(state, queue).items() if is_spot]
    offered = any(offer.available != 0 for name in names for offer in state.offers.get(name, ()))
    return offered or any(
        instance.environment in names and instance.state is not InstanceState.TERMINATING
        for instance in state.instances.values()
    )


def deadline_reasons(state: State, job: Job, now: int) -> list[tuple[str, str]]:
    """What a deadline decides for a job, with its numbers, for people."""
    outlook = outlook_of(state, job, now)
    deadline = job.submission.deadline
    if outlook is None or deadline is None:
        return []
    left = f"about {said(outlook.work_s)} of work left"
    if outlook.slack_s < 0:
        late = f"expected {said(-outlook.slack_s)} after it"
        return [("deadline_late", f"its deadline {utc(deadline.at)} cannot be kept any more: {left}, {late}")]
    text = f"is to be done by {utc(deadline.at)}: {left}, slack {said(outlook.slack_s)}"
    if not _has_both(state, job.submission.queue):
        return [("deadline", text)]
    said_now = [("deadline", f"{text}; {_words(outlook, _target(outlook))}")]
    table = state.rules.policy_tables(outlook.terms)
    if table is not None:
        hours = cost_of_deadline(table, outlook.situation.state, outlook.work_s, outlook.slack_s)
        cost = f"its deadline costs it about {hours:.1f} hours of on-demand capacity more than none would"
        said_now.append(("deadline_cost", cost))
    return said_now


def _words(outlook: Outlook, target: Market) -> str:
    """What was decided, and by which numbers."""
    terms, by = outlook.terms, outlook.decision.by
    slack, changeover = said(outlook.slack_s), said(terms.shield_s)
    if by is DecidedBy.TOO_LATE:
        return f"{target} now: slack {slack} is less than one changeover of {changeover}, so it may be late"
    is_short = outlook.slack_s < slack_for_spot(terms, outlook.situation)
    if by is DecidedBy.SHIELD or (target is Market.ON_DEMAND and is_short):
        return (
            f"on demand now: slack {slack} is less than two changeovers of {changeover} and a tick of"
            f" {said(terms.tick_s)}"
        )
    if target is Market.ON_DEMAND:
        return "on demand now, because waiting for spot capacity is expected to cost more"
    return f"on spot capacity while slack is more than two changeovers of {changeover}"


def said(seconds: float) -> str:
    """A span of time, for people."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
