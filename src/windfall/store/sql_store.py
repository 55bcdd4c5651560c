"""The Store port over any of the two databases: every question and every round, in SQL that both understand.

Events that wait to be delivered are read in their order, and removed when their destination has heard them; they are
written with the round that they report (rounds.py). Must not know which database it is; what differs is behind
`Database` and in the migrations.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from windfall.capacity.environments import ComputeEnvironment, JobQueue
from windfall.capacity.machines import Machine
from windfall.control.changes import Changes, LogStream
from windfall.control.outbox import OutboxEvent
from windfall.control.ports import D, JobFilter, JobPage, Loaded, ServiceJobFilter, ServiceJobPage
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import DefinitionKey, JobId, QueueName
from windfall.jobs.images import ImageMapping
from windfall.jobs.job import Job
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.states import JobState
from windfall.jobs.submitters import DEFAULT_TENANT
from windfall.jobs.tenants import qualified, split_name
from windfall.schedules.schedule import Tick
from windfall.store import records
from windfall.store.coordination import Coordination
from windfall.store.database import Database, SqlSession
from windfall.store.pages import (
    JOB_ROWS,
    cut_histories,
    kept_queues,
    page_of_children,
    page_of_jobs,
    page_of_service_jobs,
    page_of_ticks,
    purge_service_jobs,
    purge_ticks,
    service_jobs_by_id,
    submitted_over_time,
)
from windfall.store.ranges import beginning_with
from windfall.store.records import JobReader
from windfall.store.rounds import folded, purge, remove_jobs, rows_of_round, searchable
from windfall.store.tables import LOG_STREAMS, OUTBOX

#: How many jobs a short text may stand for.
FOUND_MAX = 10

_LIVE = f"{JOB_ROWS} WHERE j.state NOT IN ('SUCCEEDED', 'FAILED') ORDER BY j.ord, j.seq"
#: CROSS JOIN: SQLite then keeps this order of tables, from the few live arrays to their children.
_FINISHED_CHILDREN = """
SELECT child.parent, child.child_index, child.state
FROM jobs array_job CROSS JOIN jobs child
WHERE array_job.state NOT IN ('SUCCEEDED', 'FAILED') AND array_job.parent IS NULL
  AND child.parent = array_job.id AND child.parent IS NOT NULL AND child.state IN ('SUCCEEDED', 'FAILED')
