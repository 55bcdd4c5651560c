"""The seven states of a job and the moves between them.

Rule 1: every legal move is in MOVES, with its cause; `check_move` is the only judge, and the diagram in the
documentation is drawn from the table.
Rule 2: this file knows nothing of jobs, only of states.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from windfall.jobs.errors import IllegalMove


class JobState(StrEnum):
    """AWS Batch's own words, spelled the same on the wire, in SQL and on a page."""

    SUBMITTED = "SUBMITTED"  # accepted, dependencies not yet looked at
    PENDING = "PENDING"  # waits for dependencies; an array parent stays here while its children run
    RUNNABLE = "RUNNABLE"  # waits for a place
    STARTING = "STARTING"  # has a place; its process is being prepared
    RUNNING = "RUNNING"  # its process runs
    SUCCEEDED = "SUCCEEDED"  # exit code 0
    FAILED = "FAILED"  # no attempt left, cancelled, terminated, timed out, or a dependency failed


SUBMITTED, PENDING, RUNNABLE, STARTING, RUNNING, SUCCEEDED, FAILED = JobState

MOVES: dict[tuple[JobState, JobState], str] = {
    (SUBMITTED, PENDING): "has dependencies, or is an array",
    (SUBMITTED, RUNNABLE): "has no dependencies",
    (SUBMITTED, FAILED): "a dependency had failed before",
    (PENDING, RUNNABLE): "all dependencies succeeded",
    (PENDING, SUCCEEDED): "array: every child succeeded",
    (PENDING, FAILED): "a dependency failed, cancelled, or a child failed",
    (RUNNABLE, STARTING): "placed on an instance",
    (RUNNABLE, FAILED): "cancelled, its time or budget is used up, or no GPU is large enough",
    (STARTING, RUNNING): "process started",
    (STARTING, RUNNABLE): "could not start, or place taken away or lost; attempts left",
    (STARTING, FAILED): "could not start, or terminated",
    (RUNNING, SUCCEEDED): "exit code 0",
    (RUNNING, RUNNABLE): "attempt failed, or place taken away or lost; attempts left",
    (RUNNING, FAILED): "no attempt left, terminated, timed out, or budget spent",
}

TERMINAL = frozenset({SUCCEEDED, FAILED})
#: States in which a job holds a place.
PLACED = frozenset({STARTING, RUNNING})


def check_move(old: JobState, new: JobState, story: Callable[[], str]) -> None:
    """Raise IllegalMove, with the job's story, unless the table has this move."""
    if (old, new) not in MOVES:
        raise IllegalMove(f"{old} -> {new} is not in the table of moves; {story()}")


def diagram() -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", "    [*] --> SUBMITTED"]
    lines += [
        f"    {old} --> {new}: {cause.replace(':', ' -').replace(';', ',')}"
        for (old, new), cause in MOVES.items()
    ]
    lines += [f"    {state} --> [*]" for state in JobState if state in TERMINAL]
    return "\n".join(lines)
