"""Service jobs of the store: by id, in pages, and those that are old enough to go.

A page is read in its order until it is full, and what a filter does not mean is passed over on the way: there are far
fewer service jobs than jobs. Positions name the last job of a page (not a count), so jobs that arrive meanwhile shift
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windfall.control.changes import Purge
from windfall.control.ports import ServiceJobFilter, ServiceJobPage
from windfall.jobs.ids import JobId
from windfall.jobs.service_jobs import ServiceJob, ServiceState
from windfall.jobs.tenants import qualified, split_name
from windfall.store import records
from windfall.store.database import SqlSession
from windfall.store.errors import BadPosition
from windfall.store.rounds import folded, searchable

_POSITION = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{1,15})")
#: How many rows are read at once while a page is filled.
_STRIDE = 500
_NEWEST_FIRST = "ORDER BY created_at DESC, seq DESC LIMIT ?"
_OLD = """
SELECT id FROM service_jobs
WHERE state IN ('SUCCEEDED', 'FAILED') AND COALESCE(stopped_at, created_at) < ?
ORDER BY COALESCE(stopped_at, created_at), seq LIMIT ?
"""


def service_jobs_by_id(session: SqlSession, ids: Sequence[JobId]) -> list[ServiceJob]:
    """These service jobs, in the order asked; unknown ones are left out."""
    wanted = [job_id for job_id in dict.fromkeys(ids) if searchable(job_id)]
    if not wanted:
        return []
    rows = session.rows_among("SELECT record FROM service_jobs WHERE {among}", "id", wanted)
    by_id = {job.id: job for job in (records.service_jobs.decoded(record) for (record,) in rows)}
    return [by_id[job_id] for job_id in wanted if job_id in by_id]


def page_of_service_jobs(
    session: SqlSession, wanted: ServiceJobFilter, limit: int, after: str | None
) -> ServiceJobPage:
    """A page of a queue's service jobs, the newest first."""
    position = _position(after)
    if not searchable(wanted.queue):
        return ServiceJobPage([], None)
    states = [state.value for state in (ServiceState if wanted.states is None else wanted.states)]
    jobs: list[ServiceJob] = []
    given = position
    queues = _kept_queues(session, wanted)
    while states and queues:
        rows = _rows(session, wanted, queues, states, position)
        for created_at, seq, record in rows:
            position = (created_at, seq)
            job = records.service_jobs.decoded(record)
            if not _is_meant(job, wanted):
                continue
            if len(jobs) == limit and given is not None:
                return ServiceJobPage(jobs, f"{given[0]:x}-{given[1]:x}")
            jobs.append(job)
            given = position
        if len(rows) < _STRIDE:
            break
    return ServiceJobPage(jobs, None)


def purge_service_jobs(session: SqlSession, wanted: Purge) -> None:
    """Remove at most `wanted.limit` service jobs that ended long ago."""
    old = [row[0] for row in session.rows(_OLD, (wanted.before, wanted.limit))]
    if old:
        session.rows_among("DELETE FROM service_jobs WHERE {among}", "id", old)


def _kept_queues(session: SqlSession, wanted: ServiceJobFilter) -> list[str]:
    """The queue as rows name it: one of a tenant, or those of all tenants that have service jobs there."""
    if wanted.tenant is not None:
        return [qualified(wanted.tenant, wanted.queue)]
    queues = [queue for (queue,) in session.rows("SELECT DISTINCT queue FROM service_jobs")]
    return [queue for queue in queues if split_name(queue)[1] == wanted.queue]


def _rows(
    session: SqlSession,
    wanted: ServiceJobFilter,
    queues: Sequence[str],
    states: Sequence[str],
    position: tuple[int, int] | None,
) -> list[tuple[Any, ...]]:
    conditions = [
        f"queue IN ({', '.join('?' * len(queues))})",
        f"state IN ({', '.join('?' * len(states))})",
    ]
    values: list[Any] = [*queues, *states]
    if position is not None:
        conditions.append("(created_at, seq) < (?, ?)")
        values += position
    for sign, bound in (("<", wanted.created_before), (">", wanted.created_after)):
        if bound is not None:
            conditions.append(f"created_at {sign} ?")
            values.append(bound)
    where = " AND ".join(conditions)
    # The conditions are our own words; what callers say is among the parameters.
    sql = f"SELECT created_at, seq, record FROM service_jobs WHERE {where} {_NEWEST_FIRST}"  # noqa: S608
    return session.rows(sql, [*values, _STRIDE])


def _is_meant(job: ServiceJob, wanted: ServiceJobFilter) -> bool:
    if wanted.name is not None:
        name, wanted_name = folded(job.name), folded(wanted.name)
        if not (name.startswith(wanted_name) if wanted.name_is_prefix else name == wanted_name):
            return False
    return (wanted.share is None or job.share == wanted.share) and (
        wanted.quota_share is None or job.quota_share == wanted.quota_share
    )


def _position(after: str | None) -> tuple[int, int] | None:
    if after is None:
        return None
    match = _POSITION.fullmatch(after)
    if match is None:
        raise BadPosition(after)
    return int(match[1], 16), int(match[2], 16)