ORDER BY array_job.ord, array_job.seq, child.child_index
"""
_ENDED_CHILDREN = """
SELECT child_index, state FROM jobs
WHERE parent = ? AND parent IS NOT NULL AND child_index IS NOT NULL AND state IN ('SUCCEEDED', 'FAILED')
ORDER BY child_index
"""
_LIVE_SERVICE_JOBS = "SELECT record FROM service_jobs WHERE state NOT IN ('SUCCEEDED', 'FAILED') ORDER BY seq"
_UNDONE_TICKS = "SELECT record FROM ticks WHERE undone = 1 ORDER BY schedule, due_at"
_LIVE_COUNTS = """
SELECT state, COUNT(*) FROM jobs
WHERE queue = ? AND state IN ('SUBMITTED', 'PENDING', 'RUNNABLE', 'STARTING', 'RUNNING')
GROUP BY state
"""
_FINISHED_COUNTS = "SELECT queue, state, number FROM finished_counts WHERE number > 0"
_LOG_GROUPS = """
WITH RECURSIVE seen (log_group) AS (
    SELECT MIN(log_group) FROM log_streams
    UNION ALL
    SELECT (SELECT MIN(log_group) FROM log_streams WHERE log_group > seen.log_group) FROM seen
    WHERE seen.log_group IS NOT NULL
)
SELECT log_group FROM seen WHERE log_group IS NOT NULL
"""
#: A child's queue is its parent's.
_IDS = "SELECT j.created_at, j.seq, j.id FROM jobs j LEFT JOIN jobs p ON p.id = j.parent"
_STREAMS = "SELECT log_group, name, task_id, job_id, created_at FROM log_streams WHERE log_group = ?"
assert list(LOG_STREAMS.columns) == ["log_group", "name", "task_id", "job_id", "created_at"]


class SqlStore:
    """The state of one Windfall in one database."""

    def __init__(self, database: Database, identity: str, coordination: Coordination | None = None) -> None:
        self._database = database
        #: What names this store among all others, for as long as it exists.
        self.identity = identity
        #: What several daemons on this store need; None where only one can be.
        self.coordination = coordination
        #: The highest order that is known to be stored. Read and set by the one committer alone.
        self._known_order = 0

    @property
    def where(self) -> str:
        """Which database it is, for messages; without a password."""
        return self._database.where

    def verify(self) -> None:
        """Raise StoreReplaced if the database that was opened is no longer at its place."""
        self._database.verify()

    def commit(self, changes: Changes) -> Sequence[str]:
        """Write a round, all or nothing; answer the task ids whose jobs it removed."""
        if not changes:
            return ()
        rows = rows_of_round(changes)

        def write(session: SqlSession) -> list[str]:
            # Before the rows: a name that is free again may be taken in the same round.
            gone = remove_jobs(session, [it for it in changes.removed_jobs if searchable(it)])
            rows.carry_out(session, self._known_order)
            if changes.purge is not None:
                gone += purge(session, changes.purge)
                purge_service_jobs(session, changes.purge)
                purge_ticks(session, changes.purge)
            cut_histories(session, changes.cut_histories)
            # A round may be committed twice, and then meets its own streams.
            return [task for task in gone if task not in changes.log_streams]

        removed = self._database.write(write)
        self._known_order = max(self._known_order, rows.highest_order)
        return removed

    def load(self) -> Loaded:
        """Read what a starting daemon needs, in one snapshot."""
        with _no_collection():
            return self._database.read(_load)

    def jobs(self, ids: Sequence[JobId]) -> list[Job]:
        """These jobs, in the order asked; unknown ones (and children without a record) are left out."""
        wanted = [job_id for job_id in dict.fromkeys(ids) if searchable(job_id)]
        if not wanted:
            return []
        rows = self._database.read(
            lambda session: session.rows_among(f"{JOB_ROWS} WHERE {{among}}", "j.id", wanted)
        )
        by_id = {job.id: job for job in JobReader().jobs(rows)}
        return [by_id[job_id] for job_id in ids if job_id in by_id]

    def list_jobs(self, wanted: JobFilter, limit: int, after: str | None) -> JobPage:
        """A page of top-level jobs, or of an array's recorded children by index when `parent` is given."""
        page = page_of_jobs if wanted.parent is None else page_of_children
        return self._database.read(lambda session: page(session, wanted, max(1, limit), after))

    def ended_children(self, array: JobId) -> list[tuple[int, JobState]]:
        """Index and final state of an array's children that ended with a record of their own, by index."""
        if not searchable(array):
            return []
        rows = self._database.read(lambda session: session.rows(_ENDED_CHILDREN, (array,)))
        return [(index, JobState(state)) for index, state in rows]

    def find_job(self, text: str, tenant: str | None = None) -> list[JobId]:
        """Ids of a tenant's jobs whose id begins with `text` or whose name is `text`, newest first, at most 10.

        An id in full stands for itself alone, though other ids begin with it (`...:1` and `...:10`); children
        and nodes are looked at only when the text has a colon or a #.
        """
        if not text or not searchable(text):
            return []
        return self._database.read(lambda session: _find(session, text, tenant))

    def counts(self, tenant: str | None = None) -> Mapping[tuple[QueueName, JobState], int]:
        """How many top-level jobs, of one tenant or of all, each queue has in each state; zeros are left out."""
        return self._database.read(lambda session: _counts(session, tenant))

    def submitted(
        self, span: tuple[int, int], step_ms: int, queue: QueueName | None = None, tenant: str | None = None
    ) -> Mapping[tuple[int, JobState], int]:
        """How many top-level jobs were created in each step of a span (from, to), by their present state."""
        if queue is not None and not searchable(queue):
            return {}
        return self._database.read(lambda session: submitted_over_time(session, span, step_ms, queue, tenant))

    def environments(self) -> list[ComputeEnvironment]:
        """All compute environments, by name."""
        return self._database.read(
            lambda session: _all(session, records.environments, "environments", "name")
        )

    def queues(self) -> list[JobQueue]:
        """All job queues, by name."""
        return self._database.read(lambda session: _all(session, records.queues, "queues", "name"))

    def images(self) -> list[ImageMapping]:
        """All image mappings, by pattern."""
        return self._database.read(lambda session: _all(session, records.images, "images", "pattern"))

    def machines(self) -> list[Machine]:
        """All machines, by id."""
        return self._database.read(lambda session: _all(session, records.machines, "machines", "id"))

    def declared(self, kind: type[D]) -> list[D]:
        """All declarations of a kind, by key."""
        return self._database.read(lambda session: _declared(session, kind))

    def service_jobs(self, ids: Sequence[JobId]) -> list[ServiceJob]:
        """These service jobs, in the order asked; unknown ones are left out."""
        return self._database.read(lambda session: service_jobs_by_id(session, ids))

    def list_service_jobs(self, wanted: ServiceJobFilter, limit: int, after: str | None) -> ServiceJobPage:
        """A page of a queue's service jobs."""
        return self._database.read(
            lambda session: page_of_service_jobs(session, wanted, max(1, limit), after)
        )

    def ticks(self, schedule: str, limit: int, before: int | None = None) -> list[Tick]:
        """Ticks of a schedule, newest first; those due before `before` if it is given."""
        return self._database.read(lambda session: page_of_ticks(session, schedule, limit, before))

    def definitions(self, name: str | None = None, active_only: bool = False) -> list[JobDefinition]:
        """Job definitions, by name and revision."""
        if name is not None and not searchable(name):
            return []
        conditions = (["name = ?"] if name is not None else []) + (["active = 1"] if active_only else [])
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        sql = f"SELECT record FROM definitions {where} ORDER BY name, revision"  # noqa: S608 (values are parameters)
        rows = self._database.read(lambda session: session.rows(sql, () if name is None else (name,)))
        return [records.definitions.decoded(record) for (record,) in rows]

    def definition(self, key: DefinitionKey) -> JobDefinition | None:
        """One revision."""
        name, _, revision = key.rpartition(":")
        if not (revision.isascii() and revision.isdigit() and len(revision) < 16 and searchable(name)):
            return None
        sql = "SELECT record FROM definitions WHERE name = ? AND revision = ?"
        rows = self._database.read(lambda session: session.rows(sql, (name, int(revision))))
        return records.definitions.decoded(rows[0][0]) if rows else None

    def undelivered(self, destination: str, limit: int) -> list[OutboxEvent]:
        """The oldest events that a destination has not heard yet, in the order in which they happened."""
        return self._database.read(lambda session: _oldest_events(session, destination, limit))

    def delivered(self, destination: str, ids: Sequence[str]) -> None:
        """Forget events that a destination has heard."""
        if ids:
            self._database.write(lambda session: _remove_events(session, destination, ids))

    def forget_undelivered(self, wanted: Sequence[str]) -> int:
        """Forget the events for all destinations but these; answers how many."""
        return self._database.write(lambda session: _remove_other_events(session, wanted))

    def log_groups(self) -> list[str]:
        """Names of all log groups that have a stream, in order."""
        return [group for (group,) in self._database.read(lambda session: session.rows(_LOG_GROUPS))]

    def log_streams(self, group: str, prefix: str, limit: int, after: str | None) -> list[LogStream]:
        """Streams of a group by name, beginning after `after`."""
        if not all(map(searchable, (group, prefix, after or ""))):
            return []
        begins, parameters = beginning_with("name", prefix)
        sql = f"{_STREAMS} AND {begins}{'' if after is None else ' AND name > ?'} ORDER BY name LIMIT ?"
        values = [group, *parameters, *([] if after is None else [after]), max(0, limit)]
        return [LogStream(*row) for row in self._database.read(lambda session: session.rows(sql, values))]

    def log_stream(self, group: str, name: str) -> LogStream | None:
        """One stream."""
        if not (searchable(group) and searchable(name)):
            return None
        rows = self._database.read(lambda session: session.rows(f"{_STREAMS} AND name = ?", (group, name)))
        return LogStream(*rows[0]) if rows else None

    def close(self) -> None:
        """Let go of files and connections."""
        if self.coordination is not None:
            self.coordination.close()
        self._database.close()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from what is loaded: none of it is garbage, and looking is expensive."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _all(session: SqlSession, kind: records.Records[records.T], table: str, key: str) -> list[records.T]:
    rows = session.rows(f"SELECT record FROM {table} ORDER BY {key}")  # noqa: S608 (names of our own tables)
    return [kind.decoded(record) for (record,) in rows]


