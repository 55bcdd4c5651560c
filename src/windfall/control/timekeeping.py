"""What happens because time passes: timeouts, limits, forgetting recent ends, and the small steps of the purge.

Looks only at what is due; the daemon asks `next_due` when to come back.
"""

from __future__ import annotations

import heapq

from windfall.control.calendar import on_calendar
from windfall.control.calendar_declaring import forget_deletions
from windfall.control.changes import Purge
from windfall.control.gangs import hold_back, members
from windfall.control.infrastructure import ask_to_leave
from windfall.control.interrupting import ask_to_stop
from windfall.control.job_deadlines import look_at_deadlines
from windfall.control.limits import end_overdue
from windfall.control.look_ahead import call_back
from windfall.control.round import Round
from windfall.control.service_dispatch import watch_services
from windfall.control.share_use import keep_shares
from windfall.control.state import DAY_MS, RECENT_MS, State
from windfall.jobs.attempts import StopCause

#: How often old jobs are removed, and how many rows at a time: small steps never hold up a round.
PURGE_EVERY_MS = 5_000
PURGE_ROWS = 500
#: What became of a yearly schedule can still be seen when it is due again.
TICK_RETENTION_MS = 400 * DAY_MS
#: A machine that is gone is silent by then.
GONE_MACHINE_MS = 60_000
#: AWS forgets INACTIVE definitions after 180 days.
INACTIVE_DEFINITION_MS = 180 * DAY_MS


def on_time_passed(state: State, round_: Round) -> None:
    """Do all that is due now; waits, reservations and idle instances grow old too, so the scheduler looks again."""
    state.unsettled = state.unsettled or bool(state.instances) or any(state.backlog.queues.values())
    _stop_overdue(state, round_)
    call_back(state, round_)
    end_overdue(state, round_)
    look_at_deadlines(state, round_)
    ask_to_leave(state, round_)
    on_calendar(state, round_)
    watch_services(state, round_)
    state.endpoints_unsettled = bool(state.endpoints)
    _forget_recent(state, round_)
    if round_.now - state.purged_at >= PURGE_EVERY_MS:
        state.purged_at = round_.now
        keep_shares(state, round_)
        forget_deletions(state, round_)
        round_.changes.purge = Purge(
            round_.now - state.rules.retention_ms, PURGE_ROWS, round_.now - TICK_RETENTION_MS
        )
        _drop_old_definitions(state, round_)


def next_due(state: State) -> int | None:
    """When the next timeout, limit, budget, schedule or tick is due, if any."""
    heads = [heap[0][0] for heap in (state.deadlines, state.limits) if heap]
    if (calendar_at := state.calendar_index.next_at()) is not None:
        heads.append(calendar_at)
    return min(heads, default=None)


def _stop_overdue(state: State, round_: Round) -> None:
    while state.deadlines and state.deadlines[0][0] <= round_.now:
        _, token = heapq.heappop(state.deadlines)
        job = state.attempts.get(token)
        attempt = job.attempt if job is not None else None
        if job is None or attempt is None or attempt.stop_cause is not None:
            continue
        hold_back(state, job)
        ask_to_stop(state, members(state, job), StopCause.TIMED_OUT, round_)


def _forget_recent(state: State, round_: Round) -> None:
    now = round_.now
    for job in state.left_places.forget(now):
        if job.id in state.jobs:
            round_.changes.jobs[job.id] = job
    for machine, gone_at in list(state.gone_machines.items()):
        if now - gone_at >= GONE_MACHINE_MS:
            del state.gone_machines[machine]
    for job_id, end in list(state.finished.items()):
        if now - end.at < RECENT_MS:
            return
        del state.finished[job_id]


def _drop_old_definitions(state: State, round_: Round) -> None:
    old = [
        definition
        for revisions in state.definitions.values()
        for definition in revisions.values()
        if definition.deregistered_at is not None
        and round_.now - definition.deregistered_at > INACTIVE_DEFINITION_MS
    ]
    if not old:
        return
    needed = {job.submission.definition for job in state.jobs.values()}
    # The latest revision stays: without it, its number would be given again.
    needed |= {revisions[max(revisions)].key for revisions in state.definitions.values() if revisions}
    for definition in old:
        if definition.key not in needed:
            del state.definitions[definition.name][definition.revision]
            round_.changes.definitions[definition.key] = None
