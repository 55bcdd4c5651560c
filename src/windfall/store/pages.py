"""Pages of jobs, service jobs and ticks: which rows, in which order, and where the next page begins.

A page of jobs is found in lanes, one per queue and state (or one per queue when a name is asked for), each served in
its order by an index and cut at the page's length; the lanes are then merged. So a page costs its own length, however
many finished jobs there are, and however many of them are of other tenants: the tenant is part of the queue's name in a
row. Positions name the last job of a page (not a count), so jobs that arrive meanwhile shift nothing. Children have no
queue of their own, so that no lane meets them. Of service jobs there are far fewer: what a filter does not mean is
passed over on the way. Of every schedule the newest ticks stay, and none for ever: schedules come and go; ticks that
are not closed are never removed. Must not know what a tick means.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from windfall.control.changes import Purge
from windfall.control.ports import JobFilter, JobPage, ServiceJobFilter, ServiceJobPage
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob, ServiceState
from windfall.jobs.states import TERMINAL, JobState
from windfall.jobs.tenants import qualified, split_name
from windfall.schedules.schedule import Tick
from windfall.store import records
from windfall.store.database import SqlSession
from windfall.store.errors import BadPosition
from windfall.store.ranges import beginning_with
from windfall.store.records import JobReader
from windfall.store.rounds import folded, searchable

#: What JobReader wants to see.
JOB_ROWS = """
SELECT j.id, j.parent, j.child_index, j.state, j.created_at, j.stopped_at, j.ord, j.record,
       COALESCE(j.submission, p.submission)
FROM jobs j LEFT JOIN jobs p ON p.id = j.parent
"""

#: Walks from queue to queue in the index instead of reading every job.
_QUEUES_WITH_JOBS = """
WITH RECURSIVE seen (queue) AS (
    SELECT MIN(queue) FROM jobs WHERE queue IS NOT NULL
    UNION ALL
    SELECT (SELECT MIN(queue) FROM jobs WHERE queue > seen.queue) FROM seen
    WHERE seen.queue IS NOT NULL
)
SELECT queue FROM seen WHERE queue IS NOT NULL
"""

_SUBMITTED = """
SELECT (created_at - ?) / ? AS step, COUNT(*) FROM jobs
WHERE queue = ? AND state = ? AND created_at >= ? AND created_at < ?
GROUP BY step
"""

#: Finished jobs are counted for each five minutes of their creation as they finish, by triggers of the schema.
SLOT_MS = 300_000
_SUBMITTED_SLOTS = """
SELECT (slot - ?) / ? AS step, SUM(number) FROM submission_counts
WHERE queue = ? AND state = ? AND slot >= ? AND slot < ? AND number > 0
GROUP BY step
"""

_JOB_POSITION = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{1,15})")
_CHILD_POSITION = re.compile(r"([0-9a-f]{1,15})")

Condition = tuple[str, Sequence[Any]]


def kept_queues(session: SqlSession, tenant: str | None, named: Sequence[str] | None = None) -> list[str]:
    """The queues of a tenant, or of all, as rows name them: those that have a top-level job, or those named."""
    if tenant is not None and named is not None:
        return [qualified(tenant, name) for name in dict.fromkeys(named)]
    queues = [queue for (queue,) in session.rows(_QUEUES_WITH_JOBS)]
    return [
        queue
        for queue in queues
        if (tenant is None or split_name(queue)[0] == tenant)
        and (named is None or split_name(queue)[1] in named)
    ]


def submitted_over_time(
    session: SqlSession, span: tuple[int, int], step_ms: int, queue: str | None, tenant: str | None
) -> dict[tuple[int, JobState], int]:
    """How many top-level jobs were created in each step of a span (from, to), by their present state."""
    counts: Counter[tuple[int, JobState]] = Counter()
    in_slots = all(time % SLOT_MS == 0 for time in (*span, step_ms))
    for kept_queue in kept_queues(session, tenant, None if queue is None else [queue]):
        for state in JobState:
            if in_slots and state in TERMINAL:
                slots = [span[0] // SLOT_MS, step_ms // SLOT_MS, span[1] // SLOT_MS]
                rows = session.rows(
                    _SUBMITTED_SLOTS, (slots[0], slots[1], kept_queue, state.value, slots[0], slots[2])
                )
            else:
                # One lane of the index at a time: it holds all that is counted, so no row is read.
                rows = session.rows(_SUBMITTED, (span[0], step_ms, kept_queue, state.value, *span))
            for step, number in rows:
                counts[step, state] += int(number)
    return dict(counts)


def page_of_jobs(session: SqlSession, wanted: JobFilter, limit: int, after: str | None) -> JobPage:
    """A page of top-level jobs by age; those of one millisecond by arrival, the last one first.

    Oldest first is the same order from its other end.
    """
    position = _position(_JOB_POSITION, after)
    named = list(wanted.queues or ()) if wanted.queue is None else [wanted.queue]
    texts = (*named, wanted.name, wanted.definition, wanted.consumable, wanted.share)
    if not all(searchable(text) for text in texts if text is not None):
        return JobPage([], None)
    all_queues = wanted.queue is None and wanted.queues is None
    queues = kept_queues(session, wanted.tenant, None if all_queues else named)
    states = _states(wanted)
    lanes = [states] if wanted.name is not None else [[state] for state in states]
    positions: list[tuple[int, int]] = []
    for queue in queues:
        for lane in lanes:
            positions += _lane(session, queue, lane, wanted, limit + 1, position)
    positions.sort(reverse=not wanted.oldest_first)
    direction = _direction(wanted)
    more, positions = len(positions) > limit, positions[:limit]
    rows = session.rows_among(
        f"{JOB_ROWS} WHERE {{among}} ORDER BY j.created_at {direction}, j.seq {direction}",
        "j.seq",
        [seq for _, seq in positions],
    )
    return JobPage(JobReader().jobs(rows), f"{positions[-1][0]:x}-{positions[-1][1]:x}" if more else None)


def page_of_children(session: SqlSession, wanted: JobFilter, limit: int, after: str | None) -> JobPage:
    """A page of an array's recorded children by index; of the filter, only states and times apply."""
    position = _position(_CHILD_POSITION, after)
    if wanted.parent is None or not searchable(wanted.parent):
        return JobPage([], None)
    conditions: list[Condition] = [("j.parent = ?", [wanted.parent]), *_ages("j.", wanted)]
    conditions.append(_one_of("j.state", _states(wanted)))
    if position is not None:
        conditions.append(("j.child_index > ?", position))
    where, parameters = _all_of(conditions)
    rows = session.rows(f"{JOB_ROWS} WHERE {where} ORDER BY j.child_index LIMIT ?", [*parameters, limit + 1])
    jobs: list[Job] = JobReader().jobs(rows[:limit])
    return JobPage(jobs, f"{jobs[-1].index:x}" if len(rows) > limit else None)


