"""Removes finished jobs: old ones, a bounded number of rows at a time, and those that a round names.

Children go first and their array last, so that a step cut short leaves no child without its array. Must not
touch log files: it answers whose they were.
"""

from __future__ import annotations

from collections.abc import Collection

from windfall.control.changes import Purge
from windfall.jobs.ids import JobId
from windfall.store.database import SqlSession

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
