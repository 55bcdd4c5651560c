"""Children of an array that have no record of their own, as jobs; and how all children of an ended array ended.

An array is stored as one record until its children start; what such a child looks like follows from its
parent. Must not know the wire.
"""

from __future__ import annotations

from collections.abc import Iterable

from windfall.jobs.arrays import ChildTable
from windfall.jobs.ids import child_id
from windfall.jobs.job import Job
from windfall.jobs.states import TERMINAL, JobState


def child_at_rest(parent: Job, index: int) -> Job | None:
    """The child as a job that shares its parent's fate so far; None when the array has no such child."""
    size = parent.submission.array_size
    if size is None or parent.parent is not None or not 0 <= index < size:
        return None
    state = parent.rest or parent.state
    ended = state in TERMINAL
    return Job(
        id=child_id(parent.id, index),
        submission=parent.submission,
        state=state,
        created_at=parent.created_at,
        parent=parent.id,
        index=index,
        runnable_at=parent.runnable_at,
        stopped_at=(parent.rest_at or parent.stopped_at) if ended else None,
        status_reason=parent.rest_reason,
        cancelled=parent.cancelled,
        terminated=parent.terminated,
        stop_reason=parent.stop_reason,
    )


def final_states(array: Job, recorded: Iterable[tuple[int, JobState]]) -> bytes | None:
    """The final states of an ended array's children, as a ChildTable codes them, from those with a record.

    None when records are missing: old jobs are removed in steps, an array's children before the array.
    """
    if array.submission.array_size is None or array.rest is None:
        return None
    table = ChildTable.of(array.submission.array_size, array.rest)
    for index, state in recorded:
        table.load(index, state)
    return bytes(table.states) if table.summary() == array.summary else None