def _lane(
    session: SqlSession,
    queue: str,
    states: Sequence[str],
    wanted: JobFilter,
    limit: int,
    position: Sequence[int] | None,
) -> list[tuple[int, int]]:
    """When created and seq of the first matching jobs of one queue."""
    conditions: list[Condition] = [("queue = ?", [queue]), *_ages("", wanted)]
    conditions += _texts(wanted)
    conditions.append(("state = ?", states) if wanted.name is None else _one_of("state", states))
    if position is not None:
        sign = ">" if wanted.oldest_first else "<"
        conditions.append(
            (f"created_at {sign}= ? AND (created_at, seq) {sign} (?, ?)", [position[0], *position])
        )
    # A prefix fits few of all jobs: take its range and sort it. The sum keeps the database from walking all
    # jobs in the order of their age instead.
    age = "created_at + 0" if wanted.name_is_prefix else "created_at"
    where, parameters = _all_of(conditions)
    order = f"{age} {_direction(wanted)}, seq {_direction(wanted)}"
    # The conditions are our own words; what callers say is among the parameters.
    sql = f"SELECT created_at, seq FROM jobs WHERE {where} ORDER BY {order} LIMIT ?"  # noqa: S608
    return [(row[0], row[1]) for row in session.rows(sql, [*parameters, limit])]


def _direction(wanted: JobFilter) -> str:
    return "ASC" if wanted.oldest_first else "DESC"


