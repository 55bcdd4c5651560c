"""The seven states of a job and the moves between them, and what a table of moves is.

Rule 1: every legal move is in a MoveTable, with its cause; the table is the only judge, and the diagram in the
documentation is drawn from it. Instances, ticks and the resting children of arrays have tables of their own.
Rule 2: this file knows nothing of jobs, only of states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from windfall.jobs.errors import IllegalMove

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class MoveTable(Generic[S]):
    """The legal moves between the states of one kind of thing."""

    #: The cause of each move from one state to another.
    moves: Mapping[tuple[S, S], str]
    #: The states in which one may begin and end, each with its cause; "" where it needs none.
    begins: Mapping[S, str]
    ends: Mapping[S, str]

    def check(self, old: S, new: S, story: Callable[[], str]) -> None:
        """Raise IllegalMove, with the story of what should move, unless the table has this move."""
        if (old, new) not in self.moves:
            raise IllegalMove(f"{old} -> {new} is not in the table of moves; {story()}")

    def diagram(self) -> str:
        """The table as a Mermaid state diagram, for the documentation."""
        lines = [
            "stateDiagram-v2",
            *(f"    [*] --> {_arrow(state, why)}" for state, why in self.begins.items()),
        ]
        lines += [f"    {old} --> {_arrow(new, why)}" for (old, new), why in self.moves.items()]
        lines += [f"    {state} --> {_arrow('[*]', why)}" for state, why in self.ends.items()]
        return "\n".join(lines)


def _arrow(leads_to: str, cause: str) -> str:
    return f"{leads_to}: {cause.replace(':', ' -').replace(';', ',')}" if cause else leads_to


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

JOB_MOVES = MoveTable(MOVES, begins={SUBMITTED: ""}, ends={SUCCEEDED: "", FAILED: ""})
