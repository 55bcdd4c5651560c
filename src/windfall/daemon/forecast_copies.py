"""What forecasts are made from: the store's records as bytes, values of the loop's memory, and lengths of earlier runs.

Decides which earlier runs are like a job. Must not know what is asked.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

from windfall.control.events import SubmitJob
from windfall.control.ports import JobFilter, Loaded, Store
from windfall.control.snapshots import Offers
from windfall.control.state import State, no_tables
from windfall.daemon.gateway import Gateway
from windfall.jobs.ids import JobId, QueueName
from windfall.jobs.job import Job
from windfall.jobs.states import SUCCEEDED

#: Live records that a forecast is made of at most.
JOBS_MAX = 20_000
#: Earlier runs that are read of one kind of job, and kinds of jobs.
RUNS_READ, KINDS_MAX = 50, 200
#: The definition that all jobs of `windfall run` share: only those of one name are alike.
_OF_RUN = "windfall-run"


async def values_of(gateway: Gateway) -> dict[str, Any] | None:
    """What only memory has, as values: made by the loop, which hands out nothing that it goes on changing.

    None when more jobs are live than are played.
    """

    def look(state: State, offers: Offers, now: int) -> dict[str, Any] | None:
        if len(state.jobs) > JOBS_MAX:
            return None
        return {
            "now": now,
            "rules": replace(state.rules, policy_tables=no_tables, event_destinations=()),
            "offers": {name: tuple(listed) for name, listed in offers.items()},
            "spot_pools": dict(state.spot_pools),
            "tenants": tuple(state.tenants),
        }

    values: dict[str, Any] | None = await gateway.inspect(look)
    return values


async def records_of(gateway: Gateway, values: dict[str, Any], new: tuple[SubmitJob, ...] = ()) -> bytes:
    """The store's records as bytes; how long jobs like them took goes into the values."""

    def read(store: Store) -> tuple[bytes, dict[JobId, tuple[float, ...]]]:
        records = store.load()
        return pickle.dumps(records, pickle.HIGHEST_PROTOCOL), earlier_runs(store, records, new)

    blob: bytes
    blob, values["runs"] = await gateway.read(read)
    return blob


def earlier_runs(
    store: Store, records: Loaded, new: tuple[SubmitJob, ...] = ()
) -> dict[JobId, tuple[float, ...]]:
    """How long earlier runs like each live job took, in seconds: of its name and definition, else of its definition."""
    kinds: dict[tuple[QueueName, str, str, str], list[JobId]] = {}
    for job in records.jobs:
        if job.parent is None:
            submission = job.submission
            tenant = submission.submitter.tenant
            kinds.setdefault((submission.queue, submission.definition, submission.name, tenant), []).append(
                job.id
            )
    for command in new:
        key = (command.queue, command.definition, command.name, command.submitter.tenant)
        kinds.setdefault(key, []).append(command.job_id)
    runs: dict[JobId, tuple[float, ...]] = {}
    for kind, ids in list(kinds.items())[:KINDS_MAX]:
        seen = _runs_of(store, kind)
        runs |= dict.fromkeys(ids, seen)
    return runs


def _runs_of(store: Store, kind: tuple[QueueName, str, str, str]) -> tuple[float, ...]:
    queue, definition, name, tenant = kind
    plain = definition.partition(":")[0] or None
    alike = JobFilter(queue=queue, definition=plain, name=name, states=(SUCCEEDED,), tenant=tenant)
    ended = store.list_jobs(alike, RUNS_READ, None).jobs
    of_run = plain is None or plain.rpartition("/")[2].startswith(_OF_RUN)
    if not ended and not of_run:
        ended = store.list_jobs(replace(alike, name=None), RUNS_READ, None).jobs
    parts: list[Job] = []
    for job in ended:
        if job.is_array and len(parts) < RUNS_READ:
            children = JobFilter(parent=job.id, states=(SUCCEEDED,))
            parts += store.list_jobs(children, RUNS_READ, None).jobs
        elif not job.is_array:
            parts.append(job)
    return tuple(length for job in parts if (length := _worked_s(job)) is not None)


def _worked_s(job: Job) -> float | None:
    """How long a job that succeeded ran, over all its attempts."""
    spans = [
        attempt.stopped_at - attempt.started_at
        for attempt in job.attempts
        if attempt.started_at is not None and attempt.stopped_at is not None
    ]
    return sum(spans) / 1000 if spans else None