def _texts(wanted: JobFilter) -> list[Condition]:
    conditions: list[Condition] = []
    if wanted.name is not None:
        name = folded(wanted.name)
        conditions.append(
            beginning_with("name_folded", name) if wanted.name_is_prefix else ("name_folded = ?", [name])
        )
    if wanted.share is not None:
        conditions.append(("share = ?", [wanted.share]))
    if wanted.consumable is not None:
        # The names stand between blanks, and removing one that is not there changes nothing.
        conditions.append(("REPLACE(consumables, ?, '') <> consumables", [f" {wanted.consumable} "]))
    if wanted.definition is not None:
        if wanted.definition_is_prefix:
            conditions.append(beginning_with("definition", wanted.definition))
        elif ":" in wanted.definition:
            conditions.append(("definition = ?", [wanted.definition]))
        else:  # a name alone means all its revisions
            conditions.append(beginning_with("definition", f"{wanted.definition}:"))
    return conditions


def _ages(prefix: str, wanted: JobFilter) -> list[Condition]:
    conditions: list[Condition] = []
    if wanted.created_before is not None:
        conditions.append((f"{prefix}created_at < ?", [_in_64_bits(wanted.created_before)]))
    if wanted.created_after is not None:
        conditions.append((f"{prefix}created_at > ?", [_in_64_bits(wanted.created_after)]))
    return conditions


def _in_64_bits(number: int) -> int:
    """A bound that SQL can hold and that no time of a job is beyond."""
    return max(-(2**63), min(number, 2**63 - 1))


def _states(wanted: JobFilter) -> list[str]:
    return [state.value for state in dict.fromkeys(JobState if wanted.states is None else wanted.states)]


def _one_of(column: str, values: Sequence[str]) -> Condition:
    """A condition that no index is chosen for: the other ones are the stricter."""
    return (f"{column} || '' IN ({', '.join('?' * len(values))})" if values else "1 = 0", values)


def _all_of(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    return " AND ".join(text for text, _ in conditions), [
        value for _, values in conditions for value in values
    ]


def _position(pattern: re.Pattern[str], after: str | None) -> list[int] | None:
    if after is None:
        return None
    match = pattern.fullmatch(after)
    if match is None:
        raise BadPosition(after)
    return [int(part, 16) for part in match.groups()]


#: How many ticks of a schedule are kept.
KEPT = 1_000

_PAGE = "SELECT record FROM ticks WHERE schedule = ? AND due_at < ? ORDER BY due_at DESC LIMIT ?"
_CUT = """
DELETE FROM ticks WHERE schedule = ? AND undone = 0
AND due_at < (SELECT due_at FROM ticks WHERE schedule = ? ORDER BY due_at DESC LIMIT 1 OFFSET ?)
"""
_OLD = """
DELETE FROM ticks WHERE (schedule, due_at) IN
(SELECT schedule, due_at FROM ticks WHERE undone = 0 AND due_at < ? ORDER BY due_at LIMIT ?)
"""
_LAST = 2**63 - 1


def page_of_ticks(session: SqlSession, schedule: str, limit: int, before: int | None) -> list[Tick]:
    """The newest ticks of a schedule, or those that were due before a time."""
    if not searchable(schedule):
        return []
    rows = session.rows(_PAGE, (schedule, _LAST if before is None else before, max(0, limit)))
    return [records.ticks.decoded(record) for (record,) in rows]


def cut_histories(session: SqlSession, schedules: Iterable[str]) -> None:
    """Remove all but the newest closed ticks of these schedules."""
    for schedule in schedules:
        session.rows(_CUT, (schedule, schedule, KEPT - 1))


def purge_ticks(session: SqlSession, wanted: Purge) -> None:
    """Remove a few closed ticks that are too old."""
    session.rows(_OLD, (wanted.ticks_before, wanted.limit))


_POSITION = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{1,15})")
#: How many rows are read at once while a page is filled.
_STRIDE = 500
_NEWEST_FIRST = "ORDER BY created_at DESC, seq DESC LIMIT ?"
_OLD_SERVICE = """
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
    position = _service_position(after)
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
    old = [row[0] for row in session.rows(_OLD_SERVICE, (wanted.before, wanted.limit))]
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


def _service_position(after: str | None) -> tuple[int, int] | None:
    if after is None:
        return None
    match = _POSITION.fullmatch(after)
    if match is None:
        raise BadPosition(after)
    return int(match[1], 16), int(match[2], 16)
