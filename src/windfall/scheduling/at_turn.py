"""Whether one job would start at its turn: what explain reports, and what it says would help.

Reads a pass that was made up to the job's turn. Decides nothing for the plan; it asks what the plan asks.
"""

from __future__ import annotations

from windfall.scheduling.admission import Asking
from windfall.scheduling.assign import Assignment
from windfall.scheduling.fit import takers
from windfall.scheduling.precedence import starts_now
from windfall.scheduling.quota_gate import group_key
from windfall.scheduling.snapshot import QueueView


def starts_at_its_turn(assignment: Assignment, view: QueueView, asking: Asking) -> bool:
    """Whether there is a place for the job that it may take."""
    key, names = (
        group_key(asking),
        takers(assignment.snapshot, view.queue.environments, asking.shape.resources, asking.shape.market),
    )
    if any(
        group_key(left) == key and left.barred_by is None and left.claimed < left.count
        for left in assignment.blocked
    ):
        return False  # Jobs before it in its line wait, so it waits too.
    jobs = left_of_line(assignment, view, asking)
    return starts_now(assignment.floor, assignment.prospects, names, asking.shape, jobs)


def left_of_line(assignment: Assignment, view: QueueView, asking: Asking) -> int:
    """How many jobs of its line, from this one on, have no place at its turn; jobs that gates bar are left out."""
    key = group_key(asking)
    mine = [
        group
        for group in view.groups
        if (group.shape, group.scheduling_class) == (asking.shape, asking.scheduling_class)
    ]
    count = sum(group.count for group in mine)
    if not any(entry.job_id == asking.head.job_id for group in mine for entry in group.entries):
        count += asking.head.count  # It is checked with a changed shape, and would join that line.
    count -= sum(line.placed for line in assignment.options if group_key(line) == key)
    count -= sum(left.count for left in assignment.blocked if group_key(left) == key)
    return assignment.admission.admits(asking, max(count, asking.head.count))[0]
