"""Whether a waiting job that a gate bars is told which: the gates are asked here by counting, not by the scheduler."""

from __future__ import annotations

from tests.simulation.quota_shares import QUOTA_QUEUE, quotas_of
from tests.simulation.store import BrokenPromise
from windfall.control.changes import Changes
from windfall.control.holding import held_by
from windfall.control.snapshots import Offers
from windfall.control.state import State
from windfall.control.why import why
from windfall.jobs.job import Job
from windfall.jobs.states import RUNNABLE
from windfall.scheduling.quota_gate import in_units
from windfall.scheduling.quotas import Quotas, QuotaVerdict

TOKENS, QUOTA = "CONSUMABLE_RESOURCE_TAKEN", "QUOTA_SHARE"


def check_gates_named(state: State, changes: Changes, offers: Offers, now: int) -> None:
    """Every job of the round that waits and is barred says by what."""
    quotas: Quotas | None = None
    for job_id in changes.jobs:
        job = state.jobs.get(job_id)
        if (
            job is None
            or job.state is not RUNNABLE
            or job.is_array
            or job.is_gang
            or job.is_node
            or held_by(state, job)
        ):
            continue
        barred = {TOKENS} if _lacks_tokens(state, job) else set()
        if job.submission.queue == QUOTA_QUEUE.name and QUOTA_QUEUE.name in state.queues:
            quotas = quotas or quotas_of(state)
            share, needs = job.submission.share or "", in_units(job.needs)
            if quotas.verdict(share, needs) is not QuotaVerdict.ADMITTED:
                barred.add(QUOTA)
        answer = why(state, job_id, offers, now) if barred else None
        codes = {code for code, _ in answer.reasons} if answer is not None else barred
        if not barred <= codes:
            raise BrokenPromise(f"barred by {sorted(barred)} and says {answer}: {job.story()}")
        if answer is not None and barred and any("would start now" in one for one in answer.changes):
            raise BrokenPromise(f"barred by {sorted(barred)} and promised a start: {answer}")


def _lacks_tokens(state: State, job: Job) -> bool:
    if job.holds_consumables or job.submission.queue not in state.queues:
        return False
    for name, count in job.submission.consumables:
        resource = state.consumables.get(name)
        if resource is None or resource.total - resource.consumed - resource.in_use < count:
            return True
    return False