def _load(session: SqlSession) -> Loaded:
    definitions = session.rows("SELECT record FROM definitions ORDER BY name, revision")
    highest = session.rows("SELECT number FROM highest WHERE name = 'order'")
    return Loaded(
        environments=_all(session, records.environments, "environments", "name"),
        queues=_all(session, records.queues, "queues", "name"),
        definitions=[records.definitions.decoded(record) for (record,) in definitions],
        images=_all(session, records.images, "images", "pattern"),
        instances=_all(session, records.instances, "instances", "id"),
        machines=_all(session, records.machines, "machines", "id"),
        jobs=JobReader().jobs(session.rows(_LIVE)),
        finished_children=[
            (JobId(parent), index, JobState(state))
            for parent, index, state in session.rows(_FINISHED_CHILDREN)
        ],
        declared=[it for kind in records.KINDS for it in _declared(session, kind)],
        service_jobs=[records.service_jobs.decoded(record) for (record,) in session.rows(_LIVE_SERVICE_JOBS)],
        ticks=[records.ticks.decoded(record) for (record,) in session.rows(_UNDONE_TICKS)],
        last_order=highest[0][0] if highest else 0,
    )


def _declared(session: SqlSession, kind: type[D]) -> list[D]:
    rows = session.rows(
        "SELECT record FROM declarations WHERE kind = ? ORDER BY name", (records.kind_name(kind),)
    )
    return [records.declarations_of(kind).decoded(record) for (record,) in rows]


