"""Removes finished jobs that are old, a bounded number of rows at a time.

Children go first and their array last, so that a step cut short leaves no child without its array. Must not
touch log files: it answers whose they were.
"""

from __future__ import annotations

from windfall.control.changes import Purge
from windfall.store.database import Session

_OLD = """
SELECT id FROM jobs
WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED') AND COALESCE(stopped_at, created_at) < ?
ORDER BY COALESCE(stopped_at, created_at), seq LIMIT ?
"""
_CHILDREN = "SELECT id FROM jobs WHERE parent IS NOT NULL AND {among} LIMIT ?"


def purge(session: Session, wanted: Purge) -> list[str]:
    """Remove at most `wanted.limit` jobs and children; answer the task ids of their log streams."""
    old = [row[0] for row in session.rows(_OLD, (wanted.before, wanted.limit))]
    if not old:
        return []
    children = [row[0] for row in session.rows_among(_CHILDREN, "parent", old, (wanted.limit,))]
    # Fewer children than asked for means that these are all; then the oldest of their parents may follow.
    gone = children + old[: wanted.limit - len(children)]
    streams = session.rows_among("DELETE FROM log_streams WHERE {among} RETURNING task_id", "job_id", gone)
    session.rows_among("DELETE FROM jobs WHERE {among}", "id", gone)
    return [task_id for (task_id,) in streams]
