"""The children of an array job, kept compact: one byte of state each until a child leaves the rest.

A child "at rest" has never been more than waiting: it has no record of its own, and its state is the array's
`rest` state. It gets a record when it is placed, released by a dependency, or ended by itself. Knows nothing of
attempts or queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from windfall.jobs.states import FAILED, JOB_MOVES, PENDING, RUNNABLE, TERMINAL, JobState, MoveTable

ARRAY_SIZE_MIN, ARRAY_SIZE_MAX = 2, 10_000

#: The moves of all children at once that have no record of their own. A child leaves the rest with the state that it
#: has there; from then on it moves as any job.
REST_MOVES = MoveTable(
    {
        (PENDING, RUNNABLE): "all dependencies of the array succeeded",
        (PENDING, FAILED): "a dependency failed, or the array was cancelled or terminated",
        (RUNNABLE, FAILED): "cancelled or terminated, or its time or budget is used up",
    },
    begins={PENDING: ""},
    ends={RUNNABLE: "the last child has left the rest", FAILED: ""},
)

_CODES = {state: code for code, state in enumerate(JobState)}
_STATES = tuple(JobState)


@dataclass(frozen=True, slots=True)
class ArrayPart:
    """Children of an earlier array that are run again, each with the index that it had there."""

    #: How many children the earlier array had.
    size: int
    #: By the number of the child that runs now; a single job has one.
    indexes: tuple[int, ...]


def state_of_code(code: int) -> JobState:
    """The state that a byte of a table stands for."""
    return _STATES[code]


@dataclass(slots=True)
class ChildTable:
    """The state of every child of one array."""

    size: int
    #: The state of the children that have no record of their own.
    rest: JobState
    #: Why, and since when, if the rest is FAILED.
    rest_reason: str | None = None
    rest_at: int | None = None
    states: bytearray = field(default_factory=bytearray)
    #: Whether a child has a record of its own.
    recorded: bytearray = field(default_factory=bytearray)
    counts: list[int] = field(default_factory=list)
    #: No child below this index is at rest.
    first_at_rest: int = 0

    @classmethod
    def of(cls, size: int, rest: JobState) -> ChildTable:
        """A table in which all children are at rest."""
        table = cls(size, rest, states=bytearray([_CODES[rest]]) * size, recorded=bytearray(size))
        table.counts = [0] * len(_STATES)
        table.counts[_CODES[rest]] = size
        return table

    def state(self, index: int) -> JobState:
        """A child's state."""
        return _STATES[self.states[index]]

    def move(self, index: int, new: JobState) -> None:
        """Note a child's new state, if jobs can move so; from now on it has a record of its own."""
        old = self.state(index)
        if old is not new:  # A child that gets its record stays what it was.
            JOB_MOVES.check(old, new, lambda: f"child {index} of an array; {self.story()}")
        self.load(index, new)

    def load(self, index: int, state: JobState) -> None:
        """Take a child's state from its stored record, whatever it went through."""
        code = _CODES[state]
        self.counts[self.states[index]] -= 1
        self.counts[code] += 1
        self.states[index] = code
        self.recorded[index] = 1

    def move_rest(self, new: JobState, reason: str | None = None, at: int | None = None) -> None:
        """Move every child at rest at once; a rest that is so already is given another reason at most."""
        if self.rest is not new:
            REST_MOVES.check(self.rest, new, self.story)
        code = _CODES[new]
        for index in self.at_rest():
            self.counts[self.states[index]] -= 1
            self.counts[code] += 1
            self.states[index] = code
        self.rest, self.rest_reason, self.rest_at = new, reason, at

    def story(self) -> str:
        """The children in one line, for errors and logs."""
        counts = ", ".join(f"{count} {state}" for state, count in self.summary().items() if count)
        return f"the rest is {self.rest}; children: {counts}"

    def at_rest(self) -> Iterator[int]:
        """The indices of the children without a record, lowest first."""
        index = self.recorded.find(0, self.first_at_rest)
        self.first_at_rest = self.size if index < 0 else index
        while index >= 0:
            yield index
            index = self.recorded.find(0, index + 1)

    def next_at_rest(self) -> int | None:
        """The lowest index that is still at rest."""
        return next(self.at_rest(), None)

    @property
    def resting(self) -> int:
        """How many children have no record of their own."""
        return self.recorded.count(0)

    @property
    def waiting(self) -> int:
        """How many children at rest could be placed now."""
        return self.resting if self.rest is RUNNABLE else 0

    @property
    def finished(self) -> bool:
        """Whether no child can change any more."""
        return sum(self.counts[_CODES[state]] for state in TERMINAL) == self.size

    @property
    def failed(self) -> bool:
        """Whether any child failed."""
        return self.counts[_CODES[FAILED]] > 0

    def drawn(self, letters: Mapping[JobState, str]) -> str:
        """One letter per child, by its state."""
        table = "".join(letters[state] for state in _STATES).encode("ascii")
        return self.states.translate(table.ljust(256, b"?")).decode("ascii")

    def summary(self) -> dict[str, int]:
        """How many children are in each state, as AWS's statusSummary has it."""
        return {state.value: self.counts[code] for code, state in enumerate(_STATES)}
