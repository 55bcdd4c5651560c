"""Whether a daemon that began now from the store would know what the one that runs knows.

Compares everything that is derived. Left out is what a restart may forget: what was only seen, and averages, which
tests/simulation/shares.py follows.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.store import BrokenPromise, FakeStore
from windfall.control.rebuild import rebuild
from windfall.control.state import State
from windfall.jobs.ids import JobId

#: Declarations, which must be the very same values.
DECLARED = (
    "environments",
    "queues",
    "definitions",
    "images",
    "policies",
    "quota_shares",
    "consumables",
    "service_environments",
    "service_jobs",
    "schedule_groups",
    "schedules",
    "ticks",
    "machines",
    "last_order",
)


def check_rebuilt(state: State, store: FakeStore) -> None:
    """Right after a commit: the store has all that memory has, in the places where it is looked for."""
    again = rebuild(store.load(), state.rules)
    for name in DECLARED:
        _compare(name, getattr(state, name), getattr(again, name))
    for name, view in VIEWS.items():
        _compare(name, view(state), view(again))
    for job_id, due_at in again.limit_due.items():
        # What is due too early is looked at again; what is due too late is too late.
        if state.limit_due.get(job_id, due_at + 1) > due_at:
            raise BrokenPromise(f"a limit is due at {due_at}, not {state.limit_due.get(job_id)}: {job_id}")


def _compare(name: str, had: Any, has: Any) -> None:
    if had == has:
        return
    if isinstance(had, dict) and isinstance(has, dict):
        keys = [key for key in {**had, **has} if had.get(key) != has.get(key)]
        had, has = {key: had.get(key) for key in keys}, {key: has.get(key) for key in keys}
    raise BrokenPromise(f"after a restart {name} would be {has}, and it was {had}")


def _backlog(state: State) -> dict[Any, Any]:
    return {
        (queue, key): sorted((entry.order, entry.job_id, entry.count) for entry in group)
        for queue, groups in state.backlog.queues.items()
        for key, group in groups.items()
    }


def _occupancy(state: State) -> dict[Any, Any]:
    return {name: dict(use.holds) for name, use in state.occupancy.instances.items() if use.holds}


def _waits(state: State) -> dict[Any, Any]:
    return {
        job_id: (sorted(waits.whole), sorted(waits.n_to_n), waits.sequential)
        for job_id, waits in state.waits.items()
        if waits.whole or waits.n_to_n or waits.sequential
    }


def _dependents(state: State) -> dict[Any, Any]:
    """Without those who wait no more: they are passed over when their turn comes."""
    found = {}
    for awaited, waiting in state.dependents.items():
        live = sorted(one for one in waiting if _waits_for(state, one, awaited))
        if live:
            found[awaited] = live
    return found


def _waits_for(state: State, job_id: JobId, awaited: JobId) -> bool:
    waits = state.waits.get(job_id)
    return waits is not None and awaited in waits.whole | waits.n_to_n


def _open_ticks(state: State) -> dict[Any, Any]:
    return {key: due for key, due in state.calendar_index.open.items() if due}


def _meters(state: State) -> dict[Any, Any]:
    return {
        (meter.queue, meter.share): (meter.jobs, round(meter.held.vcpus, 6), round(meter.held.gpus, 6))
        for meter in state.shares
        if meter.jobs or meter.held.vcpus > 1e-9
    }


VIEWS = {
    "the backlog": _backlog,
    "what is held": _occupancy,
    "the live attempts": lambda state: {token: job.id for token, job in state.attempts.items()},
    "what jobs wait for": _waits,
    "who waits for whom": _dependents,
    "the places that are left to them": lambda state: {
        job.id: job.left_places for job in state.jobs.values() if job.left_places
    },
    "the tokens": lambda state: {name: dict(by) for name, by in state.token_holders.items() if by},
    "the planned due times": lambda state: dict(state.calendar_index.planned),
    "the open ticks": _open_ticks,
    "the runs of ticks": lambda state: dict(state.calendar_index.runs),
    "the shares": _meters,
}
