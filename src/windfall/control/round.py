"""One turn of the loop: what has been changed so far, and what engines are to do once that is durable."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from windfall.control.changes import Changes
from windfall.control.instructions import Instruction
from windfall.jobs.ids import AttemptToken, JobId


@dataclass(frozen=True, slots=True)
class NewlyFinished:
    """A job that has just finished and whose dependants have not yet been told."""

    id: JobId
    succeeded: bool
    parent: JobId | None = None
    index: int | None = None


@dataclass(slots=True)
class Round:
    """Collects the outcome of the events of one turn."""

    #: Milliseconds since the epoch; the same for the whole round.
    now: int
    changes: Changes = field(default_factory=Changes)
    instructions: list[Instruction] = field(default_factory=list)
    #: Attempts that were closed in this round: a start that was asked for earlier in it must not go out any more.
    closed: set[AttemptToken] = field(default_factory=set)
    #: A work list, so that a chain of ten thousand dependants needs no recursion.
    ended: deque[NewlyFinished] = field(default_factory=deque)
    #: The tenant on whose behalf the command at hand is done; None for an administrator's and the daemon's own.
    tenant: str | None = None
