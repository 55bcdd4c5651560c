"""What one round's Changes are as rows, checked before any lock is taken; and how finished jobs are removed.

Decides which columns a thing has. Jobs that are old go a bounded number of rows at a time, as do those that a round
names: children first and their array last, so that a step cut short leaves no child without its array. Must not know in
which dialect rows are written, nor touch log files: it answers whose they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windfall.control.changes import Changes, LogStream, Purge
from windfall.control.outbox import OutboxEvent
from windfall.jobs.definitions import JobDefinition
from windfall.jobs.ids import JobId
from windfall.jobs.job import Job, Submission
from windfall.jobs.service_jobs import ServiceJob
from windfall.jobs.tenants import qualified
from windfall.schedules.schedule import Tick
from windfall.store import tables
from windfall.store.database import SqlSession
from windfall.store.errors import Unstorable
from windfall.store.records import KINDS, encoded, job_record
from windfall.store.tables import Row, Table

_RAISE_HIGHEST = """
INSERT INTO highest (name, number) VALUES ('order', ?)
ON CONFLICT (name) DO UPDATE SET number = excluded.number WHERE excluded.number > highest.number
"""


@dataclass(slots=True)
class RoundRows:
    """Rows to write and keys to remove, table by table, and the highest order among its jobs."""

    writes: list[tuple[Table, list[Row]]] = field(default_factory=list)
    removals: list[tuple[Table, list[Row]]] = field(default_factory=list)
    highest_order: int = 0

    def carry_out(self, session: SqlSession, known_order: int) -> None:
        """Write it all; the highest order only if it is above the one that is known to be stored."""
        for table, rows in self.writes:
            session.write(table, rows)
        for table, keys in self.removals:
            session.remove(table, keys)
        if self.highest_order > known_order:
            session.rows(_RAISE_HIGHEST, (self.highest_order,))


def searchable(text: str) -> bool:
    """Whether a text could be in a column at all: it is valid Unicode without NUL."""
    return "\0" not in text and (text.isascii() or text == text.encode(errors="replace").decode())


def folded(name: str) -> str:
    """A name for comparison without case; unlike lower(), folding a prefix gives a prefix of the folded."""
    return name.casefold()


def rows_of_round(changes: Changes) -> RoundRows:
    """The rows of a round, or Unstorable."""
    rows = RoundRows()
    _add(rows, tables.ENVIRONMENTS, changes.environments)
    _add(rows, tables.QUEUES, changes.queues)
    _add(rows, tables.IMAGES, changes.images)
    _add(rows, tables.INSTANCES, changes.instances)
    _add(rows, tables.MACHINES, changes.machines)
    if changes.definitions:
        written = [_definition_row(it) for it in changes.definitions.values() if it is not None]
        gone = [_split_definition(key) for key, it in changes.definitions.items() if it is None]
        _put(rows, tables.DEFINITIONS, written, gone)
    if changes.jobs:
        _put(rows, tables.JOBS, [_job_row(job) for job in changes.jobs.values()])
        rows.highest_order = max(job.order for job in changes.jobs.values())
    if changes.log_streams:
        # By the key of the table: one statement must not meet the same row twice.
        streams = {(it.group, it.name): _stream_row(it) for it in changes.log_streams.values()}
        _put(rows, tables.LOG_STREAMS, list(streams.values()))
    if changes.declared:
        keys = {key: (KINDS[key[0]], _text(key[1])) for key in changes.declared}
        written = [(*keys[key], encoded(it)) for key, it in changes.declared.items() if it is not None]
        _put(
            rows,
            tables.DECLARATIONS,
            written,
            [keys[key] for key, it in changes.declared.items() if it is None],
        )
    if changes.service_jobs:
        _put(rows, tables.SERVICE_JOBS, [_service_job_row(it) for it in changes.service_jobs.values()])
    if changes.outbox:
        _put(rows, tables.OUTBOX, [_event_row(*key, it) for key, it in changes.outbox.items()])
    if changes.ticks:
        _put(rows, tables.TICKS, [_tick_row(it) for it in changes.ticks.values()])
    if changes.answers:
        _put(rows, tables.INBOX, list(changes.answers.items()))
    return rows


def _add(rows: RoundRows, table: Table, things: Mapping[Any, Any]) -> None:
    """The rows of a table that has a key and a record."""
    if things:
        written = [(_text(key), encoded(it)) for key, it in things.items() if it is not None]
        _put(rows, table, written, [(_text(key),) for key, it in things.items() if it is None])


def _put(round_rows: RoundRows, table: Table, rows: list[Row], keys: Iterable[Row] = ()) -> None:
    if rows:
        round_rows.writes.append((table, rows))
    if gone := list(keys):
        round_rows.removals.append((table, gone))


def _text(text: str) -> str:
    if not searchable(text):
        raise Unstorable(
            f"{text!r} cannot be stored: a name must be valid Unicode text without the character NUL"
        )
    return text


def _job_row(job: Job) -> Row:
    if job.parent is not None:
        _text(job.id)
        own: Row = (job.id, job.parent, job.index, None, None, None, None)
        submission = tokens = share = None
    else:
        submitted = job.submission
        # One look at all texts: this is done for every change of every job.
        _text(f"{job.id} {submitted.name} {submitted.queue} {submitted.definition} {submitted.share or ''}")
        queue = qualified(submitted.submitter.tenant, submitted.queue)
        own = (job.id, None, None, queue, submitted.name, folded(submitted.name), submitted.definition)
        submission, tokens, share = encoded(submitted), _consumables(submitted), submitted.share
    now = (job.created_at, job.state.value, job.stopped_at, job.order)
    return (*own, *now, tokens, share, job_record(job), submission)


def _definition_row(it: JobDefinition) -> Row:
    return (_text(it.name), it.revision, int(it.active), encoded(it))


def _split_definition(key: str) -> Row:
    name, _, revision = key.rpartition(":")
    return (_text(name), int(revision))


def _service_job_row(it: ServiceJob) -> Row:
    _text(f"{it.id} {it.queue}")
    queue = qualified(it.submitter.tenant, it.queue)
    return (it.id, queue, it.created_at, it.state.value, it.stopped_at, encoded(it))


def _tick_row(it: Tick) -> Row:
    return (_text(it.schedule), it.due_at, int(it.undone), encoded(it))


def _event_row(destination: str, event_id: str, it: OutboxEvent) -> Row:
    return (destination, event_id, _text(it.subject), encoded(it))


def _consumables(submission: Submission) -> str | None:
    """The names of the consumable resources, each between blanks; None for the many jobs that name none."""
    return (
        _text(f" {' '.join(name for name, _ in submission.consumables)} ") if submission.consumables else None
    )


def _stream_row(it: LogStream) -> Row:
    return (_text(it.group), _text(it.name), _text(it.task_id), _text(it.job_id), it.created_at)


_OLD = """
SELECT id FROM jobs
WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED') AND COALESCE(stopped_at, created_at) < ?
ORDER BY COALESCE(stopped_at, created_at), seq LIMIT ?
"""
_CHILDREN = "SELECT id FROM jobs WHERE parent IS NOT NULL AND {among} LIMIT ?"
_ALL_CHILDREN = "SELECT id FROM jobs WHERE parent IS NOT NULL AND {among}"


def purge(session: SqlSession, wanted: Purge) -> list[str]:
    """Remove at most `wanted.limit` jobs and children; answer the task ids of their log streams."""
    old = [row[0] for row in session.rows(_OLD, (wanted.before, wanted.limit))]
    if not old:
        return []
    children = [row[0] for row in session.rows_among(_CHILDREN, "parent", old, (wanted.limit,))]
    # Fewer children than asked for means that these are all; then the oldest of their parents may follow.
    return _without(session, children + old[: wanted.limit - len(children)])


def remove_jobs(session: SqlSession, named: Collection[JobId]) -> list[str]:
    """Remove these jobs with their children; answer the task ids of their log streams."""
    if not named:
        return []
    ids = [str(job_id) for job_id in named]
    return _without(session, [row[0] for row in session.rows_among(_ALL_CHILDREN, "parent", ids)] + ids)


def _without(session: SqlSession, gone: list[str]) -> list[str]:
    streams = session.rows_among("DELETE FROM log_streams WHERE {among} RETURNING task_id", "job_id", gone)
    session.rows_among("DELETE FROM jobs WHERE {among}", "id", gone)
    return [task_id for (task_id,) in streams]