def _counts(session: SqlSession, tenant: str | None) -> dict[tuple[QueueName, JobState], int]:
    counts: Counter[tuple[QueueName, JobState]] = Counter()
    for kept_queue, state, number in session.rows(_FINISHED_COUNTS):
        owner, queue = split_name(kept_queue)
        if tenant in (None, owner):
            counts[QueueName(queue), JobState(state)] += number
    for kept_queue in kept_queues(session, tenant):
        for state, number in session.rows(_LIVE_COUNTS, (kept_queue,)):
            counts[QueueName(split_name(kept_queue)[1]), JobState(state)] += number
    return dict(counts)


def _find(session: SqlSession, text: str, tenant: str | None) -> list[JobId]:
    own, tenants = ("1 = 1", []) if tenant is None else _of_tenant("COALESCE(j.queue, p.queue)", tenant)
    if session.rows(f"{_IDS} WHERE j.id = ? AND {own}", [text, *tenants]):
        return [JobId(text)]
    begins, parameters = beginning_with("j.id", text)
    if ":" not in text and "#" not in text:
        begins += " AND j.parent IS NULL"
    newest = "ORDER BY j.created_at + 0 DESC, j.seq DESC LIMIT ?"
    by_id = f"{_IDS} WHERE {begins} AND {own} {newest}"
    rows = set(session.rows(by_id, [*parameters, *tenants, FOUND_MAX]))
    by_name = (
        "SELECT created_at, seq, id FROM jobs "
        "WHERE queue = ? AND name_folded = ? AND name = ? "
        "ORDER BY created_at DESC, seq DESC LIMIT ?"
    )
    for queue in kept_queues(session, tenant):
        rows.update(session.rows(by_name, (queue, folded(text), text, FOUND_MAX)))
    return [JobId(row[2]) for row in sorted(rows, reverse=True)[:FOUND_MAX]]


def _of_tenant(queue: str, tenant: str) -> tuple[str, list[str]]:
    """The condition that a queue, as rows name it, is of a tenant, and its parameters."""
    if tenant == DEFAULT_TENANT:
        return f"REPLACE({queue}, '/', '') = {queue}", []
    return beginning_with(queue, qualified(tenant, ""))


_OLDEST = "SELECT record FROM outbox WHERE destination = ? ORDER BY seq LIMIT ?"
_DESTINATIONS = "SELECT destination, COUNT(*) FROM outbox GROUP BY destination"
_FORGET = "DELETE FROM outbox WHERE destination = ?"


def _oldest_events(session: SqlSession, destination: str, limit: int) -> list[OutboxEvent]:
    """The first events that a destination has not heard."""
    return [
        records.outbox_events.decoded(record) for (record,) in session.rows(_OLDEST, (destination, limit))
    ]


def _remove_events(session: SqlSession, destination: str, ids: Sequence[str]) -> None:
    """Remove what a destination has heard."""
    session.remove(OUTBOX, [(destination, event_id) for event_id in ids])


def _remove_other_events(session: SqlSession, wanted: Sequence[str]) -> int:
    """Remove what waits for all destinations but these; answers how much that was."""
    gone = 0
    for destination, count in session.rows(_DESTINATIONS):
        if destination not in wanted:
            session.rows(_FORGET, (destination,))
            gone += count
    return gone
